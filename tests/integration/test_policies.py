"""What the shipped admission policies allow and refuse: to a tenant, to kai's own accounts, to an administrator.

The tenant may do everything with pods and with all kinds of ``scheduling.run.ai`` in a namespace, wildcards included.
"""

import itertools
from contextlib import suppress

import attrs
import pytest

from tests.integration.client import Api, Manifest, Refused, until
from tests.integration.controlplane import ControlPlane
from tests.integration.stage import BIND_REQUEST, POD_GROUP, an_object
from tests.unit.deploy.rendering import DEPLOY, of_kind, render

SPACE, LISTED, LIMITED, YIELDING = "tenant", "tenant-listed", "tenant-limited", "tenant-yielding"
QUEUE, GRANTED, GROUP = "kai.scheduler/queue", "kai.scheduler/granted", "runai-gpu-group"
PREEMPTIBILITY, HARD = "kai.scheduler/preemptibility", "non-preemptible"
GPU = "nvidia.com/gpu"
POLICIES = {manifest["metadata"]["name"] for manifest in of_kind(render(DEPLOY), "ValidatingAdmissionPolicy")}
_NUMBERS = itertools.count(1)


@attrs.frozen
class Cluster:
    """The accounts that write."""

    plane: ControlPlane
    tenant: Api
    operator: Api
    binder: Api
    podgrouper: Api
    counter: Api

    @property
    def admin(self) -> Api:
        """The administrator."""
        return self.plane.admin

    def pod(self, *, bound: bool = False, namespace: str = SPACE, **metadata: dict[str, str]) -> Manifest:
        """Have the administrator create a pod of ours, bound if that is asked for."""
        manifest = a_pod(namespace, **metadata)
        if bound:
            manifest["spec"]["nodeName"] = "n1"
        return self.admin.create(manifest)

    def group(self, *, runs: bool, **spec: str) -> Manifest:
        """Have the administrator create a group that runs, or does not."""
        made = self.admin.create(a_group(SPACE, queue="team", **spec))
        allocated = {"resourcesStatus": {"allocated": {GPU: "4"} if runs else {}}}
        return self.admin.patch(made, {"status": allocated}, subresource="status")


def a_pod(namespace: str = SPACE, *, scheduler: str = "kai-scheduler", gpus: int = 0, **body: object) -> Manifest:
    spec = {name: body.pop(name) for name in ("priorityClassName", "nodeName") if name in body}
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "none", "resources": resources}
    spec |= {"schedulerName": scheduler, "containers": [container]}
    return an_object("v1", "Pod", f"p{next(_NUMBERS)}", metadata={"namespace": namespace, **body}, spec=spec)


def a_group(namespace: str = SPACE, **spec: str) -> Manifest:
    return an_object(POD_GROUP, "PodGroup", f"g{next(_NUMBERS)}", metadata={"namespace": namespace}, spec=spec)


def an_order(name: str) -> Manifest:
    spec = {"podName": name, "selectedNode": "n1", "receivedResourceType": "Regular"}
    return an_object(BIND_REQUEST, "BindRequest", name, metadata={"namespace": SPACE}, spec=spec)


