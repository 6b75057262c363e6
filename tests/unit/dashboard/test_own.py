"""What a reader who may not see everything is told: figures of what the reader may see, and no name of others."""

import attrs
import pytest

from kai.answers.offline.run import simulate
from kai.dashboard.access import Scope
from kai.dashboard.feed import CycleLine, EndedCycle, Feed
from kai.dashboard.look import History, WholeLook
from kai.dashboard.own import OwnLook
from kai.lab.scenarios.scenario import read_short
from tests.doubles.two_tenants import NODES, OURS, SECRETS, THEIRS, ended_cycle, sliced
from tests.unit.answers.why.test_caps import FOUR, LENT
from tests.unit.answers.why.test_explanation import proof
from tests.unit.answers.why.test_situations import DISKS, MOUNT, QUEUES, TWO, claim
from tests.unit.dashboard.test_server import Rights, asked, dashboard, evicted, read

OWN = Scope(namespaces=frozenset({"default"}), queues=frozenset({"a", "mine"}), nodes=False)
LOCAL = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk-1"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disks",
        "claimRef": {"namespace": "default", "name": "home", "uid": "home"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n9"]}]}
                ]
            }
        },
    },
    "status": {"phase": "Bound"},
}
SETTINGS = {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
NEAR = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "setting", "namespace": "default"}}


# --- Totals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "sentence", "shares"),
    [
        (
            {f"podgroups/{OURS}"},
            "2 of these are allocated to 2 jobs that you may see; of the jobs that you may see 1 runs, 1 waits.",
            "Not shown: it takes the right to get queues.",
        ),
        (
            {f"podgroups/{OURS}", "queues/team-amber"},
            "2 of these are allocated to 1 queue that you may see",
            "team-amber 2",
        ),
        (
            {f"podgroups/{OURS}", "queues/team-amber", "queues/company"},
            "8 of these are allocated to 2 queues that you may see",
            "idle, or used by others 0",
        ),
        (set(), "The cluster has 8 GPUs on 2 nodes. You may see no job and no queue of it.", "get queues"),
        ({"podgroups", "queues", "nodes"}, "8 of 8 GPUs are allocated on 2 nodes; 3 jobs run, 2 wait.", "team-zebra 6"),
    ],
)
def test_totals_count_only_what_the_reader_may_see(rights, sentence, shares):
    text = asked(dashboard(Rights(tenant=rights)), "/", "tenant").body.decode()
    assert sentence in text
    assert shares in text
    if "queues" not in rights:
        assert "another queue" not in text
        assert not [secret for secret in SECRETS if secret in text]


def test_a_reader_without_rights_sees_not_shown():
    board = dashboard(Rights(nobody=set()))
    for path, words in (("/", "Nothing was decided"), ("/jobs", "No job is like this"), ("/waiting", "No job waits")):
        text = asked(board, path, "nobody").body.decode()
        assert "Not shown: it takes the right to list podgroups.scheduling.run.ai." in text
        assert words not in text


def test_without_rights_the_pages_size_reveals_no_queue():
    small, large = (
        asked(dashboard(Rights(nobody=set()), last=ended_cycle(besides=more)), "/", "nobody").body
        for more in ((), queues_of_others())
    )
    assert small == large


def queues_of_others():
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"cpu": free, "memory": free, "gpu": free}}
    kind = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"}
    return [{**kind, "metadata": {"name": f"zebra-{at}"}, "spec": spec} for at in range(30)]


def test_what_others_have_of_a_node_is_one_sum():
    board = dashboard(Rights(tenant={f"podgroups/{OURS}", "nodes"}), ended_cycle(besides=sliced()))
    for path in ("/nodes", "/nodes/basalt-3", "/api/v1/nodes", "/api/v1/nodes/basalt-3"):
        text = asked(board, path, "tenant").body.decode()
        assert not [secret for secret in SECRETS if secret in text]
    note = "What others have of a node is one sum, of another queue."
    assert note in asked(board, "/nodes", "tenant").body.decode()
    assert note not in asked(dashboard(), "/nodes").body.decode()
    (users,) = (each["users"] for each in read(board, "/api/v1/nodes/basalt-3", "tenant")["migSlices"])
    assert [(user["job"], user["count"]) for user in users if user["namespace"] != OURS] == [("another job", 3)]


