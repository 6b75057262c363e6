"""Each check says nothing of a healthy cluster, and names what is wrong with a spoilt one."""

import attrs
import pytest

from kai.api.kinds import BY_CLASS
from kai.cli.running.roleflags import LEASES, ROLES, TOGETHER
from kai.doctor import seen as seeing
from kai.doctor.checks import CHECKS
from kai.doctor.doors import POLICIES
from kai.doctor.findings import Severity, run_check
from kai.doctor.rights import TABLE, rights_of, rights_of_readers
from kai.doctor.seen import Seen
from tests.unit.deploy.rendering import DEPLOY, LASTING, of_kind, render
from tests.unit.deploy.test_roles import RIGHTS
from tests.unit.doctor.cluster import (
    HEALTHY,
    NOW,
    binding,
    definition,
    deployment,
    group,
    kai_pod,
    lease,
    noted,
    obj,
    pod,
    queue,
    right,
    slice_of,
    webhook,
    with_lists,
)

BY_CODE = {check.code: check for check in CHECKS}
FLAGS = ("--leader-elect=true",)
UNREADY = {**kai_pod(), "status": {"phase": "Running"}}
REPLICAS = {"properties": {"spec": {"properties": {"scheduler": {"properties": {"replicas": {"type": "integer"}}}}}}}
THEIRS = deployment("kai-scheduler-default", "ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17")
GPU_NODE = obj("gpu-9", status={"allocatable": {"nvidia.com/gpu": "8"}})
GOING = queue("going")
GOING["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.example/b"]}
ALLOWED = "kai.scheduler/allowed-namespaces"
MEMORY = pod("m-0", annotations={"gpu-memory": "1000", "pod-group-name": "m"})


def taken_over(*beside, **changes):
    """Return a Deployment of kai that was applied to one that KAI-Scheduler's operator had made."""
    found = deployment("kai-scheduler-default", "kai:0.1.0")
    owner = {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "name": "default", **changes}
    found["metadata"] |= {"labels": {"app.kubernetes.io/part-of": "kai"}, "ownerReferences": [owner]}
    found["spec"]["template"]["spec"]["containers"] = [{"name": name} for name in ("kai", *beside)]
    return found


def evolve(**changes):
    return attrs.evolve(HEALTHY, **changes)


@pytest.mark.parametrize("code", BY_CODE)
def test_a_healthy_cluster_is_well(code):
    verdict = run_check(BY_CODE[code], HEALTHY)
    assert [each.message for each in verdict.findings] == []
    assert verdict.severity is Severity.OK
    assert len(verdict.message) > 8


