"""The control plane that the other integration tests stand on, and what `deploy` ships, on it."""

import copy
import re
import shutil
import subprocess

import pytest

from kai.api.crds.definitions import PRESENTATIONS
from kai.api.kinds import BY_CLASS, KINDS
from kai.api.kubernetes.dra import DeviceTaintRule
from kai.api.kubernetes.node import NodeResourceTopology
from kai.cluster.transport.encoding import collection
from kai.roles.binder.reservation import reservation_pod
from kai.roles.binder.sharers import ReservationSettings
from kai.roles.controllers.queue_service import first_queues
from tests.integration import programs
from tests.integration.client import AS_TABLE, Api, Refused, until
from tests.integration.controlplane import SWITCHED_ON, ControlPlane
from tests.integration.installation import container_argument
from tests.unit.api import manifests as complete
from tests.unit.deploy.rendering import DEPLOY, ENTRIES, LASTING, of_kind, render
from tests.unit.deploy.test_roles import RIGHTS

PAGE = DEPLOY.parent / "docs" / "kubernetes.md"
UNKNOWN = "\N{EN DASH}"
TOLD = SWITCHED_ON.get(programs.minor(), ())
KUBECTL = shutil.which("kubectl")
# What the API server writes itself, or takes as a precondition.
SERVER_S = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "ownerReferences")
GROUPS = {BY_CLASS[cls].group for cls in PRESENTATIONS}
ACCOUNTS = sorted(
    account["metadata"]["name"]
    for account in of_kind(render(DEPLOY / "overlays" / "split"), "ServiceAccount")
    if account["metadata"]["namespace"] == "kai-scheduler"
)


def manifest_of(cls):
    """Return a complete manifest of a kind as somebody would create it."""
    kind = BY_CLASS[cls]
    known = [value for value in vars(complete).values() if isinstance(value, dict)]
    (found,) = [each for each in known if (each.get("apiVersion"), each.get("kind")) == (kind.api_version, kind.kind)]
    manifest = copy.deepcopy(found)
    for name in (*SERVER_S, "finalizers"):
        manifest["metadata"].pop(name, None)
    if kind.kind == "PodGroup":
        # It shows every field there is; two of them exclude each other.
        del manifest["spec"]["minSubGroup"]
        for sub_group in manifest["spec"]["subGroups"]:
            sub_group.pop("minSubGroup", None)
    return manifest


def queue(name, **spec):
    shares = {part: {"quota": 1, "limit": -1, "overQuotaWeight": 1} for part in ("gpu", "cpu", "memory")}
    metadata = {"name": name}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": metadata,
        "spec": {"resources": shares, **spec},
    }


def pod_group(name, **spec):
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queue": "default-queue", **spec},
    }


def topology(name, *levels):
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [dict(level) if isinstance(level, dict) else {"nodeLabel": level} for level in levels]},
    }


def pod(name, namespace="default"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none"}]},
    }


def bind_request(name, **metadata):
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"podName": name, "selectedNode": "n1", "receivedResourceType": "Regular"},
    }


def refusal(act, *arguments, **options):
    """Return how the API server refuses something."""
    with pytest.raises(Refused) as caught:
        act(*arguments, **options)
    return caught.value