@pytest.fixture(scope="module")
def cluster(control_plane):
    """Return the accounts, once all policies are in force."""
    admin = control_plane.admin
    admin.ensure(an_object("v1", "Node", "n1"))
    noted = {"annotations": {"kai.scheduler/priority-classes": "train, build"}}
    yields = {"annotations": {"kai.scheduler/allowed-preemptibility": "preemptible"}}
    for name, metadata in ((SPACE, {}), (LISTED, noted), (LIMITED, {}), (YIELDING, yields)):
        admin.create(an_object("v1", "Namespace", name, metadata=metadata))
    for name in ("tenant", "operator"):
        admin.create(an_object("v1", "ServiceAccount", name, metadata={"namespace": SPACE}))
    pods = {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding"], "verbs": ["*"]}
    ours = {"apiGroups": ["scheduling.run.ai"], "resources": ["*"], "verbs": ["*"]}
    override = {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups"], "verbs": ["override"]}
    for space in (SPACE, LISTED, LIMITED, YIELDING):
        grant(admin, "Role", "tenant", pods, ours, namespace=space)
    grant(admin, "ClusterRole", "operator", pods, {**ours, "verbs": ["get", "create", "update", "patch"]}, override)
    quotas = {"closed": ("In", ["inference"], "0"), "counted": ("In", ["build"], "5")}
    for name, (operator, values, pods_allowed) in quotas.items():
        term = {"scopeName": "PriorityClass", "operator": operator, "values": values}
        spec = {"hard": {"pods": pods_allowed}, "scopeSelector": {"matchExpressions": [term]}}
        quota = an_object("v1", "ResourceQuota", name, metadata={"namespace": LIMITED}, spec=spec)
        made = admin.create(quota)
        admin.patch(made, {"status": {"hard": spec["hard"], "used": {"pods": "0"}}}, subresource="status")
    accounts = {name: control_plane.account(SPACE, name) for name in ("tenant", "operator")}
    ours_too = {
        name: control_plane.account("kai-scheduler", account)
        for name, account in (("binder", "binder"), ("podgrouper", "podgrouper"), ("counter", "podgroup-controller"))
    }
    yield_from = Cluster(control_plane, **accounts, **ours_too)
    until(lambda: is_in_force(yield_from), "the policies to be in force")
    return yield_from


def grant(admin: Api, kind: str, name: str, *rules: Manifest, namespace: str = "") -> None:
    """Give an account of the tenant's namespace rights, in a namespace or everywhere."""
    group = "rbac.authorization.k8s.io"
    metadata = {"namespace": namespace} if namespace else {}
    admin.create(an_object(f"{group}/v1", kind, name, metadata=metadata, rules=list(rules)))
    subject = {"kind": "ServiceAccount", "name": name, "namespace": SPACE}
    reference = {"apiGroup": group, "kind": kind, "name": name}
    binding = an_object(f"{group}/v1", f"{kind}Binding", name, metadata=metadata, roleRef=reference, subjects=[subject])
    admin.create(binding)


def is_in_force(cluster: Cluster) -> bool:
    """Return whether each policy refuses something; the API server reads them a moment after they were written."""
    trials = {
        "kai-bindrequests": an_order("probe"),
        "kai-podgroup-trees": tree(0),
        "kai-gpu-requests": a_pod(annotations={"gpu-fraction": "2"}),
        "kai-grants": a_pod(annotations={GRANTED: "{}"}),
        "kai-priority-classes-of-namespaces": a_group(LISTED, priorityClassName="inference"),
        "kai-priority-classes-of-quotas": a_group(LIMITED, priorityClassName="inference"),
        "kai-preemptibility-of-namespaces": a_group(YIELDING, preemptibility=HARD),
        "kai-priority-classes-of-quotas-for-pods": a_pod(LIMITED, labels={"priorityClassName": "inference"}),
        "kai-preemptibility-of-namespaces-for-pods": a_pod(YIELDING, labels={PREEMPTIBILITY: HARD}),
    }
    for policy, manifest in trials.items():
        try:
            cluster.tenant.create(manifest, dryRun="All")
        except Refused as refusal:
            if policy not in refusal.message:
                raise
        else:
            return False
    return True


def refusal(act, *arguments, **query) -> str:
    with pytest.raises(Refused) as caught:
        act(*arguments, **query)
    assert caught.value.code in {403, 422}
    return str(caught.value.message)


# --- Pods that are bound ------------------------------------------------------------------------------------------

LABELS = (QUEUE, "kai.scheduler/node-pool", "kai.scheduler/subgroup-name", "priorityClassName")
ANNOTATIONS = (
    *("gpu-fraction", "gpu-fraction-num-devices", "gpu-fraction-container-name", "pod-group-name"),
    *("runai/shared-gpu-configmap", "received-resource-type"),
)
KEPT = [*(("labels", key) for key in LABELS), *(("annotations", key) for key in ANNOTATIONS)]
SHARE = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1", "pod-group-name": "g"}


@pytest.fixture(scope="module")
def bound(cluster):
    return cluster.pod(bound=True, labels={QUEUE: "team"}, annotations=SHARE)


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(("part", "key"), KEPT)
def test_a_tenant_cannot_change_a_bound_pods_charge(cluster, bound, part, key, subresource):
    before = bound["metadata"][part].get(key, "")
    value = "0.25" if key == "gpu-fraction" else "2"
    text = refusal(cluster.tenant.patch, bound, {"metadata": {part: {key: value}}}, subresource=subresource)
    found = f'metadata.{part}["{key}"]: found "{value}", expected "{before}", with which the pod was bound'
    assert f'pod "{SPACE}/{bound["metadata"]["name"]}": {found}' in text


@pytest.mark.parametrize(("part", "key"), [("labels", QUEUE), ("annotations", "gpu-fraction")])
def test_a_tenant_cannot_remove_a_bound_pods_charge(cluster, bound, part, key):
    assert 'found ""' in refusal(cluster.tenant.patch, bound, {"metadata": {part: {key: None}}})


def test_a_tenant_may_change_a_bound_pods_other_metadata(cluster, bound):
    changed = {"metadata": {"labels": {"mine": "a"}, "annotations": {"note": "b"}}}
    assert cluster.tenant.patch(bound, changed)["metadata"]["labels"]["mine"] == "a"


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_tenant_cannot_remove_a_bound_pods_whole_metadata(cluster, bound, part):
    assert 'found ""' in refusal(cluster.tenant.patch, bound, {"metadata": {part: None}})


@pytest.mark.parametrize("before", [{}, {"labels": {"mine": "a"}}, {"annotations": {"note": "b"}}])
def test_a_tenant_cannot_add_a_bound_pods_charge(cluster, before):
    pod = cluster.pod(bound=True, **before)
    for part, key in (("labels", PREEMPTIBILITY), ("annotations", "gpu-memory")):
        assert 'found "2", expected ""' in refusal(cluster.tenant.patch, pod, {"metadata": {part: {key: "2"}}})


def test_a_bound_pods_status_needs_no_override_right(cluster, bound):
    running = {"status": {"phase": "Running"}}
    assert cluster.tenant.patch(bound, running, subresource="status")["status"]["phase"] == "Running"


def test_a_tenant_may_change_a_pod_that_waits(cluster):
    waiting = cluster.pod(labels={QUEUE: "team"}, annotations=SHARE)
    changed = {"metadata": {"labels": {QUEUE: "other"}, "annotations": {"gpu-fraction": "0.25"}}}
    assert cluster.tenant.patch(waiting, changed)["metadata"]["labels"][QUEUE] == "other"


def test_pods_of_other_schedulers_are_not_looked_at(cluster):
    theirs = cluster.admin.create(a_pod(scheduler="default-scheduler", nodeName="n1", labels={QUEUE: "team"}))
    changed = {"metadata": {"labels": {QUEUE: "other", GROUP: "x"}, "annotations": {"gpu-fraction": "7"}}}
    assert cluster.tenant.patch(theirs, changed)["metadata"]["labels"][QUEUE] == "other"


@pytest.mark.parametrize("account", ["podgrouper", "operator", "admin"])
def test_kai_and_holders_of_override_change_bound_pods(cluster, account):
    pod = cluster.pod(bound=True, labels={QUEUE: "team"})
    changed = {"metadata": {"labels": {QUEUE: "other"}, "annotations": {"pod-group-name": "h"}}}
    assert getattr(cluster, account).patch(pod, changed)["metadata"]["labels"][QUEUE] == "other"


# --- What only the binder says ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
def test_a_tenant_cannot_say_what_a_pod_was_granted(cluster, scheduler):
    forged = {"annotations": {GRANTED: "{}"}}
    text = f'metadata.annotations["{GRANTED}"]: found a change by system:serviceaccount:{SPACE}:tenant'
    assert text in refusal(cluster.tenant.create, a_pod(scheduler=scheduler, **forged))
    pod = cluster.admin.create(a_pod(scheduler=scheduler))
    assert text in refusal(cluster.tenant.patch, pod, {"metadata": forged})
    granted = cluster.admin.patch(pod, {"metadata": {"annotations": {GRANTED: "{}"}}})
    for subresource in ("", "status"):
        change = {"metadata": {"annotations": {GRANTED: None}}}
        assert text in refusal(cluster.tenant.patch, granted, change, subresource=subresource)
    assert cluster.tenant.patch(granted, {"metadata": {"labels": {"mine": "a"}}})


def test_a_tenant_cannot_say_it_by_a_binding_either(cluster):
    pod = cluster.pod()
    binding = an_object("v1", "Binding", pod["metadata"]["name"], target={"kind": "Node", "name": "n1"})
    binding["metadata"] |= {"namespace": SPACE, "annotations": {GRANTED: "{}"}}
    at = cluster.admin.path(pod, "binding")
    assert "expected values from the binder only" in refusal(cluster.tenant.request, "POST", at, binding)
    cluster.binder.request("POST", at, binding)
    assert cluster.admin.get(pod)["metadata"]["annotations"][GRANTED] == "{}"


@pytest.mark.parametrize("label", [GROUP, f"{GROUP}/a"])
def test_a_tenant_cannot_say_which_gpu_a_pod_shares(cluster, label):
    text = f'metadata.labels["{label}"]: found a change by system:serviceaccount:{SPACE}:tenant'
    assert text in refusal(cluster.tenant.create, a_pod(labels={label: "a"}))
    pod = cluster.pod(labels={label: "a"})
    for value in ("b", None):
        assert text in refusal(cluster.tenant.patch, pod, {"metadata": {"labels": {label: value}}})


@pytest.mark.parametrize("subresource", ["", "status"])
def test_a_tenant_cannot_remove_all_the_binders_metadata(cluster, subresource):
    pod = cluster.pod(labels={GROUP: "a"}, annotations={GRANTED: "{}"})
    for part in ("labels", "annotations"):
        change = {"metadata": {part: None}}
        assert "expected changes by the binder only" in refusal(
            cluster.tenant.patch, pod, change, subresource=subresource
        )
    running = {"status": {"phase": "Running"}}
    assert cluster.tenant.patch(pod, running, subresource="status")["metadata"]["labels"] == {GROUP: "a"}


def test_the_binder_says_both_and_the_pod_grouper_neither(cluster):
    pod = cluster.pod()
    said = {"metadata": {"labels": {GROUP: "a"}, "annotations": {GRANTED: "{}"}}}
    assert "expected changes by the binder only" in refusal(cluster.podgrouper.patch, pod, said)
    assert cluster.binder.patch(pod, said)["metadata"]["annotations"][GRANTED] == "{}"


def test_who_may_move_groups_cannot_forge_grants(cluster):
    forged = {"metadata": {"annotations": {GRANTED: "{}"}}}
    assert "expected changes by the binder only" in refusal(cluster.operator.patch, cluster.pod(), forged)


# --- Pod groups ---------------------------------------------------------------------------------------------------

MOVES = [
    ({"spec": {"queue": "other"}}, 'spec.queue: found "other", expected "team"'),
    ({"spec": {"priorityClassName": "build"}}, 'spec.priorityClassName: found "build", expected "train"'),
    ({"spec": {"preemptibility": "non-preemptible"}}, 'spec.preemptibility: found "non-preemptible", expected ""'),
    (
        {"metadata": {"labels": {"kai.scheduler/node-pool": "b"}}},
        'metadata.labels["kai.scheduler/node-pool"]: found "b"',
    ),
    (
        {"metadata": {"annotations": {"kai.scheduler/last-start-timestamp": "9999-01-01T00:00:00Z"}}},
        'metadata.annotations["kai.scheduler/last-start-timestamp"]: found a change by',
    ),
]


@pytest.mark.parametrize(("change", "text"), MOVES)
def test_a_tenant_cannot_move_a_group_that_runs(cluster, change, text):
    group = cluster.group(runs=True, priorityClassName="train")
    assert f'podgroup "{SPACE}/{group["metadata"]["name"]}": {text}' in refusal(cluster.tenant.patch, group, change)


@pytest.mark.parametrize(("change", "text"), MOVES)
@pytest.mark.parametrize(("account", "runs"), [("tenant", False), ("podgrouper", True), ("operator", True)])
def test_a_waiting_group_may_be_moved_and_kai_always(cluster, account, runs, change, text):
    group = cluster.group(runs=runs, priorityClassName="train")
    assert getattr(cluster, account).patch(group, change)


def test_a_tenant_may_resize_and_delete_a_running_group(cluster):
    group = cluster.group(runs=True)
    assert cluster.tenant.patch(group, {"spec": {"minMember": 2}})["spec"]["minMember"] == 2
    cluster.tenant.delete(group)


def limited(text):
    return {"metadata": {"annotations": {"kai.scheduler/max-runtime": text}}}


@pytest.mark.parametrize("text", ["2h", "61m", "3601s", "1d", "soon", None])
def test_a_tenant_cannot_lengthen_a_running_groups_limit(cluster, text):
    group = cluster.admin.patch(cluster.group(runs=True), limited("1h"))
    assert "expected at most 1h while its pods run" in refusal(cluster.tenant.patch, group, limited(text))
    assert cluster.operator.patch(group, limited(text))


@pytest.mark.parametrize(("runs", "text"), [(True, "59m"), (True, "3600s"), (True, "0.5h"), (False, "2h")])
def test_a_limit_may_be_shortened_or_lengthened_while_waiting(cluster, runs, text):
    group = cluster.tenant.patch(cluster.group(runs=runs), limited("1h"))
    assert cluster.tenant.patch(group, limited(text))


def test_a_tenant_cannot_write_the_status_of_a_group(cluster):
    group = cluster.group(runs=True)
    nothing = {"status": {"resourcesStatus": {"allocated": None}}}
    assert "expected changes by kai only" in refusal(cluster.tenant.patch, group, nothing, subresource="status")
    assert cluster.counter.patch(group, nothing, subresource="status")


# --- Bind requests ------------------------------------------------------------------------------------------------


def test_a_tenant_has_no_part_in_bind_requests(cluster):
    order = an_order("forged")
    by = f'bindrequest "{SPACE}/forged": found %s by system:serviceaccount:{SPACE}:tenant, expected the scheduler'
    assert by % "CREATE" in refusal(cluster.tenant.create, order)
    made = cluster.admin.create(order)
    assert by % "UPDATE" in refusal(cluster.tenant.patch, made, {"spec": {"selectedNode": "n2"}})
    assert by % "UPDATE" in refusal(cluster.tenant.patch, made, {"status": {"phase": "Failed"}}, subresource="status")
    assert by % "DELETE" in refusal(cluster.tenant.delete, made)
    assert "expected the scheduler" in refusal(cluster.operator.patch, made, {"spec": {"selectedNode": "n2"}})


def test_kai_writes_bind_requests(cluster):
    scheduler = cluster.plane.account("kai-scheduler", "scheduler")
    made = scheduler.create(an_order("true"))
    assert cluster.binder.patch(made, {"status": {"phase": "Failed"}}, subresource="status")
    scheduler.delete(made)


def test_the_garbage_collector_deletes_bind_requests(cluster):
    name = "generic-garbage-collector"
    with suppress(Refused):
        cluster.admin.create(an_object("v1", "ServiceAccount", name, metadata={"namespace": "kube-system"}))
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": f"system:controller:{name}"}
    cluster.admin.ensure(
        an_object(f"{group}/v1", "ClusterRoleBinding", f"tests:{name}", roleRef=role, subjects=[subject])
    )
    collector = cluster.plane.account("kube-system", name)
    made = cluster.admin.create(an_order("orphan"))
    until(lambda: collector.get(made), "the right to look")
    collector.delete(made)


# --- Priority classes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("account", ["tenant", "podgrouper", "admin"])
def test_a_namespace_uses_the_classes_that_its_annotation_lists(cluster, account):
    text = f'found "inference", expected one of the classes that namespace {LISTED} may use: train, build'
    api = getattr(cluster, account)
    assert text in refusal(api.create, a_group(LISTED, priorityClassName="inference"), dryRun="All")
    group = api.create(a_group(LISTED, priorityClassName="train"))
    assert text in refusal(api.patch, group, {"spec": {"priorityClassName": "inference"}})
    assert api.patch(group, {"spec": {"priorityClassName": "build"}})


def test_kais_pods_use_only_the_annotated_priority_classes(cluster):
    text = f'priorityClassName: found "inference", expected one of the classes that namespace {LISTED} may use'
    for body in ({"labels": {"priorityClassName": "inference"}}, {"priorityClassName": "inference"}):
        assert text in refusal(cluster.tenant.create, a_pod(LISTED, **body))
        assert cluster.tenant.create(a_pod(LISTED, scheduler="default-scheduler", **body))
    assert cluster.tenant.create(a_pod(LISTED, labels={"priorityClassName": "train"}))
    assert cluster.tenant.create(a_pod(LISTED, priorityClassName="build"))


@pytest.mark.parametrize("account", ["tenant", "podgrouper", "admin"])
def test_a_class_closed_by_quota_is_closed_to_groups(cluster, account):
    api = getattr(cluster, account)
    text = (
        'priorityClassName: found "inference", expected another class: ResourceQuota closed allows no pods of this one'
    )
    assert text in refusal(api.create, a_group(LIMITED, priorityClassName="inference"))
    group = api.create(a_group(LIMITED, priorityClassName="build"))
    assert text in refusal(api.patch, group, {"spec": {"priorityClassName": "inference"}})
    assert api.create(a_group(SPACE, priorityClassName="inference"))


def test_a_class_closed_by_quota_is_closed_to_labels(cluster):
    label = {"labels": {"priorityClassName": "inference"}}
    assert "ResourceQuota closed allows no pods of this one" in refusal(cluster.tenant.create, a_pod(LIMITED, **label))
    pod = cluster.tenant.create(a_pod(LIMITED))
    assert "ResourceQuota closed" in refusal(cluster.tenant.patch, pod, {"metadata": label})
    assert cluster.tenant.create(a_pod(LIMITED, scheduler="default-scheduler", **label))
    assert cluster.tenant.create(a_pod(LIMITED, labels={"priorityClassName": "train"}))


def test_a_label_does_not_evade_a_counting_quota(cluster):
    label = {"labels": {"priorityClassName": "build"}}
    text = "expected the same in spec.priorityClassName: ResourceQuota counted counts the pods of this class"
    assert text in refusal(cluster.tenant.create, a_pod(LIMITED, **label))
    assert cluster.tenant.create(a_pod(LIMITED, priorityClassName="build", **label))


def test_a_later_closed_class_stays_until_named_again(cluster):
    admin, label = cluster.admin, "priorityClassName"
    space = admin.create(an_object("v1", "Namespace", "tenant-later"))
    pod = admin.create(a_pod("tenant-later", labels={label: "inference"}))
    group = admin.create(a_group("tenant-later", priorityClassName="inference"))
    admin.patch(space, {"metadata": {"annotations": {"kai.scheduler/priority-classes": "train"}}})
    other = a_pod("tenant-later", labels={label: "inference"})
    until(lambda: "may use: train" in refusal_or_none(admin.create, other), "the annotation to be known")
    for there in (pod, group):
        assert admin.patch(there, {"metadata": {"labels": {"mine": "a"}}})
    assert label not in admin.patch(pod, {"metadata": {"labels": {label: None}}})["metadata"]["labels"]
    assert "may use: train" in refusal(admin.patch, pod, {"metadata": {"labels": {label: "inference"}}})
    assert "priorityClassName" not in admin.patch(group, {"spec": {"priorityClassName": None}})["spec"]
    assert "may use: train" in refusal(admin.patch, group, {"spec": {"priorityClassName": "inference"}})


# --- Preemptibility -----------------------------------------------------------------------------------------------


def test_a_yielding_namespace_has_no_non_preemptible_jobs(cluster):
    text = f'preemptibility: found "{HARD}", expected what namespace {YIELDING} may use: preemptible'
    for api in (cluster.tenant, cluster.podgrouper, cluster.admin):
        assert text in refusal(api.create, a_group(YIELDING, preemptibility=HARD))
    for api in (cluster.tenant, cluster.admin):
        assert text in refusal(api.create, a_pod(YIELDING, labels={PREEMPTIBILITY: HARD}))
    group = cluster.tenant.create(a_group(YIELDING, preemptibility="preemptible"))
    assert text in refusal(cluster.tenant.patch, group, {"spec": {"preemptibility": HARD}})
    for labels in ({}, {"mine": "a"}, {PREEMPTIBILITY: "preemptible"}):
        pod = cluster.tenant.create(a_pod(YIELDING, labels=labels))
        assert text in refusal(cluster.tenant.patch, pod, {"metadata": {"labels": {PREEMPTIBILITY: HARD}}})
        assert cluster.tenant.patch(pod, {"metadata": {"labels": None}})
    assert cluster.tenant.create(a_pod(YIELDING, scheduler="default-scheduler", labels={PREEMPTIBILITY: HARD}))
    assert cluster.tenant.create(a_pod(SPACE, labels={PREEMPTIBILITY: HARD}))


# --- What a pod asks of GPUs --------------------------------------------------------------------------------------

UNUSABLE = [
    *(({"gpu-fraction": text}, "expected a number from 0.01 to 1") for text in ("nan", "1.5", " 0.5", "٣", "-0.5")),
    *(
        ({"gpu-fraction": text}, "expected a number from 0.01 to 1")
        for text in ("abc", "0", "", "1e-9", "0.004", "0x1")
    ),
    *(({"gpu-memory": text}, "expected a positive number of MiB") for text in ("-5", "0", "1.5", "x", "4Gi")),
    ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, "expected a positive number of GPUs"),
    ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "two"}, "expected a positive number of GPUs"),
    ({"gpu-fraction-num-devices": "2"}, "expected gpu-fraction or gpu-memory beside it"),
    ({"gpu-fraction": "0.5", "gpu-memory": "5"}, "expected one of the two"),
]


