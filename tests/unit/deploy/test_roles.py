"""The roles of ``deploy`` against the table in ``docs/security.md``, and against what the code reads."""

from importlib.metadata import entry_points

import pytest

from kai.api.cluster_objects import FIELD_OF
from kai.api.kinds import BY_CLASS
from tests.unit.deploy.rendering import DEPLOY, ENTRIES, LASTING, of_kind, render

Right = tuple[str, str, str, str, str]
"""Role, where, group, resource, verb."""

MANIFESTS = [*render(LASTING), *render(DEPLOY)]
READ = {"get", "list", "watch"}
CREATED = {
    # Role, where, what it may bring into being.
    ("scheduler", "cluster", "pods/eviction"),
    ("scheduler", "cluster", "events"),
    ("scheduler", "cluster", "bindrequests"),
    ("binder", "cluster", "pods/binding"),
    ("binder", "cluster", "configmaps"),
    ("binder", "cluster", "events"),
    ("binder", "cluster", "resourceclaims"),
    ("binder", "kai-resource-reservation", "pods"),
    ("podgroup-controller", "cluster", "pods/eviction"),
    ("podgroup-controller", "cluster", "events"),
    ("podgrouper", "cluster", "events"),
    ("podgrouper", "cluster", "podgroups"),
    ("queue-controller", "cluster", "queues"),
    ("node-scale-adjuster", "kai-scale-adjust", "pods"),
    ("leader-election", "kai-scheduler", "leases"),
}


def shipped() -> set[Right]:
    return {
        (role["metadata"]["name"].removeprefix("kai:"), role["metadata"].get("namespace", "cluster"), group, what, verb)
        for kind in ("ClusterRole", "Role")
        for role in of_kind(MANIFESTS, kind)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for what in named(rule)
        for verb in rule["verbs"]
    }


LOOKED_AT = {
    # Role, kinds of which it reads single objects: what it writes, and looks at once more where no answer came. All
    # else it follows.
    "scheduler": {"pods", "nodes", "queues", "podgroups", "bindrequests"},
    "binder": {
        *("pods", "nodes", "persistentvolumes", "persistentvolumeclaims", "configmaps", "storageclasses"),
        *("resourceclaims", "bindrequests"),
    },
    "podgrouper": {"pods", "podgroups", "configmaps"},
    "podgroup-controller": {"podgroups"},
    "queue-controller": {"queues"},
    "node-scale-adjuster": {"pods"},
    "leader-election": {"leases"},
    "reservation": {"pods"},
}


def named(rule) -> list[str]:
    """Return what a rule is about: kinds, or single objects as ``kind (name)``."""
    only = rule.get("resourceNames")
    return [f"{what} ({name})" for what in rule["resources"] for name in only] if only else rule["resources"]


def documented() -> list[Right]:
    text = (DEPLOY.parent / "docs" / "security.md").read_text()
    section = text.split("## Rights", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert rows[0] == ["role", "where", "group", "resources", "verbs", "for"]
    return [
        (role, where, "" if group == "core" else group, what, verb)
        for role, where, group, resources, verbs, reason in rows[2:]
        for what in resources.split(", ")
        for verb in verbs.split(", ")
        if reason
    ]


RIGHTS = shipped()


def test_exactly_the_granted_rights_are_documented():
    listed = documented()
    assert len(listed) == len(set(listed)), "a right is listed twice"
    assert set(listed) == RIGHTS


def test_no_rule_grants_the_same_twice():
    granted = [
        (role["metadata"]["name"], role["metadata"].get("namespace"), group, what, verb)
        for kind in ("ClusterRole", "Role")
        for role in of_kind(MANIFESTS, kind)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for what in named(rule)
        for verb in rule["verbs"]
    ]
    assert len(granted) == len(set(granted))


def test_there_are_no_wildcards():
    assert not [right for right in RIGHTS if "*" in "".join(right)]


def test_bindings_refer_only_to_roles_of_ours():
    bound = {m["roleRef"]["name"] for kind in ("ClusterRoleBinding", "RoleBinding") for m in of_kind(MANIFESTS, kind)}
    assert all(name.startswith("kai:") for name in bound)


def test_roles_are_not_aggregated_from_elsewhere_nor_into_others():
    for role in of_kind(MANIFESTS, "ClusterRole"):
        assert "aggregationRule" not in role
        assert not [label for label in role["metadata"]["labels"] if "aggregate-to" in label]


def test_no_right_leads_to_more_rights():
    verbs = {"escalate", "bind", "impersonate", "deletecollection", "use", "approve", "sign"}
    resources = {
        *("secrets", "serviceaccounts", "serviceaccounts/token", "nodes/proxy", "certificatesigningrequests"),
        *("pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers", "services/proxy"),
        *("roles", "rolebindings", "clusterroles", "clusterrolebindings", "customresourcedefinitions"),
        *("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies"),
    }
    assert not [right for right in RIGHTS if right[3] in resources or right[4] in verbs]


def test_what_can_be_created_is_listed_here_too():
    created = {(role, where, what) for role, where, _, what, verb in RIGHTS if verb == "create"}
    assert created == CREATED


def test_get_rights_are_limited_to_looked_up_kinds():
    own = {"", "scheduling.run.ai", "resource.k8s.io", "storage.k8s.io", "coordination.k8s.io"}
    found: dict[str, set[str]] = {}
    for role, _, group, what, verb in RIGHTS:
        if verb == "get" and group in own:
            found.setdefault(role, set()).add(what)
    found.pop("admission", None)  # its secret and its webhooks are named
    assert found == LOOKED_AT


def test_workloads_are_read_only_except_job_deadlines():
    own = {"", "scheduling.run.ai", "resource.k8s.io", "coordination.k8s.io", "admissionregistration.k8s.io"}
    written = {right for right in RIGHTS if right[2] not in own and right[4] not in READ}
    assert written == {("podgroup-controller", "cluster", "batch", "jobs", "patch")}


def test_the_scheduler_cannot_delete_a_pod():
    assert ("scheduler", "cluster", "", "pods", "delete") not in RIGHTS


@pytest.mark.parametrize("cls", FIELD_OF, ids=lambda cls: cls.__name__)
def test_the_scheduler_may_read_every_snapshot_kind(cls):
    kind = BY_CLASS[cls]
    granted = {
        verb for role, _, group, what, verb in RIGHTS if (role, group, what) == ("scheduler", kind.group, kind.plural)
    }
    assert granted >= READ - {"get"}


def plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


GROUPED = sorted(
    {(pattern.group, pattern.kind) for point in entry_points(group="kai.groupers") for pattern in point.load()().kinds}
)


@pytest.mark.parametrize(("group", "kind"), GROUPED)
def test_the_pod_grouper_reads_every_kind_that_it_groups(group, kind):
    assert ("podgrouper", "cluster", group, plural(kind), "get") in RIGHTS


def test_only_lease_competitors_get_the_lease_right():
    bound = {
        subject["name"]
        for entry in ENTRIES
        for binding in of_kind(render(DEPLOY / entry), "RoleBinding")
        if binding["roleRef"]["name"] == "kai:leader-election"
        for subject in binding["subjects"]
    }
    assert "kai" in bound
    assert "admission" not in bound
