import pytest

from kai.answers.cases.case import FairShareCase
from kai.answers.offline.run import divide_case
from kai.basics.errors import InputError


def queue(uid, **gpu):
    return {"uid": uid, "name": uid, "priority": 1, "creationTimestamp": None, "resources": {"gpu": gpu}}


def divided(**document):
    return divide_case(FairShareCase(name="d.yaml", title="d", document={"divide": "all", "kValue": 0, **document}))


def test_quota_goes_first_and_the_rest_by_weight():
    found = divided(
        totalResources={"gpu": 8},
        queues=[
            queue("1", deserved=2, limit=-1, overQuotaWeight=1, request=10),
            queue("2", deserved=2, limit=-1, overQuotaWeight=1, request=3),
        ],
    )
    assert found["fairShare"] == {"1": {"gpu": 5.0}, "2": {"gpu": 3.0}}
    assert found["remaining"] == {"gpu": 0.0}


def test_overquota_divides_only_the_surplus():
    queues = [queue("1", fairShare=2, limit=-1, overQuotaWeight=1, request=3)]
    found = divided(divide="overquota", totalResources={"gpu": 4}, queues=queues)
    assert (found["fairShare"]["1"]["gpu"], found["remaining"]["gpu"]) == (3.0, 3.0)


@pytest.mark.parametrize(
    "document",
    [
        {"queues": []},
        {"totalResources": {"gpu": 1}},
        {"totalResources": {"gpu": 1}, "queues": [{}]},
        {"totalResources": {"gpu": "many"}, "queues": []},
        {"totalResources": {"gpu": 1}, "queues": 5},
        {"totalResources": {"gpu": 1}, "queues": [], "divide": "half"},
        {"totalResources": {"gpu": 1}, "queues": [queue("1", request=1) | {"priority": float("inf")}]},
        {"totalResources": {"gpu": 1}, "queues": [queue("1", request=1) | {"creationTimestamp": "soon"}]},
    ],
)
def test_a_division_that_cannot_be_read_is_named(document):
    with pytest.raises(InputError, match=r"d\.yaml: "):
        divided(**document)
