"""A plan of decisions: what is in it, when two are the same, and in what they differ."""

import attrs

from kai.simulation.plan import Departure, Hold, Place, Plan, differences, digest_of

START = Place(cycle=1, pod="x/a-0", job="x/a", queue="q", node="n1", gpus=1.0)
SHARED = Place(cycle=1, pod="x/s-0", job="x/s", queue="q", node="n1", gpus=0.5, slots=("+1/0",), share=0.5)
WAIT = Hold(cycle=1, pod="x/b-0", job="x/b", queue="q", node="n2", gpus=2.0)
GONE = Departure(
    cycle=1, pod="x/c-0", job="x/c", queue="q", node="n2", gpus=2.0, cause="reclaim", rule="fair share", aggressor="x/b"
)
PLAN = Plan(place=(START, SHARED), hold=(WAIT,), evict=(GONE,), move=())


def test_the_document_has_the_fields_of_the_output_kind():
    document = PLAN.document()
    assert document["place"][1]["slots"] == ("+1/0",)
    assert document["evict"][0]["aggressor"] == "x/b"
    assert document["counts"] == {"start": 2, "hold": 1, "evict": 1, "move": 0}
    assert document["decisionHash"] == PLAN.digest == digest_of(document)


def test_the_digest_depends_on_decisions_and_not_on_their_order_or_on_names_of_the_moment():
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


def test_a_recorded_plan_that_is_none_differs_everywhere():
    assert len(differences({"place": 7}, PLAN.document())) == 4