SPOILT = {
    "an old API server": (
        "D001",
        evolve(version={"gitVersion": "v1.27.3", "major": "1", "minor": "27"}),
        "fail",
        "v1.27.3 is older than 1.30",
    ),
    "own rights": ("D002", evolve(missing={"": (right("list", "nodes"),)}), "warn", "this account may not list nodes"),
    "own rights that are not known": (
        "D002",
        evolve(asked={}, unread={"reviews": "HTTP status 500"}),
        "warn",
        "what this account may read is not known: HTTP status 500",
    ),
    "no kind": (
        "D003",
        with_lists(crds=HEALTHY.lists["crds"][1:]),
        "fail",
        "kind queues.scheduling.run.ai is not defined",
    ),
    "an old kind": (
        "D003",
        with_lists(crds=(definition("queues.scheduling.run.ai", "v1"), *HEALTHY.lists["crds"][1:])),
        "fail",
        "kind queues.scheduling.run.ai is served as v1, kai needs v2",
    ),
    "no program": ("D004", with_lists(pods=()), "warn", "kai runs nowhere in this cluster"),
    "no binder": (
        "D004",
        with_lists(pods=(kai_pod("s", "scheduler", "podgrouper"),)),
        "fail",
        "role binder runs nowhere",
    ),
    "not ready": ("D004", with_lists(pods=(UNREADY,)), "warn", "is not ready"),
    "a right of a role": (
        "D005",
        evolve(missing={"kai-scheduler/kai": (right(),)}),
        "fail",
        "kai-scheduler/kai lacks the right to patch pods/status",
    ),
    "two schedulers": (
        "D006",
        with_lists(pods=(kai_pod(), kai_pod("other-1", "scheduler", owner="other-1"))),
        "fail",
        "decide about the nodes without a node pool: kai-scheduler/kai, kai-scheduler/other",
    ),
    "two that do not elect": (
        "D006",
        with_lists(pods=(kai_pod("a"), kai_pod("b"))),
        "fail",
        "2 replicas of kai-scheduler/kai",
    ),
    "KAI-Scheduler beside": (
        "D007",
        with_lists(deployments=(THEIRS,)),
        "fail",
        "the scheduler of KAI-Scheduler runs (kai-scheduler-default, 1 replica, which takes no lease)",
    ),
    "KAI-Scheduler alone": (
        "D007",
        with_lists(deployments=(THEIRS,), pods=()),
        "warn",
        "the scheduler of KAI-Scheduler runs",
    ),
    "no lease": (
        "D008",
        with_lists(pods=(kai_pod("a", *FLAGS),), leases=()),
        "warn",
        "no replica of kai holds lease kai-scheduler/kai-scheduler",
    ),
    "an old lease": (
        "D008",
        with_lists(pods=(kai_pod("a", *FLAGS),), leases=(lease("kai-scheduler", age=200),)),
        "fail",
        "lease kai-scheduler/kai-scheduler was not renewed for 200s",
    ),
    "a clock ahead": (
        "D009",
        with_lists(leases=(lease("kai-scheduler"), lease("n", age=-40))),
        "warn",
        "lease kai-scheduler/n was renewed 40s in the future",
    ),
    "a holder that died while its clock was ahead": (
        "D008",
        with_lists(pods=(kai_pod("a", *FLAGS),), leases=(noted(lease("kai-scheduler", age=-3400), age=200),)),
        "fail",
        "lease kai-scheduler/kai-scheduler was not renewed for 200s",
    ),
    "the only clock ahead": (
        "D009",
        with_lists(leases=(noted(lease("n", age=-3600)),)),
        "warn",
        "the clock of the holder of lease kai-scheduler/n is 3601s ahead of the API server's",
    ),
    "a clock behind": (
        "D009",
        with_lists(leases=(lease("kai-scheduler"), noted(lease("n", age=3600)))),
        "warn",
        "the clock of the holder of lease kai-scheduler/n is 3599s behind the API server's",
    ),
    "this clock behind": (
        "D009",
        with_lists(leases=(lease("n", age=-40),)),
        "warn",
        "the clock of this machine is 40s behind",
    ),
    "this clock ahead": ("D009", with_lists(leases=(lease("n", age=900),)), "warn", "no lease was renewed for 900s"),
    "a foreign module": (
        "D010",
        evolve(foreign_module="kai"),
        "fail",
        "the Python distribution 'kai' has a module kai as well",
    ),
    "a Deployment over one of KAI-Scheduler": (
        "D011",
        with_lists(deployments=(taken_over("admission"), deployment("kai-operator", "x/operator"))),
        "fail",
        "belongs to SchedulingShard default of KAI-Scheduler, is deleted with it, and runs admission of KAI-Scheduler",
    ),
    "no endpoint": (
        "D021",
        with_lists(endpointslices=()),
        "fail",
        "webhook kai-pod-validation.kai of kai-pod-validation has no endpoint: service kai-scheduler/kai-admission",
    ),
    "an endpoint that is not ready": (
        "D021",
        with_lists(endpointslices=(slice_of("kai-admission", ready=False),)),
        "fail",
        "no endpoint",
    ),
    "an open webhook": (
        "D021",
        with_lists(endpointslices=(), validating=(), mutating=(webhook("kai-x", policy="Ignore"),)),
        "warn",
        "what it would refuse is let through",
    ),
    "no authority": (
        "D022",
        with_lists(mutating=(webhook("kai-x", bundle=""),)),
        "fail",
        "webhook kai-x.kai has no caBundle",
    ),
    "no certificate": ("D022", with_lists(mutating=(webhook("kai-x", bundle="eA=="),)), "fail", "is no certificate"),
    "a certificate that ended": ("D022", evolve(now=NOW + 4e9), "fail", "days ago"),
    "a lease that another program has": (
        "D008",
        with_lists(pods=(kai_pod("a", *FLAGS),), leases=(lease("kai-scheduler", holder="theirs-5_x"),)),
        "warn",
        "lease kai-scheduler/kai-scheduler is held by theirs-5_x, which is no pod of kai",
    ),
    "no policies": ("D023", with_lists(policies=()), "warn", "admission policies are not installed: kai-bindrequests"),
    "policies that are not bound": (
        "D023",
        with_lists(policybindings=()),
        "warn",
        "admission policies without a binding that denies refuse nothing",
    ),
    "a policy that only audits": (
        "D023",
        with_lists(policybindings=(binding("kai-terms", "Audit"), *map(binding, set(POLICIES) - {"kai-terms"}))),
        "warn",
        "admission policies without a binding that denies refuse nothing: kai-terms",
    ),
    "a policy of a later version": (
        "D023",
        with_lists(policies=tuple(map(obj, sorted(set(POLICIES) - {"kai-podgroup-trees"})))),
        "warn",
        "admission policies are not installed: kai-podgroup-trees",
    ),
    "a lost parent": (
        "D031",
        with_lists(queues=(queue("a", "gone"),)),
        "fail",
        "queue a: its parent gone does not exist",
    ),
    "a circle": ("D031", with_lists(queues=(queue("a", "b"), queue("b", "a"))), "fail", "queue a is below itself"),
    "no queue": ("D031", with_lists(queues=()), "warn", "there is no queue"),
    "quotas promised twice": (
        "D032",
        with_lists(queues=(queue("top", quota=8, limit=-1), queue("a", "top", quota=9, limit=-1))),
        "warn",
        "queue top: the gpu quotas of its children sum to 9 of 8",
    ),
    "a limit below the quota": (
        "D032",
        with_lists(queues=(queue("a", quota=9, limit=4),)),
        "warn",
        "its limit of 4 GPUs is below its quota of 9",
    ),
    "a job in a parent": (
        "D033",
        with_lists(podgroups=(group("j", "top"),)),
        "fail",
        "job ml/j is in queue top, which has children",
    ),
    "a job in no queue": (
        "D034",
        with_lists(podgroups=(group("j", "gone"), group("k", "gone"))),
        "fail",
        "2 jobs (ml/j, ml/k) are in queue 'gone'",
    ),
    "a pod without a group": (
        "D035",
        with_lists(pods=(kai_pod(), pod("lost-0"))),
        "fail",
        "1 pod got no pod group in 120s: ml/lost-0",
    ),
    "a bind request without an outcome": (
        "D036",
        with_lists(bindrequests=(obj("r", "ml"),)),
        "fail",
        "1 bind request without an outcome for 120s",
    ),
    "a bind request that failed": (
        "D036",
        with_lists(bindrequests=(obj("r", "ml", status={"phase": "Failed"}),)),
        "warn",
        "1 bind request failed: ml/r",
    ),
    "nodes that do not tell": (
        "D037",
        with_lists(nodes=(GPU_NODE,)),
        "warn",
        "1 GPU node without the label nvidia.com/gpu.memory: gpu-9",
    ),
    "nodes that do not tell those who ask": (
        "D037",
        with_lists(nodes=(GPU_NODE,), pods=(kai_pod(), MEMORY)),
        "fail",
        "GPU memory is asked for by 1 pod",
    ),
    "no place to hold GPUs": (
        "D038",
        with_lists(namespaces=()),
        "warn",
        "namespace kai-resource-reservation does not exist: GPUs cannot be shared",
    ),
    "no place for those who share": (
        "D038",
        with_lists(namespaces=(), pods=(kai_pod(), MEMORY)),
        "fail",
        "as 1 pod asked",
    ),
    "a node pool without a scheduler": (
        "D039",
        with_lists(queues=(obj("q", labels={"kai.scheduler/node-pool": "fast"}),)),
        "fail",
        "node pool fast has no scheduler",
    ),
    "an unknown priority class": (
        "D040",
        with_lists(podgroups=(group("j", "a", priorityClassName="huge"),)),
        "warn",
        "priority class huge does not exist; 1 job",
    ),
    "a queue that does not allow a namespace": (
        "D041",
        with_lists(pods=(kai_pod("kai-7c9-x", "--queue-access=required"),), podgroups=(group("j", "a"),)),
        "fail",
        "queue a does not allow the namespaces of 1 job: ml/j",
    ),
    "a queue that is being deleted": (
        "D042",
        with_lists(queues=(GOING,), podgroups=(group("j", "going"),)),
        "warn",
        "queue going is being deleted since 2026-01-01T00:00:00Z, with 1 job in it; finalizers keep it: a.example/b",
    ),
}


