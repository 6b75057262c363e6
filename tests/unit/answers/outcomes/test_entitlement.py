import pytest

from kai.answers.documents.document import as_json
from kai.answers.documents.queues import QueueExplanation, entitled
from kai.answers.documents.queues import entitlement as read
from kai.answers.offline.run import simulate
from kai.answers.outcomes.entitlement import entitlement
from kai.answers.outcomes.overview import overview
from kai.lab.scenarios.scenario import read_short


def division(queues, wants, gpus=16, of="a", nodes=None):
    groups = {
        f"g-{name}": {"queue": name, "members": count, "minimum": 0, "each": {"gpu": 1}}
        for name, count in wants.items()
    }
    document = {"about": "x", "cluster": {"nodes": nodes or {"n1": {"gpu": gpus}}}, "queues": queues, "groups": groups}
    outcome = simulate(read_short({**document, "run": ["allocate"]}, "entitlement"))
    return entitlement(outcome, overview(outcome), of)


def steps(found):
    return {step.step: (step.given / 1000, step.total / 1000) for step in found.steps}


def test_quotas_are_given_first_and_the_surplus_by_weight():
    queues = {"a": {"quota": 4, "weight": 1}, "b": {"quota": 4, "weight": 3}}
    found = division(queues, {"a": 20, "b": 20})
    assert steps(found) == {"quota": (4.0, 8.0), "surplus": (2.0, 8.0), "remainder": (0.0, 0.0)}
    assert found.share == 6000.0


def test_remaining_whole_gpus_go_to_the_largest_remainder():
    queues = {name: {"quota": 0, "weight": 1} for name in "abc"}
    found = [division(queues, dict.fromkeys("abc", 20), of=name) for name in "abc"]
    assert [steps(each)["surplus"] for each in found] == [(5.0, 15.0)] * 3
    assert sum(steps(each)["remainder"][0] for each in found) == 1.0


def test_a_queue_gets_no_more_than_it_requests():
    queues = {"a": {"quota": 8}, "b": {"quota": 8}}
    assert steps(division(queues, {"a": 2, "b": 20})) == {
        "quota": (2.0, 10.0),
        "surplus": (0.0, 6.0),
        "remainder": (0.0, 0.0),
    }


def test_children_divide_what_their_parent_has():
    queues = {"top": {"quota": 8}, "a": {"parent": "top", "quota": 2}, "b": {"parent": "top", "quota": 2}}
    found = division(queues, {"a": 20, "b": 20}, gpus=8)
    assert (found.parent, found.total, found.share) == ("top", 8000.0, 4000.0)
    assert [part.name for part in found.siblings] == ["a", "b"]


def test_the_steps_add_up_to_the_fair_share():
    queues = {"a": {"quota": 1, "weight": 2}, "b": {"quota": 3, "limit": 4}, "c": {"quota": 0, "weight": 5}}
    for of in "abc":
        found = division(queues, {"a": 7, "b": 9, "c": 3}, gpus=13, of=of)
        assert sum(step.given for step in found.steps) == pytest.approx(found.share)


def test_an_unknown_queue_is_a_key_error():
    with pytest.raises(KeyError):
        division({"a": {"quota": 1}}, {"a": 1}, of="z")


def test_what_is_divided_is_what_ready_nodes_have():
    nodes = {"n1": {"gpu": 8}, "n2": {"gpu": 8, "cordoned": True}}
    found = division({"a": {"quota": 0}}, {"a": 20}, of="a", nodes=nodes)
    assert (found.total, found.share) == (8000.0, 8000.0)


def test_a_weight_of_0_is_named_where_surplus_exists():
    queues = {"a": {"quota": 2, "weight": 0}, "b": {"quota": 2}}
    found = division(queues, {"a": 20, "b": 1})
    assert entitled(found) == (
        "a is entitled to 2 GPUs: its quota is 2 GPUs, and its weight of 0 gives it nothing of what others leave."
    )
    assert (found.gains.siblings, found.gains.bounds) == ((), ("quota", "weight"))


def test_a_queue_at_its_limit_gains_only_by_it():
    queues = {"a": {"quota": 8, "limit": 4}, "b": {"quota": 2}}
    gains = division(queues, {"a": 20, "b": 20}).gains
    assert (gains.siblings, gains.bounds) == ((), ("limit",))


def test_a_lower_sibling_request_returns_to_the_parent():
    queues = {
        "top": {"quota": 0, "weight": 0},
        "a": {"parent": "top", "quota": 0},
        "b": {"parent": "top", "quota": 0},
        "c": {"quota": 0},
    }
    gains = division(queues, {"a": 2, "b": 2, "c": 20}).gains
    assert (gains.siblings, gains.bounds, gains.are_known) == ((), ("quota",), True)


def test_siblings_that_stand_in_the_way_are_named():
    queues = {"a": {"quota": 4}, "b": {"quota": 4}, "c": {"quota": 0}}
    gains = division(queues, {"a": 20, "b": 20}).gains
    assert (gains.siblings, gains.bounds) == (("b",), ("quota", "weight"))


def test_weights_count_among_queues_of_the_same_priority():
    queues = {"a": {"quota": 0, "weight": 1}, "b": {"quota": 0, "weight": 3, "priority": 200}}
    found = division(queues, {"a": 20, "b": 10})
    assert found.steps[1].formula == "1 of 1 weights, of what those of higher priority leave"


def test_what_would_give_more_stays_in_documents():
    found = division({"a": {"quota": 4}, "b": {"quota": 4}}, {"a": 20, "b": 20})
    document = as_json(QueueExplanation.of(found, ()))
    assert read(document).gains == found.gains
    assert not read({**document, "getsMoreBy": None}).gains.are_known
