"""Who may use a queue where permission is required: at the door of the API server, and past it.

`tenancy/queues.yaml` holds the cells. The API server refuses by the policy of ``deploy/components/queue-access``; what
came in all the same, as an administrator lets it in here, is held by the scheduler.
"""

import itertools
from pathlib import Path

import pytest
import yaml

from tests.integration.client import Refused, until
from tests.integration.installation import install
from tests.integration.stage import POD_GROUP, QUEUE, an_object, node, queue, staged
from tests.unit.deploy.rendering import DEPLOY, load

TABLE = yaml.safe_load((Path(__file__).parent / "tenancy" / "queues.yaml").read_text())
TENANTS, QUEUES, MAY = TABLE["tenants"], TABLE["queues"], TABLE["may"]
CELLS = list(itertools.product(TENANTS, QUEUES, TABLE["ways"]))
KEYS = {"namespaces": "kai.scheduler/allowed-namespaces", "labels": "kai.scheduler/allowed-namespace-labels"}
LABEL = "kai.scheduler/queue"
COMPONENT = DEPLOY / "components" / "queue-access"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def stage(bare_control_plane, tmp_path_factory):
    """Run kai with all policies, four tenants and six queues."""
    plane = bare_control_plane
    install(plane, DEPLOY)
    for manifest in load(COMPONENT / "policy.yaml"):
        plane.admin.apply(manifest)
    for tenant, labels in TENANTS.items():
        furnish(plane.admin, tenant, labels)
    for name, said in QUEUES.items():
        plane.admin.create(a_queue(name, **said))
    with staged(plane, tmp_path_factory.mktemp("queues")) as stage:
        stage.create(node("n1", cpu=64))
        stage.start("kai", flags=("--queue-access=required",))
        until(lambda: refused(lambda: act(stage, "red", "closed", "pod")), "the policy to be in force")
        yield stage


@pytest.fixture(scope="module")
def waiting(stage):
    """Return a pod of each tenant that waits in the queue of everyone, for ever."""
    gate = {"schedulingGates": [{"name": "tests/for-ever"}]}
    return {
        tenant: stage.api.create(a_pod(tenant, "waiting", labels={LABEL: "everyone"}, **gate)) for tenant in TENANTS
    }


def furnish(admin, tenant, labels):
    """Make a namespace with an account that may do everything with its workloads."""
    admin.create(an_object("v1", "Namespace", tenant, metadata={"labels": labels}))
    admin.create(an_object("v1", "ServiceAccount", "default", metadata={"namespace": tenant}))
    rules = [
        {"apiGroups": ["", "batch", "scheduling.run.ai"], "resources": ["pods", "jobs", "podgroups"], "verbs": ["*"]},
    ]
    metadata = {"namespace": tenant}
    admin.create(an_object(f"{RBAC}/v1", "Role", "tenant", metadata=metadata, rules=rules))
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "tenant"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": tenant}
    admin.create(
        an_object(f"{RBAC}/v1", "RoleBinding", "tenant", metadata=metadata, roleRef=reference, subjects=[subject])
    )


def a_queue(name, **said):
    made = queue(name)
    made["metadata"]["annotations"] = {KEYS[key]: text for key, text in said.items()}
    return made


