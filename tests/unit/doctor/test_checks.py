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
    holding,
    kai_pod,
    lease,
    noted,
    obj,
    pod,
    queue,
    quota,
    refused,
    right,
    slice_of,
    troubled,
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
GPUS, RESERVATION = {"nvidia.com/gpu": "8"}, "kai-resource-reservation"
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
    "out of memory": (
        "D004",
        with_lists(pods=(troubled(count=57, ended="OOMKilled", code=137, ready=True),)),
        "fail",
        "was restarted 57 times, the last time for want of memory (OOMKilled)",
    ),
    "out of memory once": (
        "D004",
        with_lists(pods=(troubled(count=1, ended="OOMKilled", code=137, ready=True),)),
        "warn",
        "was restarted once, the last time for want of memory",
    ),
    "a crash loop": (
        "D004",
        with_lists(pods=(troubled(count=12, ended="Error", code=2, waits="CrashLoopBackOff"),)),
        "fail",
        "ends again and again (CrashLoopBackOff): it was restarted 12 times, the last time with exit code 2",
    ),
    "an image that cannot be pulled": (
        "D004",
        with_lists(pods=(troubled(count=0, waits="ImagePullBackOff"),)),
        "warn",
        "is not ready: ImagePullBackOff",
    ),
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
    "no webhook that changes pods": (
        "D024",
        with_lists(mutating=()),
        "fail",
        "kai has no mutatingwebhookconfiguration: pods that share a GPU are not prepared and cannot start",
    ),
    "no webhook for those who share": (
        "D024",
        with_lists(mutating=(), validating=(), pods=(kai_pod(), MEMORY)),
        "fail",
        "cannot start, as 1 pod that waits asked",
    ),
    "no webhook that refuses": (
        "D024",
        with_lists(validating=()),
        "warn",
        "kai has no validatingwebhookconfiguration: what it would refuse early is let through",
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
    "a bind that is refused": (
        "D043",
        with_lists(
            pods=(kai_pod(), refused("fr", "The bind was refused 3 times: exceeded quota; the next try is at T."))
        ),
        "warn",
        "pod ml/fr cannot be bound: the bind was refused 3 times: exceeded quota; the next try is at T",
    ),
    "binds that are refused": (
        "D043",
        with_lists(pods=(kai_pod(), *(refused(name, "The bind was refused once: no.") for name in ("a", "b")))),
        "warn",
        "2 pods (ml/a, ml/b) cannot be bound: the bind of a was refused once: no",
    ),
    "a quota where GPUs are held": (
        "D044",
        with_lists(resourcequotas=(quota("none", RESERVATION, pods="0"),)),
        "fail",
        "quota none in namespace kai-resource-reservation has no pods left (0 of 0): no further GPU can be shared",
    ),
    "a quota that is used up": (
        "D044",
        with_lists(resourcequotas=(quota("few", RESERVATION, pods="4", used="4"),)),
        "fail",
        "has no pods left (4 of 4)",
    ),
    "a quota of CPU where GPUs are held": (
        "D044",
        with_lists(resourcequotas=(quota("cpu", RESERVATION, limits_cpu="4"),)),
        "fail",
        "quota cpu in namespace kai-resource-reservation counts limits.cpu: reservation pods ask for none",
    ),
    "no runtime class": (
        "D045",
        with_lists(runtimeclasses=(), pods=(kai_pod("a", "admission"),)),
        "warn",
        "runtime class nvidia does not exist (setting --gpu-fraction-runtime-class-name); the API server refuses pods",
    ),
    "no runtime class for those who share": (
        "D045",
        with_lists(runtimeclasses=(), pods=(kai_pod("a", "admission"), MEMORY)),
        "fail",
        "runtime class nvidia does not exist",
    ),
    "a runtime class that pods name": (
        "D045",
        with_lists(pods=(pod("p", runtimeClassName="kata"),)),
        "fail",
        "runtime class kata does not exist (1 pod with it)",
    ),
    "a runtime class that a flag names": (
        "D045",
        with_lists(pods=(kai_pod("a", "binder", "--runtime-class-name=gpu"),)),
        "warn",
        "runtime class gpu does not exist (setting --runtime-class-name)",
    ),
    "GPUs that a node does not offer": (
        "D046",
        with_lists(nodes=(obj("n", status={"capacity": GPUS, "allocatable": {"nvidia.com/gpu": "0"}}),)),
        "warn",
        "1 node offers fewer GPUs than there are: n (0 of 8)",
    ),
    "a node that others fill": (
        "D047",
        with_lists(pods=(holding("a", 8, scheduler="kai-scheduler"), holding("b", 2))),
        "fail",
        "node gpu-1: pods hold 10 GPUs of 8; 1 pod of other schedulers: them/b",
    ),
}

