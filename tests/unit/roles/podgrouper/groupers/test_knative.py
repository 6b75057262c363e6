import pytest

from kai.roles.podgrouper import Settings
from tests.unit.roles.podgrouper.workloads import failure_of, group_of, pod_group, pod_of, thing

LABEL = "serving.knative.dev/revision"
SERVICE = thing("serving.knative.dev/v1", "Service", labels={"of": "service"})


def revision(**annotations):
    return thing("serving.knative.dev/v1", "Revision", "r", labels={"of": "revision"}, annotations=annotations)


def pod(name="pod-0", group=None):
    return pod_of(SERVICE, name=name, labels={LABEL: "r"}, annotations={"pod-group-name": group} if group else None)


@pytest.mark.parametrize(("text", "minimum"), [("3", 3), (None, 1), ("many", 1), ("0", 0)])
def test_a_revision_is_a_gang_of_its_minimal_scale(text, minimum):
    found = revision(**({"autoscaling.knative.dev/min-scale": text} if text else {}))
    group = group_of(pod(), SERVICE, found)
    assert group["metadata"]["name"] == "pg-r-r-uid"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Revision"
    assert group["metadata"]["labels"] == {"of": "revision"}
    assert (group["spec"]["minMember"], group["spec"]["priorityClassName"]) == (minimum, "inference")


def test_gangs_can_be_switched_off():
    group = group_of(pod(), SERVICE, revision(), settings=Settings(knative_gangs=False))
    assert group["metadata"]["name"] == "pg-pod-0-pod-0-uid"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Pod"


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ([pod("a", "g1"), pod("b", "g2")], "pg-pod-0-pod-0-uid"),
        ([pod("a", "g1"), pod("b", "g1")], "pg-r-r-uid"),
        ([pod("a", "g1")], "pg-r-r-uid"),
        ([pod("a", "g1"), pod_group("g1", owners=[pod("a")])], "pg-pod-0-pod-0-uid"),
        ([pod("a", "g1"), pod_group("g1", owners=[revision()])], "pg-r-r-uid"),
    ],
)
def test_a_pod_follows_the_pods_of_its_revision(others, name):
    assert group_of(pod(), SERVICE, revision(), *others)["metadata"]["name"] == name


@pytest.mark.parametrize("owners", [[], [SERVICE]])
def test_a_group_that_belongs_to_something_else_is_refused(owners):
    message = failure_of(pod(), SERVICE, revision(), pod("a", "g1"), pod_group("g1", owners=owners))
    assert "expected a Revision or a Pod as the owner" in message


def test_a_pod_must_name_a_revision_that_exists():
    assert LABEL in failure_of(pod_of(SERVICE), SERVICE)
    assert failure_of(pod(), SERVICE) == 'Revision "ns/r": not found'
