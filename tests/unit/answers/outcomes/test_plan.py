"""A plan of decisions: what is in it, when two are the same, and in what they differ."""

import attrs

from kai.answers.cases.plan_document import Departure, Hold, Place, differences, digest_of
from kai.answers.offline.run import simulate
from kai.answers.outcomes.plan import Plan, plan_of
from kai.lab.scenarios.scenario import read_short

START = Place(cycle=1, pod="x/a-0", job="x/a", queue="q", node="n1", gpus=1.0, slots=(), share=None)
SHARED = Place(cycle=1, pod="x/s-0", job="x/s", queue="q", node="n1", gpus=0.5, slots=("+1/0",), share=0.5)
WAIT = Hold(cycle=1, pod="x/b-0", job="x/b", queue="q", node="n2", gpus=2.0)
GONE = Departure(
    cycle=1,
    pod="x/c-0",
    job="x/c",
    queue="q",
    node="n2",
    gpus=2.0,
    cause="reclaim",
    rule="fair share",
    aggressor="x/b",
    to=None,
)
PLAN = Plan(place=(START, SHARED), hold=(WAIT,), evict=(GONE,), move=())


def test_the_document_has_the_fields_of_the_output_kind():
    document = PLAN.document()
    assert document["place"][1]["slots"] == ("+1/0",)
    assert document["evict"][0]["aggressor"] == "x/b"
    assert document["counts"] == {"start": 2, "hold": 1, "evict": 1, "move": 0}
    assert document["decisionHash"] == PLAN.digest == digest_of(document)


def test_the_digest_ignores_order_and_generated_names():
    other = Plan(place=(attrs.evolve(SHARED, slots=("+7/3",)), START), hold=(WAIT,), evict=(GONE,), move=())
    assert other.digest == PLAN.digest
    for changed in (
        attrs.evolve(PLAN, place=(START,)),
        attrs.evolve(PLAN, hold=(attrs.evolve(WAIT, node="n1"),)),
        attrs.evolve(PLAN, evict=(attrs.evolve(GONE, aggressor=None),)),
        attrs.evolve(PLAN, place=(START, attrs.evolve(SHARED, slots=("known",)))),
    ):
        assert changed.digest != PLAN.digest


def test_plans_that_are_the_same_have_no_differences():
    assert differences(PLAN.document(), PLAN.document()) == ()


def test_each_difference_names_the_pod_and_both_sides():
    now = attrs.evolve(PLAN, place=(attrs.evolve(START, node="n9"), SHARED), hold=())
    moved, lost = differences(PLAN.document(), now.document())
    assert (moved.kind, moved.pod, moved.recorded["node"], moved.now["node"]) == ("place", "x/a-0", "n1", "n9")
    assert (lost.kind, lost.pod, lost.job, lost.now) == ("hold", "x/b-0", "x/b", None)


SLICED = attrs.evolve(START, gpus=3.5, sliced=3.0)


def test_slices_are_shown_as_gpus_without_changing_digests():
    before = Plan(place=(attrs.evolve(START, gpus=0.5),), hold=(), evict=(), move=()).document()
    now = Plan(place=(SLICED,), hold=(), evict=(), move=())
    assert (before["place"][0]["gpus"], "sliced" in before["place"][0]) == (0.5, False)
    assert (now.document()["place"][0]["gpus"], now.document()["place"][0]["sliced"]) == (3.5, 3.0)
    assert now.digest == before["decisionHash"] == digest_of(now.document())
    assert differences(before, now.document()) == ()


def test_a_recorded_plan_whose_amounts_are_none_differs_only():
    bad = {"place": [{"cycle": 1, "pod": "x/a-0", "gpus": None, "sliced": 3.0}]}
    assert len(differences(bad, Plan(place=(SLICED,), hold=(), evict=(), move=()).document())) == 1


def test_a_plan_counts_slices_as_quotas_do():
    document = {
        "about": "slices",
        "run": ["allocate"],
        "cluster": {"nodes": {"n1": {"resources": {"nvidia.com/mig-3g.20gb": 2}}, "n2": {"gpu": 1}}},
        "queues": {"root": {}, "q": {"parent": "root", "quota": -1}},
        "groups": {"half": {"each": {"nvidia.com/mig-3g.20gb": 1}}, "whole": {"each": {"gpu": 1}}},
    }
    found = {each.job: (each.gpus, each.sliced) for each in plan_of(simulate(read_short(document, "s.yaml"))).place}
    assert found == {"default/half": (3.0, 3.0), "default/whole": (1.0, 0.0)}


def test_a_recorded_plan_that_is_none_differs_everywhere():
    assert len(differences({"place": 7}, PLAN.document())) == 4