@pytest.mark.parametrize(("annotations", "text"), UNUSABLE)
def test_a_share_that_no_gpu_can_give_is_refused(cluster, annotations, text):
    for api in (cluster.tenant, cluster.admin):
        assert text in refusal(api.create, a_pod(annotations=annotations))
    assert cluster.tenant.create(a_pod(scheduler="default-scheduler", annotations=annotations))


def test_a_waiting_pod_cannot_change_to_an_invalid_share(cluster):
    pod = cluster.pod(annotations={"gpu-fraction": "0.5"})
    assert "from 0.01 to 1" in refusal(
        cluster.tenant.patch, pod, {"metadata": {"annotations": {"gpu-fraction": "nan"}}}
    )


def test_whole_gpus_and_a_part_exclude_each_other(cluster):
    assert "expected one of the two" in refusal(
        cluster.tenant.create, a_pod(annotations={"gpu-fraction": "0.5"}, gpus=1)
    )
    assert cluster.tenant.create(a_pod(gpus=1))


@pytest.mark.parametrize("fraction", ["0.01", "0.5", ".5", "1", "1.0", "5e-1"])
def test_shares_that_a_gpu_can_give_pass(cluster, fraction):
    assert cluster.tenant.create(a_pod(annotations={"gpu-fraction": fraction, "gpu-fraction-num-devices": "2"}))
    assert cluster.tenant.create(a_pod(annotations={"gpu-memory": "4096"}))