MENDS = {
    "an old API server": "upgrade the control plane",
    "own rights": "ask for a role with get and list on nodes, pods, namespaces, queues and podgroups",
    "own rights that are not known": "kubectl auth can-i --list",
    "no kind": "kubectl apply -k deploy/crds",
    "an old kind": "kubectl apply -k deploy/crds",
    "no program": "kubectl apply -k deploy/",
    "no binder": "kai run binder",
    "not ready": "kubectl -n kai-scheduler describe pod kai-7c9-x",
    "out of memory": "kubectl -n kai-scheduler set resources deploy kai --limits=memory=",
    "out of memory once": "kubectl -n kai-scheduler set resources deploy kai --limits=memory=",
    "a crash loop": "kubectl -n kai-scheduler logs kai-7c9-x --previous",
    "an image that cannot be pulled": "kubectl -n kai-scheduler describe pod kai-7c9-x",
    "a right of a role": "kubectl apply -k deploy/rights",
    "two schedulers": "another --partition-label-value",
    "two that do not elect": "--leader-elect=true",
    "KAI-Scheduler beside": "kubectl -n kai-scheduler scale deploy kai-operator kai-scheduler-default --replicas=0",
    "KAI-Scheduler alone": "kubectl -n kai-scheduler scale deploy kai-operator kai-scheduler-default --replicas=0",
    "no lease": "kubectl -n kai-scheduler logs a",
    "an old lease": "kubectl -n kai-scheduler delete pod kai-7c9-x",
    "a clock ahead": "set the clocks of all nodes by NTP",
    "a holder that died while its clock was ahead": "kubectl -n kai-scheduler delete pod kai-7c9-x",
    "the only clock ahead": "set the clocks of all nodes by NTP",
    "a clock behind": "set the clocks of all nodes by NTP",
    "this clock behind": "set it by NTP",
    "this clock ahead": "set it by NTP",
    "a foreign module": "pip uninstall kai",
    "a Deployment over one of KAI-Scheduler": "kubectl -n kai-scheduler delete deploy kai-scheduler-default",
    "a lease that another program has": "kubectl scale deploy NAME --replicas=0",
    "no endpoint": "kubectl -n kai-scheduler get endpointslices -l kubernetes.io/service-name=kai-admission",
    "an endpoint that is not ready": "kubectl delete validatingwebhookconfiguration kai-pod-validation",
    "an open webhook": "kubectl delete mutatingwebhookconfiguration kai-x",
    "no authority": "kubectl apply -k deploy/components/certificates",
    "no certificate": "kubectl apply -k deploy/components/certificates",
    "a certificate that ended": "kubectl apply -k deploy/components/certificates",
    "no policies": "kubectl apply -k deploy/policies",
    "policies that are not bound": "kubectl apply -k deploy/policies",
    "a policy that only audits": "kubectl apply -k deploy/policies",
    "a policy of a later version": "kubectl apply -k deploy/policies",
    "no webhook that changes pods": "kubectl apply -k deploy/",
    "no webhook for those who share": "kubectl apply -k deploy/",
    "no webhook that refuses": "kubectl apply -k deploy/",
    "a lost parent": "kubectl edit queue a",
    "a circle": "kubectl edit queue a",
    "no queue": "kubectl apply -k deploy/queues",
    "quotas promised twice": "kubectl edit queue top    quota: 9",
    "a limit below the quota": "kubectl edit queue a    limit: -1",
    "a job in a parent": "kubectl label JOB kai.scheduler/queue=QUEUE --overwrite    one of a, b",
    "a job in no queue": "kubectl label JOB kai.scheduler/queue=QUEUE --overwrite",
    "a pod without a group": "kubectl -n kai-scheduler logs deploy/kai",
    "a bind request without an outcome": "kubectl -n kai-scheduler logs deploy/kai",
    "a bind request that failed": "kubectl -n ml get bindrequest r -o yaml",
    "nodes that do not tell": "kubectl label node gpu-9 nvidia.com/gpu.memory=81920",
    "nodes that do not tell those who ask": "kubectl label node gpu-9 nvidia.com/gpu.memory=81920",
    "no place to hold GPUs": "kubectl apply -k deploy/lasting",
    "no place for those who share": "kubectl apply -k deploy/lasting",
    "a node pool without a scheduler": "--partition-label-value=fast, or remove the label kai.scheduler/node-pool",
    "an unknown priority class": "kubectl apply -k deploy/lasting",
    "a queue that does not allow a namespace": "kubectl annotate queue a kai.scheduler/allowed-namespaces=NAMESPACE",
    "a queue that is being deleted": "kubectl get queue going -o yaml",
    "a bind that is refused": "kubectl -n ml describe pod fr",
    "binds that are refused": "kubectl -n ml describe pod a",
    "a quota where GPUs are held": "kubectl -n kai-resource-reservation delete resourcequota none    or raise",
    "a quota that is used up": "kubectl -n kai-resource-reservation delete resourcequota few    or raise spec.hard",
    "a quota of CPU where GPUs are held": "kai run --resource-reservation-pod-resources",
    "no runtime class": "kai run --gpu-fraction-runtime-class-name=''",
    "no runtime class for those who share": "kai run --gpu-fraction-runtime-class-name=''",
    "a runtime class that pods name": "correct spec.runtimeClassName of the workloads",
    "a runtime class that a flag names": "kai run --runtime-class-name=''",
    "GPUs that a node does not offer": "kubectl describe node n",
    "a node that others fill": "kubectl get pods -A --field-selector spec.nodeName=gpu-1",
}
"""What each finding tells its reader to type, or to change."""


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
    assert MENDS[case] in verdict.findings[0].help


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
    right = "it takes the right to list queues.scheduling.run.ai"
    assert verdict.message == f"tree of queues: not looked at: {right}"
    verdict = run_check(BY_CODE["D044"], Seen(now=NOW, unread={"resourcequotas": "HTTP status 500"}))
    why = "not looked at: resourcequotas: HTTP status 500"
    assert verdict.message == f"quotas of the namespace of reservations: {why}"


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