def test_a_holder_whose_clock_is_behind_renews_its_lease():
    held = noted(lease("kai-scheduler", age=3600, holder="a-x"))
    verdict = run_check(BY_CODE["D008"], with_lists(pods=(kai_pod("a", *FLAGS),), leases=(held,)))
    assert [each.message for each in verdict.findings] == []


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_cluster_is_named(case):
    code, seen, severity, message = SPOILT[case]
    verdict = run_check(BY_CODE[code], seen)
    assert verdict.severity == severity
    assert message in verdict.findings[0].message
    assert verdict.findings[0].help, "each finding has a line that helps"


def test_each_check_has_a_case_that_spoils_it():
    assert {code for code, *_ in SPOILT.values()} == BY_CODE.keys()
    assert [check.code for check in CHECKS] == sorted(BY_CODE)


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({ALLOWED: "ml"}, {}),
        ({ALLOWED: "*"}, {}),
        ({"kai.scheduler/allowed-namespace-labels": "team=a"}, {"team": "a"}),
    ],
)
def test_a_queue_that_allows_a_namespace_is_no_finding(annotations, labels):
    required = kai_pod("kai-7c9-x", "--queue-access=required")
    seen = with_lists(
        pods=(required,),
        queues=(obj("a", annotations=annotations),),
        podgroups=(group("j", "a"),),
        namespaces=(obj("ml", labels=labels),),
    )
    assert run_check(BY_CODE["D041"], seen).findings == ()