def test_the_division_of_shares_needs_access_to_all_queues():
    one = dashboard(Rights(tenant={f"podgroups/{OURS}", "queues/team-amber"}))
    told = read(one, "/api/v1/queues/team-amber", "tenant")
    assert [each["name"] for each in told["siblings"]] == ["team-amber"]
    assert (told["total"], told["fairShareSteps"], told["parent"], told["fairShare"]) == (None, [], None, 4.0)
    page = asked(one, "/queues/team-amber", "tenant").body.decode()
    assert "is shown to readers who may get its parent and all queues beside it" in page
    assert "Step by step" not in page
    assert read(one, "/api/v1/queues", "tenant")["items"][0]["parent"] is None


# --- Jobs ------------------------------------------------------------------------------------------------------------


def test_a_foreign_namesake_does_not_show_in_titles():
    twin = [each for each in ended_cycle().outcome.case.objects.pod_groups if each.metadata.name == "quokka"]
    named = attrs.evolve(twin[0], metadata=attrs.evolve(twin[0].metadata, name="ours-waits"))
    case = ended_cycle().outcome.case
    objects = attrs.evolve(case.objects, pod_groups=(*case.objects.pod_groups, named))
    last = EndedCycle(outcome=simulate(attrs.evolve(case, objects=objects)), took=1.0)
    tenant = read(dashboard(Rights(tenant={f"podgroups/{OURS}"}), last), f"/api/v1/jobs/{OURS}/ours-waits", "tenant")
    assert tenant["summary"].startswith("ours-waits waits: ")
    assert read(dashboard(last=last), f"/api/v1/jobs/{OURS}/ours-waits")["summary"].startswith(f"{OURS}/ours-waits ")


def test_no_tenant_learns_how_many_gpus_idle():
    tenant = dashboard(Rights(tenant={f"podgroups/{OURS}", "queues/team-amber"}))
    for path in (f"/jobs/{OURS}/ours-waits", "/waiting", "/jobs", f"/api/v1/jobs/{OURS}/ours-waits", "/api/v1/waiting"):
        text = asked(tenant, path, "tenant").body.decode()
        assert "ours-waits" in text
        assert "idle in all" not in text
        assert "used by" not in text


def test_a_namespaces_history_survives_many_events_of_others():
    feed = Feed()
    line = CycleLine(number=1, time=0.0, took=0.1, phases={"allocate": 0.1}, counts={"started": 7})
    feed.remember(line, [evicted(0, OURS, "ours-runs", "walrus")])
    feed.remember(line, [evicted(0, THEIRS, "quokka", "ours-waits")] * 1000)
    history = History(cycles=tuple(feed.cycles), happenings=tuple(feed.happenings), by_namespace=feed.by_namespace)
    look = OwnLook.of(WholeLook.of(ended_cycle()), Scope(namespaces=frozenset({OURS}), nodes=False))
    own = look.history(history)
    (told,) = own.happenings
    assert (told.job, told.for_job, told.nodes) == ("ours-runs", "another job", ())
    assert [(each.counts, each.phases) for each in own.cycles] == [({}, {})] * 2
    assert len(feed.happenings) == 400


# --- Reasons ---------------------------------------------------------------------------------------------------------


def foreign():
    """Yield a job of another namespace that has the GPUs of all four nodes."""
    metadata = {"namespace": "far", "creationTimestamp": "2026-01-01T11:00:00Z"}
    yield {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {**metadata, "name": "theirs", "uid": "theirs"},
        "spec": {"queue": "other", "minMember": 1},
    }
    for node in FOUR:
        name, annotations = f"theirs-{node}", {"pod-group-name": "theirs"}
        requests = {"nvidia.com/gpu": "4"}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": name, "uid": name, "annotations": annotations},
            "spec": {
                "schedulerName": "kai-scheduler",
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
            },
            "status": {"phase": "Running"},
        }


