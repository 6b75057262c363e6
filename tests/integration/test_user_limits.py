"""Limits of users on a real API server: who is noted, that no note is forged, and that the limit holds."""

from contextlib import contextmanager

import pytest

from tests.integration.client import Refused, until
from tests.integration.installation import install
from tests.integration.kubelet import RESERVED, Kubelet
from tests.integration.together import (
    GPU,
    UNLIMITED,
    add_node,
    add_queues,
    an_object,
    own_environment,
    running,
    serving_webhooks,
)
from tests.unit.deploy.rendering import DEPLOY, render

SPACE = "lab"
NOTE = "kai.scheduler/user"
POD_GROUP = ("scheduling.run.ai/v2alpha2", "PodGroup")
RBAC = "rbac.authorization.k8s.io"
COMPONENT = DEPLOY / "components" / "user-notes"
BARE = {"schedulerName": "kai-scheduler", "restartPolicy": "Never"}


def account_of(name):
    return f"system:serviceaccount:{SPACE}:{name}"


@pytest.fixture(scope="module")
def plane(bare_control_plane):
    """Return a control plane with kai's objects, two users, and a queue that lets each user hold two GPUs."""
    plane = bare_control_plane
    install(plane, DEPLOY)
    for manifest in render(COMPONENT):
        if "webhooks" not in manifest:
            plane.admin.apply(manifest)
    admin = plane.admin
    admin.ensure(an_object("v1", "Namespace", SPACE))
    rules = [
        {"apiGroups": ["", "batch", "scheduling.run.ai"], "resources": ["pods", "jobs", "podgroups"], "verbs": ["*"]}
    ]
    admin.create(an_object(f"{RBAC}/v1", "Role", "user", SPACE, rules=rules))
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "user"}
    for name in ("maria", "jo"):
        admin.create(an_object("v1", "ServiceAccount", name, SPACE))
        subject = {"kind": "ServiceAccount", "name": name, "namespace": SPACE}
        admin.create(an_object(f"{RBAC}/v1", "RoleBinding", name, SPACE, roleRef=reference, subjects=[subject]))
    add_queues(admin)
    resources = {**dict.fromkeys(("cpu", "memory", "gpu"), UNLIMITED), "perUser": {"gpu": {"limit": 2}}}
    admin.patch(an_object("scheduling.run.ai/v2", "Queue", "team"), {"spec": {"resources": resources}})
    add_node(admin, "n1", {}, gpus=16)
    return plane


@pytest.fixture(scope="module")
def users(plane):
    """Return what each user sees of the cluster."""
    return {name: plane.account(SPACE, name) for name in ("maria", "jo")}


@pytest.fixture(scope="module")
def webhooks(plane, users, tmp_path_factory):
    """Run kai and its webhooks; return the process of the webhooks."""
    folder = tmp_path_factory.mktemp("kai")
    kubelet = Kubelet(plane.admin, plane.account(RESERVED, "kai-resource-reservation"))
    environment = own_environment(plane.admin, "registry.example/kai:1")
    serving = serving_webhooks(plane, folder, components=("user-notes",))
    with running(plane, folder, environment=environment), serving as daemon:
        kubelet.start()
        await_notes(users)
        yield daemon
        kubelet.stop()


@contextmanager
def away(webhooks, users):
    """Stop the process that answers for the webhooks for a while."""
    webhooks.stop()
    try:
        yield
    finally:
        webhooks.start()
        await_notes(users)


def await_notes(users):
    until(lambda: note_of(users["jo"].create(a_job("probe"), dryRun="All")), "the API server to ask")


def a_job(name, *, pods=1, note=None, template_note=None):
    """Return a Job whose pods ask for a GPU each."""
    resources = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    spec = {**BARE, "containers": [{"name": "main", "image": "none", "resources": resources}]}
    template = {"metadata": {"annotations": noted(template_note)}, "spec": spec}
    metadata = {"labels": {"kai.scheduler/queue": "team"}, "annotations": noted(note)}
    return an_object(
        "batch/v1", "Job", name, SPACE, metadata=metadata, spec={"template": template, "parallelism": pods}
    )