# --- Trees of sub-groups ------------------------------------------------------------------------------------------


def tree(*parents: int | None, bare: int = 0) -> Manifest:
    """Return a group of sub-groups s0, s1, … below those of these numbers, None being the group, and of bare ones."""
    above = [{} if parent is None else {"parent": f"s{parent}"} for parent in parents]
    parts = [{"name": f"s{at}"} | part for at, part in enumerate(above)]
    parts += [{"name": f"bare{at}", "minMember": 1} for at in range(bare)]
    metadata = {"namespace": SPACE, "finalizers": ["tests.example/kept"]}
    return an_object(POD_GROUP, "PodGroup", f"g{next(_NUMBERS)}", metadata=metadata, spec={"subGroups": parts})


CHAIN = (None, *range(15))
DEEP = 'spec.subGroups: found "s16" more than 16 deep, expected sub-groups nested at most 16 deep'


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (tree(*CHAIN, 15), DEEP),
        (tree(None, *range(499)), DEEP),
        (tree(*CHAIN, 15, bare=783), DEEP),
        (tree(None, 2, 1), 'found parent "s2" of "s1", expected a sub-group that is not among its own parents'),
        (tree(0), 'found parent "s0" of "s0"'),
        (tree(None, 7), 'found parent "s7" of "s1"'),
    ],
    ids=["17 deep", "500 deep", "17 deep of 800", "a circle", "its own parent", "an unknown parent"],
)
def test_an_invalid_tree_is_refused_by_the_api_server(cluster, group, said):
    refused = refusal(cluster.tenant.create, group)
    assert said in refused
    assert f'podgroup "{SPACE}/{group["metadata"]["name"]}"' in refused


