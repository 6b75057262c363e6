"""The breakages that ``kai doctor`` names: the spoilt cluster, what is told of it, and what that tells to type."""

import attrs

from kai.doctor.checks import POLICIES
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


WARNS = {"name": "month", "amount": 5, "enforce": "warn"}


def budgeted(name, amount, parent=""):
    """Return a queue with a budget of which nothing was used."""
    spec = {"parentQueue": parent, "budgets": [{"name": "month", "amount": amount}]}
    return obj(name, spec=spec, status={"budgets": [{"name": "month", "spent": 0}]})


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
    "a budget whose use is unknown": (
        "D048",
        with_lists(queues=(obj("a", spec={"budgets": [{"name": "month", "amount": 5}]}),)),
        "warn",
        "queue a: it is not known what was used of its budget month",
    ),
    "a used-up budget that only warns": (
        "D048",
        with_lists(queues=(obj("a", spec={"budgets": [WARNS]}, status={"budgets": [{"name": "month", "spent": 6}]}),)),
        "warn",
        "queue a: its budget month is used up; it only warns, so work goes on",
    ),
    "a budget larger than its parent's": (
        "D048",
        with_lists(queues=(budgeted("top", 5), budgeted("a", 9, parent="top"))),
        "warn",
        "queue a: its budget month of 9 GPU-hours is larger than month of top above it, with 5",
    ),
    "limits of users without notes": (
        "D049",
        with_lists(queues=(obj("a", spec={"resources": {"perUser": {"gpu": {"limit": 1}}}}),)),
        "warn",
        "1 queue (a) limit users, and there is no webhook kai-user-notes: all jobs of a namespace count for one user",
    ),
    "a minimum above the maximum run time": (
        "D032",
        with_lists(queues=(obj("a", spec={"maxRuntime": "1h", "preemptMinRuntime": "2h"}),)),
        "warn",
        "queue a: preemptMinRuntime is 2h, and maxRuntime of queue a is 1h",
    ),
}

MENDS = {
    "an old API server": "upgrade the control plane",
    "own rights": "ask for a role with get and list on nodes, pods, namespaces, queues and podgroups.scheduling.run.ai",
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
    "a budget whose use is unknown": "usageDBConfig: {clientType: sqlite, ...}",
    "a used-up budget that only warns": "kubectl edit queue a",
    "a budget larger than its parent's": "kubectl edit queue a",
    "limits of users without notes": "kubectl apply -k deploy/components/user-notes",
    "a minimum above the maximum run time": "kubectl edit queue a",
}
"""What each finding tells its reader to type, or to change."""