def noted(user):
    return {} if user is None else {NOTE: user}


def note_of(manifest):
    return (manifest["metadata"].get("annotations") or {}).get(NOTE, "")


def test_a_job_is_noted_with_its_creator(users, webhooks):
    assert note_of(users["maria"].create(a_job("plain"), dryRun="All")) == account_of("maria")


def test_a_forged_note_is_overwritten(users, webhooks):
    made = users["maria"].create(a_job("forged", note=account_of("jo")), dryRun="All")
    assert note_of(made) == account_of("maria")


def test_a_changed_note_is_put_back(users, webhooks):
    made = users["maria"].create({**a_job("kept"), "spec": {**a_job("kept")["spec"], "suspend": True}})
    for note in (account_of("jo"), None):
        found = users["jo"].patch(made, {"metadata": {"annotations": {NOTE: note}}})
        assert note_of(found) == account_of("maria")


def test_pods_of_a_job_count_for_its_creator(plane, users, webhooks):
    admin = plane.admin
    users["maria"].create(a_job("large", pods=3, template_note=account_of("jo")))
    users["jo"].create(a_job("small"))

    def bound():
        pods = admin.list("v1", "Pod", SPACE)
        assert not any(map(note_of, pods))
        names = [each["metadata"]["labels"]["job-name"] for each in pods if each["spec"].get("nodeName")]
        return tuple(names.count(each) for each in ("large", "small", "later"))

    until(lambda: bound() == (2, 1, 0), "two pods of one user, and the pod of the other")
    notes = {group["metadata"]["ownerReferences"][0]["name"]: note_of(group) for group in admin.list(*POD_GROUP, SPACE)}
    assert notes["large"] == account_of("maria")
    assert notes["small"] == account_of("jo")
    users["jo"].create(a_job("later", pods=2))
    until(lambda: bound()[1:] == (1, 1), "a pod of a job that came later, up to the limit")
    assert bound() == (2, 1, 1)

    def waiting(job):
        """Return the pod of a job that waits, with the condition that says why."""
        pods = [each for each in admin.list("v1", "Pod", SPACE) if not each["spec"].get("nodeName")]
        (pod,) = [each for each in pods if each["metadata"]["labels"]["job-name"] == job]
        conditions = [each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
        return pod["metadata"]["name"], conditions

    wanted = (
        f"{account_of('maria')} has reached the limit of GPUs for each user of team. Limit is 2 GPUs, "
        "currently 2 GPUs allocated to this user and workload requested 1 GPUs"
    )
    pod, (condition,) = until(lambda: waiting("large")[1] and waiting("large"), "the condition of a pod that waits")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert wanted in condition["message"]

    def events(name):
        found = admin.list("v1", "Event", SPACE)
        return [each["message"] for each in found if each["involvedObject"]["name"] == name]

    until(lambda: any(wanted in each for each in events(pod)), "the event of a pod that waits")


def test_an_account_that_may_override_writes_any_note(plane, users, webhooks):
    group = an_object(*POD_GROUP, "by-kai", SPACE, metadata={"annotations": noted("maria")}, spec={"queue": "team"})
    assert note_of(plane.admin.create(group, dryRun="All")) == "maria"
    assert note_of(users["jo"].create(group, dryRun="All")) == account_of("jo")


def test_without_webhooks_no_note_is_forged(users, webhooks):
    made = users["maria"].create({**a_job("before"), "spec": {**a_job("before")["spec"], "suspend": True}})
    with away(webhooks, users):
        with pytest.raises(Refused, match=f'"{account_of("maria")}", who creates it, or none'):
            users["maria"].create(a_job("forged", note=account_of("jo")))
        with pytest.raises(Refused, match="as when the object was created"):
            users["jo"].patch(made, {"metadata": {"annotations": {NOTE: account_of("jo")}}})
        assert not note_of(users["maria"].create(a_job("honest"), dryRun="All"))
        own = users["maria"].create(a_job("own", note=account_of("maria")), dryRun="All")
        assert note_of(own) == account_of("maria")