def missing_from(found, expected, path=""):
    """Name what of `expected` is not found, or is not the same."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            name
            for key, value in expected.items()
            for name in missing_from(found.get(key), value, f"{path}.{key}" if path else key)
        ]
    return [] if found == expected else [path]


# --- The control plane itself ------------------------------------------------------------------------------------


def test_the_server_is_the_release_that_go_mod_names(bare_control_plane):
    assert bare_control_plane.admin.request("GET", "/version")["gitVersion"] == programs.kubernetes_version()


def test_nobody_without_rights_gets_anything(bare_control_plane):
    plane = bare_control_plane
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    plane.admin.ensure(account)
    assert refusal(plane.account("default", "nobody").list, "v1", "Pod").code == 403
    assert refusal(Api(plane.url, plane.admin.ca_file, "forged").list, "v1", "Pod").code == 401


def test_the_audit_log_names_user_decision_and_role(control_plane):
    scheduler = control_plane.account("kai-scheduler", "scheduler")
    scheduler.list("v1", "Node")
    refusal(scheduler.list, "v1", "Secret")
    user = "system:serviceaccount:kai-scheduler:scheduler"

    def seen():
        return {event["objectRef"]["resource"]: event for event in control_plane.audited(user) if "objectRef" in event}

    until(lambda: {"nodes", "secrets"} <= seen().keys(), "the audit log")
    assert "kai:scheduler" in seen()["nodes"]["annotations"]["authorization.k8s.io/reason"]
    assert seen()["secrets"]["annotations"]["authorization.k8s.io/decision"] == "forbid"


def test_objects_and_tokens_outlive_a_restart(control_plane):
    scheduler = control_plane.account("kai-scheduler", "scheduler")
    control_plane.admin.ensure(queue("kept"))
    control_plane.restart_apiserver(kill=True)
    assert "kept" in {each["metadata"]["name"] for each in scheduler.list("scheduling.run.ai/v2", "Queue")}


# --- The kinds ---------------------------------------------------------------------------------------------------


def test_definitions_are_established_and_structural(control_plane):
    definitions = control_plane.admin.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    conditions = {
        each["metadata"]["name"]: {c["type"]: c["status"] for c in each["status"]["conditions"]} for each in definitions
    }
    names = {f"{BY_CLASS[cls].plural}.{BY_CLASS[cls].group}" for cls in PRESENTATIONS}
    ours = {name: each for name, each in conditions.items() if name.partition(".")[2] in GROUPS}
    assert ours == {name: {"NamesAccepted": "True", "Established": "True"} for name in names}


@pytest.mark.parametrize("cls", PRESENTATIONS, ids=lambda cls: cls.__name__)
def test_nothing_of_a_complete_object_is_lost(control_plane, cls):
    admin, manifest = control_plane.admin, manifest_of(cls)
    admin.delete(manifest)
    stored = admin.create(manifest, fieldValidation="Strict")
    if "status" in manifest:
        stored = admin.replace({**stored, "status": manifest["status"]}, subresource="status")
    assert not missing_from(stored, manifest)
    table = admin.request("GET", admin.path(manifest), accept=AS_TABLE)
    (row,) = table["rows"]
    shown = dict(zip((column["name"] for column in table["columnDefinitions"]), row["cells"], strict=True))
    assert shown["Name"] == manifest["metadata"]["name"]
    assert not [name for name, cell in shown.items() if cell is None], "a column that a complete object leaves empty"
    admin.delete(manifest)


@pytest.mark.parametrize(
    "cls",
    # There is no definition of node resource topologies here, and rules that taint devices are served from Kubernetes
    # 1.37 on (test_taint_rules.py has a server that does). Claims of persistent volumes come in templates too.
    [kind.cls for kind in KINDS if kind.cls not in {NodeResourceTopology, DeviceTaintRule}],
    ids=lambda cls: cls.__name__,
)
def test_every_known_kind_is_served_under_its_plural(control_plane, cls):
    kind = BY_CLASS[cls]
    assert control_plane.admin.collection(kind.api_version, kind.kind) == collection(kind.api_version, kind.plural)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minMember": 1, "minSubGroup": 1}, "exclude each other"),
        ({"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]}, "exclude each other"),
        ({"minMember": -1}, "greater than or equal to 0"),
        ({"subGroups": [{"name": "A"}]}, "should match"),
        ({"subGroups": [{"minMember": 1}]}, "Required value"),
        ({"preemptibility": "sometimes"}, "Unsupported value"),
        ({"preemptionDelay": "soon"}, "should match"),
        ({"queue": "q" * 254}, "Too long"),
        ({"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "l" * 317}}, "Too long"),
        ({"subGroups": [{"name": "a" * 254}]}, "Too long"),
    ],
)
def test_a_pod_group_that_contradicts_itself_is_refused(control_plane, spec, words):
    assert words in refusal(control_plane.admin.create, pod_group("wrong", **spec), dryRun="All").message


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"minMember": 0},
        {"minMember": None, "minSubGroup": 2, "subGroups": [{"name": "a", "minMember": 1}, {"name": "b"}]},
        {"subGroups": [{"name": "a", "minSubGroup": 1}, {"name": "b", "parent": "a", "minMember": 0}]},
        {"stalenessGracePeriod": "-1s", "schedulingBackoff": -1, "preemptibility": "non-preemptible"},
        {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}},
    ],
)
def test_a_pod_group_that_means_something_is_accepted(control_plane, spec):
    control_plane.admin.create(pod_group("right", **spec), dryRun="All", fieldValidation="Strict")


def test_a_thousand_sub_groups_stay_within_the_rules_cost(control_plane):
    sub_groups = [{"name": f"part-{index}", "minMember": 1} for index in range(1000)]
    control_plane.admin.create(pod_group("large", subGroups=sub_groups), dryRun="All")


@pytest.mark.parametrize("quota", [-5, -0.5, "1", True])
def test_a_quota_that_is_no_share_is_refused(control_plane, quota):
    wrong = queue("wrong", resources={"gpu": {"quota": quota}})
    assert "spec.resources.gpu.quota" in refusal(control_plane.admin.create, wrong, dryRun="All").message


@pytest.mark.parametrize("quota", [-1, 0, 0.5, 8, 1e12])
def test_a_quota_that_is_a_share_is_accepted(control_plane, quota):
    control_plane.admin.create(queue("right", resources={"gpu": {"quota": quota, "limit": quota}}), dryRun="All")


def test_a_queue_without_resources_is_accepted(control_plane):
    control_plane.admin.create({**queue("bare"), "spec": {"parentQueue": "nowhere"}}, dryRun="All")


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ((), "at least 1 item"),
        (("zone", "zone"), "one level only"),
        (("kubernetes.io/hostname", "rack"), "last level"),
        (({"nodeLabel": "zone", "alias": "a"}, {"nodeLabel": "rack", "alias": "a"}), "one level only"),
        (({"nodeLabel": "zone", "alias": "rack"}, "rack"), "cannot be the node label"),
        (("not a label",), "should match"),
        (tuple(f"level-{index}" for index in range(17)), "at most 16"),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(control_plane, levels, words):
    refused = refusal(control_plane.admin.create, topology("wrong", *levels), dryRun="All")
    assert words in refused.message


def test_labels_of_a_topology_stay_and_aliases_may_change(control_plane):
    admin = control_plane.admin
    first = topology("rows", "zone", {"nodeLabel": "rack", "alias": "r"}, "kubernetes.io/hostname")
    admin.delete(first)
    admin.create(first)
    admin.apply(topology("rows", "zone", {"nodeLabel": "rack", "alias": "row"}, "kubernetes.io/hostname"))
    changed = topology("rows", "zone", "row", "kubernetes.io/hostname")
    assert "cannot be changed" in refusal(admin.apply, changed).message
    admin.delete(first)


def test_a_shard_keeps_plugin_settings_and_refuses_bad_ratios(control_plane):
    shard = {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "default"},
        "spec": {"plugins": {"numa": {"enabled": True, "arguments": {"policy": "single"}}}, "goMemLimitRatio": 1},
    }
    stored = control_plane.admin.create(shard, dryRun="All", fieldValidation="Strict")
    assert not missing_from(stored, shard)
    shard["spec"]["goMemLimitRatio"] = 0
    assert "goMemLimitRatio" in refusal(control_plane.admin.create, shard, dryRun="All").message


def test_a_group_shows_why_it_waits(control_plane):
    admin, group = control_plane.admin, pod_group("waits")
    admin.delete(group)
    admin.create(group)
    condition = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True"}
    reasons = [[{"reason": "PodSchedulingErrors", "message": "old"}], [{"reason": "OverLimit", "message": "new"}]]
    status = {"schedulingConditions": [{**condition, "reasons": each} for each in reasons]}
    admin.patch(group, {"status": status}, subresource="status")
    table = admin.request("GET", admin.path(group), accept=AS_TABLE)
    shown = dict(zip((c["name"] for c in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    assert (shown["Unschedulable"], shown["Message"]) == ("OverLimit", "new")
    admin.delete(group)


# --- Rights ------------------------------------------------------------------------------------------------------

ALWAYS_FORBIDDEN = [
    ("get", "", "secrets", ""),
    ("list", "", "secrets", ""),
    ("create", "", "secrets", ""),
    ("create", "", "serviceaccounts", "token"),
    ("impersonate", "", "users", ""),
    ("impersonate", "", "serviceaccounts", ""),
    ("create", "", "pods", ""),
    ("create", "", "pods", "exec"),
    ("create", "", "pods", "attach"),
    ("create", "", "pods", "portforward"),
    ("patch", "", "pods", "ephemeralcontainers"),
    ("create", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("get", "", "nodes", "proxy"),
    ("delete", "", "namespaces", ""),
    ("deletecollection", "", "pods", ""),
    ("create", "apps", "deployments", ""),
    ("patch", "apps", "deployments", ""),
    ("create", "batch", "jobs", ""),
    ("create", "apps", "daemonsets", ""),
    ("patch", "scheduling.run.ai", "queues", ""),
    ("delete", "scheduling.run.ai", "queues", ""),
    ("patch", "kai.scheduler", "configs", ""),
    ("patch", "kai.scheduler", "schedulingshards", ""),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
    ("approve", "certificates.k8s.io", "signers", ""),
]


def may(api, verb, group, resource, subresource="", namespace="default", name=""):
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "namespace": namespace}},
    }
    return api.create(review)["status"]["allowed"]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_may_do_what_its_role_says(control_plane, account):
    api = control_plane.account("kai-scheduler", account)
    elects = set() if account == "admission" else {"leader-election"}
    rights = [right for right in RIGHTS if right[0] in {account, *elects}]
    assert rights
    assert may(api, "update", "coordination.k8s.io", "leases", namespace="kai-scheduler") == bool(elects)
    for _, where, group, what, verb in rights:
        kind, _, only = what.partition(" ")  # as in "secrets (kai-webhooks)"
        resource, _, subresource = kind.partition("/")
        namespace, name = "default" if where == "cluster" else where, only.strip("()")
        assert may(api, verb, group, resource, subresource, namespace, name), (where, group, what, verb)
        if name:
            assert not may(api, verb, group, resource, subresource, namespace, "another")
        if where != "cluster":
            elsewhere = ("cluster", group, what, verb) in {right[1:] for right in rights}
            assert may(api, verb, group, resource, subresource, "default", name) == elsewhere


@pytest.mark.parametrize("account", ACCOUNTS)
def test_what_nobody_needs_stays_forbidden(control_plane, account):
    api = control_plane.account("kai-scheduler", account)
    allowed = [attributes for attributes in ALWAYS_FORBIDDEN if may(api, *attributes)]
    assert not allowed


def test_roles_rights_suffice_from_creation_to_binding(control_plane):
    admin = control_plane.admin
    as_role = {role: control_plane.account("kai-scheduler", role) for role in ACCOUNTS}
    for manifest in (pod("walk"), pod_group("walk"), bind_request("walk")):
        admin.delete(manifest, gracePeriodSeconds=0)
    admin.ensure({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    for manifest in first_queues([]):
        admin.delete(manifest)
        as_role["queue-controller"].create(manifest)
    made = admin.create(pod("walk"))

    as_role["podgrouper"].apply(pod_group("walk", minMember=1))
    as_role["podgrouper"].patch(made, {"metadata": {"annotations": {"pod-group-name": "walk"}}})

    owner = {"apiVersion": "v1", "kind": "Pod", "name": "walk", "uid": made["metadata"]["uid"]}
    request = as_role["scheduler"].create(bind_request("walk", ownerReferences=[owner]))
    as_role["scheduler"].patch(pod_group("walk"), {"metadata": {"annotations": {"kai.scheduler/x": "y"}}})
    as_role["scheduler"].patch(pod_group("walk"), {"status": {"schedulingConditions": []}}, subresource="status")
    fair = {"status": {"fairShare": {"nvidia.com/gpu": "4"}}}
    as_role["scheduler"].patch(queue("default-queue"), fair, subresource="status")

    binder = as_role["binder"]
    current = admin.get(made)["metadata"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "walk", "uid": current["uid"], "resourceVersion": current["resourceVersion"]},
        "target": {"kind": "Node", "name": "n1"},
    }
    binder.request("POST", binder.path(made, "binding"), binding)
    binder.patch(request, {"status": {"phase": "Succeeded"}}, subresource="status")

    used = {"nvidia.com/gpu": "0"}
    resources = {"status": {"resourcesStatus": {"allocated": used}}}
    as_role["podgroup-controller"].patch(pod_group("walk"), resources, subresource="status")
    as_role["queue-controller"].patch(queue("default-queue"), {"status": {"allocated": used}}, subresource="status")

    assert admin.get(made)["spec"]["nodeName"] == "n1"
    assert admin.get(queue("default-queue"))["status"] == {"allocated": used, **fair["status"]}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "walk", "namespace": "default"}}
    as_role["scheduler"].request("POST", as_role["scheduler"].path(made, "eviction"), eviction)
    assert refusal(as_role["scheduler"].delete, made).code == 403
    admin.delete(made, gracePeriodSeconds=0)


# --- Pods --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES)
def test_our_pods_are_admitted_without_a_warning(control_plane, entry):
    admin = control_plane.admin
    for deployment in of_kind(render(DEPLOY / entry), "Deployment"):
        template = deployment["spec"]["template"]
        metadata = {**template["metadata"], "generateName": "test-", "namespace": "kai-scheduler"}
        del admin.warnings[:]
        admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, dryRun="All")
        assert not admin.warnings


def test_a_reservation_pod_is_admitted_only_in_its_namespace(control_plane):
    settings = ReservationSettings(
        image="kai",
        pod_security_context=container_argument("--resource-reservation-pod-security-context"),
        container_security_context=container_argument("--resource-reservation-container-security-context"),
    )
    binder = control_plane.account("kai-scheduler", "binder")
    manifest = reservation_pod(settings, node="n1", group="g")
    binder.create(manifest, dryRun="All")
    assert not binder.warnings
    assert refusal(binder.create, pod("intruder"), dryRun="All").code == 403
    bare = reservation_pod(ReservationSettings(image="kai"), node="n1", group="g")
    assert "violates PodSecurity" in refusal(binder.create, bare, dryRun="All").message


# --- Versions ------------------------------------------------------------------------------------------------------


def test_the_versions_page_lists_the_servers_feature_gates(bare_control_plane):
    metrics = bare_control_plane.admin.request("GET", "/metrics")
    has = dict(re.findall(r'^kubernetes_feature_enabled\{name="(\w+)".*\} ([01])$', metrics, re.MULTILINE))
    table = next(block for block in PAGE.read_text().split("\n\n") if block.startswith("|"))
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    column = rows[0].index(programs.minor())
    said = {row[1]: row[column] for row in rows[2:]}
    named = {"1": "on", "0": "off"}
    assert {gate: named.get(has.get(gate, ""), UNKNOWN) for gate in said} == {**said, **dict.fromkeys(TOLD, "on")}
    assert all(said[gate] == "off" for gate in TOLD)


# --- The whole ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(KUBECTL is None, reason="kubectl, which the documentation tells people to use, is not installed")
def test_documented_commands_install_and_remove_kai_keeping_queues(bare_control_plane, tmp_path):
    found = programs.find()
    assert found is not None
    plane = ControlPlane.start(found, tmp_path)  # the shared one has everything already
    try:
        config = plane.kubeconfig(plane.admin, "admin")

        def kubectl(verb, folder):
            command = [KUBECTL, f"--kubeconfig={config}", verb, "-k", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            # On a busy machine kubectl says that it waits for itself; that is no complaint about what we wrote.
            complaints = [line for line in done.stderr.splitlines() if "due to client-side throttling" not in line]
            assert (done.returncode, complaints) == (0, [])
            return done.stdout

        kubectl("apply", LASTING)
        assert "deployment.apps/kai created" in kubectl("apply", DEPLOY)
        definitions = plane.admin.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        plane.define_all(of_kind(render(LASTING), "CustomResourceDefinition"))
        queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "research"}, "spec": {}}
        plane.admin.create(queue)
        kubectl("delete", DEPLOY)
        assert not plane.admin.list("apps/v1", "Deployment")
        assert len(plane.admin.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")) == len(definitions)
        assert plane.admin.get(queue)
        assert "deployment.apps/kai created" in kubectl("apply", DEPLOY)
    finally:
        plane.stop()