def test_permissions_that_no_scheduler_requires_are_named():
    (finding,) = run_check(BY_CODE["D041"], with_lists(queues=(obj("a", annotations={ALLOWED: "ml"}),))).findings
    assert finding.message == "1 queue (a) allow namespaces, and no scheduler requires it"


def test_a_scheduler_of_kai_scheduler_for_another_node_pool_is_no_failure():
    theirs = deployment("kai-scheduler-fast", "x/kai-scheduler/scheduler", args=("--partition-label-value=fast",))
    verdict = run_check(BY_CODE["D007"], with_lists(deployments=(theirs,)))
    assert verdict.severity is Severity.WARN


def test_a_shard_may_be_told_by_a_file_that_doctor_does_not_read():
    shard = kai_pod("gpu-1", "scheduler", "--scheduler-conf=/etc/config/shard.yaml", owner="gpu-1")
    queues = (queue("a"), obj("b", labels={"kai.scheduler/node-pool": "gpu"}, spec={}))
    for code, told in (("D006", "unless a shard in --scheduler-conf says otherwise"), ("D039", "names it")):
        (finding,) = run_check(BY_CODE[code], with_lists(pods=(kai_pod(), shard), queues=queues)).findings
        assert (finding.severity, told in finding.message) == (Severity.WARN, True)
    known = kai_pod("gpu-1", "scheduler", "--scheduler-conf=x", "--partition-label-value", "gpu", owner="gpu-1")
    for code in ("D006", "D039"):
        assert run_check(BY_CODE[code], with_lists(pods=(kai_pod(), known), queues=queues)).findings == ()


def test_flags_are_read_in_both_forms_of_go():
    words = ("scheduler", "--scheduler-name", "other", "--leader-elect", "binder", "-partition-label-value", "gpu")
    (program,) = with_lists(pods=(kai_pod("a", *words),)).programs()
    assert (program.pool, program.elects, program.roles) == (("other", "gpu"), True, ("scheduler", "binder"))


@pytest.mark.parametrize(
    ("flag", "elects"), [("--leader-elect=TRUE", True), ("--leader-elect=F", False), ("--qps=5", False)]
)
def test_a_program_elects_where_go_reads_its_flag_as_true(flag, elects):
    (program,) = with_lists(pods=(kai_pod("a", "scheduler", flag),)).programs()
    assert program.elects is elects


def test_rights_are_asked_about_where_flags_say_that_pods_are_made():
    flags = {"resource-reservation-namespace": "runai-reservation", "scale-adjust-namespace": ""}
    found = {each.namespace for each in rights_of(ROLES, flags)}
    assert found == {"", "runai-reservation", "kai-scale-adjust"}


def test_what_the_operator_would_change_back_is_told_with_the_command_that_stops_it():
    operator = deployment("kai-operator", "x/operator")
    for replicas, stop in ((1, "kubectl -n kai-scheduler scale deploy kai-operator --replicas=0; "), (0, "")):
        seen = with_lists(deployments=(taken_over(), {**operator, "spec": {"replicas": replicas}}))
        (finding,) = run_check(BY_CODE["D011"], seen).findings
        assert finding.help.startswith(f"{stop}kubectl -n kai-scheduler delete deploy kai-scheduler-default ")
        assert "beside" not in finding.message


