import pytest

from kai.basics.errors import InputError
from kai.lab.comparing.expected_answer import compare

POD = {"status": "Running", "node": "n1", "gpuGroups": [], "numaZones": []}


def answer(**pods):
    return {
        "pods": {name: {**POD, **each} for name, each in pods.items()},
        "nodes": {"n1": {"idleGpus": 1, "releasingGpus": 0}},
    }


def found(expected, given, **more):
    return compare(expected, given, **more).found


def test_only_what_is_listed_is_compared():
    assert found({"pods": {"p": {"status": "Running"}}}, answer(p={}, q={"status": "Lost"})) == ()
    assert compare(None, answer()).unknown


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        ({"pods": {"p": {"status": "Pending"}}}, "p: Running, expected Pending"),
        ({"pods": {"p": {"status": "Running", "node": "n2"}}}, "p: on n1, expected n2"),
        ({"pods": {"q": {"status": "Running"}}}, "q: found no such pod"),
        ({"pods": {"p": {"status": "Running", "numaZones": [1]}}}, "p: in NUMA zones [], expected [1]"),
        ({"pods": {"p": {"status": "Running", "gpuGroups": ["x"]}}}, "p: on 0 shared GPUs, expected 1"),
        ({"nodes": {"n1": {"idleGpus": 2}}}, "node n1: idleGpus 1, expected 2"),
        ({"nodes": {"n2": {"idleGpus": 2}}}, "node n2: idleGpus None, expected 2"),
    ],
)
def test_what_differs_is_told(expected, told):
    assert found(expected, answer(p={})) == (told,)


def shared(**symbols):
    return {"pods": {name: {"status": "Running", "gpuGroups": [symbol]} for name, symbol in symbols.items()}}


def test_pods_share_devices_by_company_and_not_by_name():
    given = answer(p={"gpuGroups": ["x"]}, q={"gpuGroups": ["x"]}, r={"gpuGroups": ["y"]})
    assert found(shared(p="0", q="0", r="1"), given) == ()
    assert found({**shared(p="0", q="0", r="1"), "gpuGroupsDistinct": True}, given) == ()


def test_pods_that_should_share_and_do_not_are_told():
    given = answer(p={"gpuGroups": ["x"]}, q={"gpuGroups": ["y"]})
    assert found(shared(p="0", q="0"), given) == ("p, q share no GPU of n1, expected one",)
    distinct = {**shared(p="0", q="0"), "gpuGroupsDistinct": True}
    assert found(distinct, given) == ("pods share GPUs as p q, expected p+q",)


def test_different_device_symbols_may_mean_one_device_by_default():
    given = answer(p={"gpuGroups": ["x"]}, q={"gpuGroups": ["x"]})
    assert found(shared(p="0", q="1"), given) == ()
    assert found({**shared(p="0", q="1"), "gpuGroupsDistinct": True}, given) != ()


def test_counts_are_upper_bounds_for_each_cycle():
    expected = {"counts": {"binds": 1}}
    assert found(expected, {**answer(), "counts": [{"binds": 1}, {"binds": 0}]}) == ()
    assert found(expected, {**answer(), "counts": [{"binds": 0}, {"binds": 2}]}) == (
        "cycle 2: 2 binds, expected at most 1",
    )


def test_stable_cycles_must_be_as_many_and_as_good():
    expected = {"pods": {"p": {"status": "Running"}}}
    given = {**answer(p={}), "stable": [answer(p={}), answer(p={"status": "Releasing"})]}
    assert found(expected, given, stable_cycles=2) == ("stable cycle 2: p: Releasing, expected Running",)
    assert found(expected, answer(p={}), stable_cycles=1) == ("0 stable cycles, expected 1",)


def test_shares_are_compared_by_value():
    expected = {"fairShare": {"1": {"gpu": 2, "cpu": "1500m"}}, "remaining": {"gpu": 0}}
    assert found(expected, {"fairShare": {"1": {"gpu": 2.0000000001, "cpu": 1.5}}, "remaining": {"gpu": 0.0}}) == ()
    assert found(expected, {"fairShare": {"1": {"gpu": 3, "cpu": 1.5}}, "remaining": {}}) == (
        "queue 1: fair share of gpu 3, expected 2",
        "remaining gpu: None, expected 0",
    )


@pytest.mark.parametrize("expected", [{"pods": []}, {"pods": {"p": {}}}, {"pods": {"p": 5}}, {"fairShare": 5}])
def test_an_expectation_that_cannot_be_read_is_named(expected):
    with pytest.raises(InputError, match="expected pods, nodes and counts"):
        found(expected, {**answer(p={}), "fairShare": {}, "remaining": {}})