def a_pod(tenant, name, *, labels=None, annotations=None, **spec):
    metadata = {"namespace": tenant, "labels": labels or {}, "annotations": annotations or {}}
    spec |= {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none"}]}
    return an_object("v1", "Pod", name, metadata=metadata, spec=spec)


def a_group(tenant, name, queue_name):
    return an_object(POD_GROUP, "PodGroup", name, metadata={"namespace": tenant}, spec={"queue": queue_name})


def a_job(tenant, queue_name):
    template = a_pod(tenant, "none", restartPolicy="Never")
    metadata = {"namespace": tenant, "labels": {LABEL: queue_name}}
    return an_object("batch/v1", "Job", "cell", metadata=metadata, spec={"template": {"spec": template["spec"]}})


def act(stage, tenant, name, way, waiting=None):
    """Do as a tenant what a cell says, without lasting effect."""
    api = stage.plane.account(tenant, "default")
    match way:
        case "pod":
            return api.create(a_pod(tenant, "cell", labels={LABEL: name}), dryRun="All")
        case "job":
            return api.create(a_job(tenant, name), dryRun="All")
        case "pod-group":
            return api.create(a_group(tenant, "cell", name), dryRun="All")
        case "label-edit":
            return api.patch(waiting[tenant], {"metadata": {"labels": {LABEL: name}}}, dryRun="All")
        case "re-parent":
            return api.patch(an_object(QUEUE, "Queue", name), {"spec": {"parentQueue": "everyone"}}, dryRun="All")
        case "rename":
            return api.create(a_queue(f"{name}-of-{tenant}", namespaces=tenant), dryRun="All")
    raise AssertionError(way)


def refused(doing):
    """Return the text of a refusal, "" if there is none."""
    try:
        doing()
    except Refused as refusal:
        return refusal.message if refusal.code == 403 else f"an answer of another kind, {refusal.code}"
    return ""


def test_there_are_144_cells():
    assert len(CELLS) == 144


@pytest.mark.parametrize(("tenant", "name", "way"), CELLS)
def test_a_cell_at_the_door(stage, waiting, tenant, name, way):
    text = refused(lambda: act(stage, tenant, name, way, waiting))
    if TABLE["ways"][way] == "never":
        assert "cannot" in text
        return
    assert bool(text) is (name not in MAY[tenant])
    if text:
        assert f'found "{name}", expected a queue that allows namespace {tenant};' in text
        assert not [other for other in TENANTS if other != tenant and other in text.replace(name, "")]


def pods_past_the_door(stage, suffix=""):
    """Have an administrator let in a group with a pod for each tenant and queue."""
    for tenant, name in itertools.product(TENANTS, QUEUES):
        stage.api.create(a_group(tenant, f"{name}{suffix}", name))
        annotations = {"pod-group-name": f"{name}{suffix}"}
        stage.api.create(a_pod(tenant, f"{name}{suffix}", annotations=annotations))


def running(stage, suffix=""):
    """Return which queues each tenant runs pods in, of those that were let in under one suffix."""
    found = {tenant: stage.api.list("v1", "Pod", tenant) for tenant in TENANTS}
    names = {
        tenant: {each["metadata"]["name"] for each in pods if each["status"].get("phase") == "Running"}
        for tenant, pods in found.items()
    }
    return {tenant: {name for name in QUEUES if f"{name}{suffix}" in names[tenant]} for tenant in TENANTS}


def reasons(stage, tenant, name):
    """Return what the conditions of a group give as reasons."""
    found = stage.api.find(a_group(tenant, name, "")) or {}
    conditions = found.get("status", {}).get("schedulingConditions", ())
    return [(one["reason"], one["message"]) for each in conditions for one in each.get("reasons", ())]


def test_what_came_past_the_door_is_held_and_told(stage):
    pods_past_the_door(stage)
    until(lambda: running(stage) == {tenant: set(names) for tenant, names in MAY.items()}, "the allowed ones to run")
    for tenant, name in itertools.product(TENANTS, QUEUES):
        if name in MAY[tenant]:
            continue
        ((code, text),) = until(lambda at=(tenant, name): reasons(stage, *at), f"{tenant}/{name} to be told")
        assert code == "QueueNotAllowed"
        assert f"found {name}, expected a queue that allows namespace {tenant};" in text
        assert not [other for other in TENANTS if other != tenant and other in text.replace(name, "")]
    stage.settle()
    assert running(stage) == {tenant: set(names) for tenant, names in MAY.items()}


def test_a_change_of_permission_is_followed(stage):
    late = "-late"
    pods_past_the_door(stage, late)
    wanted = {tenant: set(names) for tenant, names in MAY.items()}
    until(lambda: running(stage, late) == wanted, "the allowed ones to run")
    stage.api.patch(an_object(QUEUE, "Queue", "closed"), {"metadata": {"annotations": {KEYS["namespaces"]: "blue"}}})
    stage.api.patch(an_object("v1", "Namespace", "green"), {"metadata": {"labels": {"tier": "research"}}})
    wanted = {**wanted, "blue": wanted["blue"] | {"closed"}, "green": wanted["green"] | {"research"}}
    until(lambda: running(stage, late) == wanted, "those to run that are allowed now")
    stage.api.patch(an_object(QUEUE, "Queue", "closed"), {"metadata": {"annotations": {KEYS["namespaces"]: None}}})
    stage.api.patch(an_object("v1", "Namespace", "green"), {"metadata": {"labels": {"tier": None}}})
    stage.settle()
    assert running(stage, late) == wanted  # what runs keeps its place