def test_names_that_stand_twice_in_a_tree_are_refused(cluster):
    group = tree(None, 0, bare=598)
    group["spec"]["subGroups"][-1]["name"] = "bare0"
    assert 'found "bare0" twice, expected distinct names' in refusal(cluster.tenant.create, group)


@pytest.mark.parametrize(
    "group",
    [
        tree(*CHAIN),
        tree(*[None] * 160, *[at % 160 for at in range(640)]),
        tree(*[None] * 400, *range(400)),
        tree(None, *[0] * 799),
        tree(*[None] * 800, *[at % 800 for at in range(3296)]),
        tree(*[None] * 4096),
    ],
    ids=["16 deep", "800 in segments", "800 in pairs", "800 below one", "4,096 in segments", "4,096 beside each other"],
)
def test_a_tree_of_any_allowed_size_is_let_in(cluster, group):
    assert cluster.tenant.create(group)


def test_an_existing_invalid_tree_may_change_otherwise(cluster):
    admin, deep = cluster.admin, tree(*CHAIN, 15)
    kind = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "kai-podgroup-trees")
    binding = admin.get(an_object(*kind))
    admin.delete(binding)

    def written() -> Manifest | None:
        with suppress(Refused):
            return cluster.tenant.create(deep)
        return None

    group = until(written, "the policy to be off")
    admin.create(an_object(*kind, spec=binding["spec"]))
    until(lambda: DEEP in refusal_or_none(cluster.tenant.create, tree(*CHAIN, 15)), "the policy to be on")
    changed = cluster.tenant.patch(group, {"metadata": {"labels": {"a": "b"}, "finalizers": []}})
    assert changed["metadata"]["labels"] == {"a": "b"}
    wider = {"spec": {"subGroups": [*deep["spec"]["subGroups"], {"name": "more"}]}}
    assert DEEP in refusal(cluster.tenant.patch, group, wider)
    cluster.tenant.delete(group)


def refusal_or_none(act, *arguments) -> str:
    """Return with which words an act was refused, "" if it was not."""
    try:
        act(*arguments)
    except Refused as refused:
        return str(refused)
    return ""


# --- The policies themselves --------------------------------------------------------------------------------------


def test_every_policy_is_there_and_bound(cluster):
    admin, group = cluster.admin, "admissionregistration.k8s.io/v1"
    assert {each["metadata"]["name"] for each in admin.list(group, "ValidatingAdmissionPolicy")} >= POLICIES
    bound = {each["spec"]["policyName"] for each in admin.list(group, "ValidatingAdmissionPolicyBinding")}
    assert bound >= POLICIES