def told(scope, groups, nodes, queues, objects=(), **more):
    """Return what a reader is told of the last job of the namespace that waits."""
    document = {"about": "x", "cluster": {"nodes": nodes, "objects": list(objects)}, "queues": queues, "groups": groups}
    outcome = simulate(read_short({**document, "run": ["allocate", "reclaim"], **more}, "scope"))
    whole = WholeLook.of(EndedCycle(outcome=outcome, took=1.0))
    look = whole if scope.is_whole else OwnLook.of(whole, scope)
    return look.explain([line for line in look.lines if line.waits][-1])


@pytest.mark.parametrize(("scope", "is_told"), [(Scope(), True), (OWN, False)])
def test_foreign_losses_are_shown_only_to_whole_readers(scope, is_told):
    groups = {"late": {"queue": "mine", "members": 2, "each": {"gpu": 4}}}
    each = told(scope, groups, FOUR, LENT, list(foreign()), parameters={"queue_evicted_gpus_per_cycle": 3})
    assert ("cap" in proof(each)) is is_told
    assert ("other" in str(proof(each))) is is_told


@pytest.mark.parametrize(("scope", "label"), [(Scope(), True), (OWN, False)])
def test_a_volumes_node_is_shown_only_with_node_rights(scope, label):
    objects = (DISKS, claim(volumeName="disk-1"), LOCAL)
    each = told(scope, {"g": {"queue": "a", "each": {"gpu": 1}, "spec": MOUNT}}, TWO, QUEUES, objects)
    assert ("volume" in proof(each)) is label
    assert ("n9" in str([(one.text, one.values) for one in each.evidence])) is label


@pytest.mark.parametrize(("scope", "label"), [(Scope(), True), (OWN, False)])
def test_similar_config_maps_are_shown_only_to_whole_readers(scope, label):
    each = told(scope, {"g": {"queue": "a", "spec": SETTINGS}}, TWO, QUEUES, [NEAR])
    assert ("config map" in proof(each)) is label
    assert "settings" in each.summary


@pytest.mark.parametrize("scope", [Scope(), OWN])
def test_a_gangs_obstacles_name_no_job_or_node(scope):
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
    nodes = {**FOUR, "n9": {"gpu": 4}}
    groups = {"late": {"queue": "mine", "members": 2, "spec": ports}}
    theirs = list(foreign())
    for each in theirs[1:]:
        each["spec"]["containers"][0]["ports"] = ports["containers"][0]["ports"]
    each = told(scope, groups, nodes, LENT, theirs, run=["allocate"])
    assert each.summary == (
        "late waits: its 2 pods must start together, and only 1 fits now: "
        "5 nodes didn't have free ports for the requested pod ports."
    )
    assert ("ports" in proof(each)) is scope.is_whole


def test_unreadable_queues_get_no_suggested_changes():
    look = WholeLook.of(ended_cycle(limit=6))
    line = look.find(THEIRS, "walrus-waits")
    fields = {}
    for queues in ({"team-zebra"}, set()):
        own = OwnLook.of(look, Scope(namespaces=frozenset({THEIRS}), queues=frozenset(queues), nodes=False))
        found = own.explain(own.find(THEIRS, "walrus-waits")).suggestions.changes
        fields[bool(queues)] = [trial.change.field for trial in found]
        assert not [trial for trial in found if trial.losses or {node for _, node in trial.placement} & {*NODES}]
    assert [trial.change.field for trial in look.explain(line).suggestions.changes][:1] == fields[True][:1]
    assert "limit of queue team-zebra" in fields[True]
    assert "limit of queue team-zebra" not in fields[False]