def test_another_owner_and_a_container_beside_kai_are_no_leftovers():
    found = with_lists(deployments=(taken_over("proxy", apiVersion="apps.example.com/v1"),))
    assert run_check(BY_CODE["D011"], found).findings == ()


def test_a_scheduler_of_kai_scheduler_that_is_scaled_to_nothing_is_no_finding():
    theirs = deployment("kai-scheduler-default", "x/kai-scheduler/scheduler", replicas=0)
    assert run_check(BY_CODE["D007"], with_lists(deployments=(theirs,))).findings == ()


def test_the_field_that_stops_kai_scheduler_is_named_where_its_version_has_it():
    crds = (*HEALTHY.lists["crds"], definition("configs.kai.scheduler", "v1", REPLICAS))
    with_field = with_lists(deployments=(THEIRS,), crds=crds, configs=(obj("kai-config"),))
    (finding,) = run_check(BY_CODE["D007"], with_field).findings
    assert "kubectl patch config.kai.scheduler kai-config" in finding.help
    assert "spec.scheduler.replicas" in finding.help
    (without,) = run_check(BY_CODE["D007"], with_lists(deployments=(THEIRS,))).findings
    assert "scale deploy kai-operator kai-scheduler-default --replicas=0" in without.help


def test_what_cannot_be_read_is_skipped_and_said():
    verdict = run_check(BY_CODE["D031"], Seen(now=NOW, unread={"queues": "not allowed"}))
    assert verdict.severity is Severity.SKIP
    assert verdict.message == "tree of queues: cannot be looked at (queues: not allowed)"


def test_every_right_that_is_asked_about_is_one_that_is_shipped():
    asked = {
        (each.role, each.namespace or "cluster", each.group, each.resource, each.verb) for each in rights_of(ROLES)
    }
    roles = {(where, group, what, verb) for _, where, group, what, verb in RIGHTS}
    own = {(role, where, group, what, verb) for role, where, group, what, verb in RIGHTS}
    alone = {
        (role, each.namespace or "cluster", each.group, each.resource, each.verb)
        for role in TABLE
        for each in rights_of([role])
    }
    assert {each[1:] for each in asked} <= roles
    assert alone <= own
    assert {each.verb for each in rights_of_readers()} == {"list"}


def test_each_kind_that_a_role_cannot_do_without_is_asked_about():
    """A role waits until it may list and watch what it follows, so a right that lacks there stops it."""
    from kai.binder.service import WATCHED as BINDER
    from kai.cli.running.roles import SCHEDULER_WATCHES
    from kai.controllers.node_scale_service import WATCHED as SCALE
    from kai.controllers.podgroup_service import WATCHED as POD_GROUPS
    from kai.controllers.queue_service import WATCHED as QUEUES
    from kai.podgrouper.reading import WATCHED as GROUPER

    followed = {
        "scheduler": SCHEDULER_WATCHES,
        "binder": BINDER,
        "podgrouper": GROUPER,
        "podgroup-controller": POD_GROUPS,
        "queue-controller": QUEUES,
        "node-scale-adjuster": SCALE,
    }
    for role, classes in followed.items():
        asked = {(each.group, each.resource, each.verb) for each in rights_of([role])}
        kinds = [BY_CLASS[cls] for cls in classes if not BY_CLASS[cls].is_dispensable]
        assert {(kind.group, kind.plural, verb) for kind in kinds for verb in ("list", "watch")} <= asked, role


def test_each_policy_that_is_shipped_is_looked_for():
    shipped = {each["metadata"]["name"] for each in of_kind(render(DEPLOY), "ValidatingAdmissionPolicy")}
    assert set(POLICIES) == shipped


def test_what_helps_where_a_namespace_or_classes_are_missing_brings_them():
    brought = {each["metadata"]["name"] for each in render(LASTING)}
    for code, lists in (("D038", {"namespaces": ()}), ("D040", {"priorityclasses": ()})):
        helped = [each.help for each in run_check(BY_CODE[code], with_lists(**lists)).findings]
        assert {each.partition("    ")[0] for each in helped} == {"kubectl apply -k deploy/lasting"}, code
    assert {"kai-resource-reservation", "train", "inference"} <= brought


def test_roles_and_leases_are_those_of_the_service():
    assert seeing.ROLES == ROLES
    assert seeing.TOGETHER == TOGETHER
    assert seeing.LEASES == LEASES
    assert TABLE.keys() == set(ROLES)
