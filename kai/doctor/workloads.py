"""Checks of what users create: queues, jobs, priority classes, and the pods that wait to be grouped or bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from kai.api import names, values
from kai.api.codec.structuring import structure_as
from kai.api.conventions.binding import bind_refusal
from kai.api.conventions.budgets import beyond_parents, budgets_in
from kai.api.conventions.queue_rules import UNITS, QueueFault, Rule, queue_faults, shape_in
from kai.api.conventions.runtime_limits import runtime_conflicts
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.parsing import list_of, mappings_of, number_or, part_of, text_of
from kai.basics.trees import ancestry
from kai.basics.wording import counted, first_of, number_text, shown
from kai.doctor.seen import (
    Finding,
    Looked,
    Manifest,
    Seen,
    annotations_of,
    failure,
    key_of,
    labels_of,
    name_of,
    warning,
)

_LATE: Final = 120.0
"""Seconds after which a pod without a group, or a bind request without an outcome, is late."""
_ABOUT_BINDS: Final = frozenset({names.POD_SCHEDULED_CONDITION, names.POD_BOUND_CONDITION})
_DEFAULT_CLASSES: Final = ("train", "build-preemptible", "build", "inference")


def queue_tree(seen: Seen) -> Looked:
    """Check that every queue has an existing parent, without cycles, and not too deep."""
    parents = {name_of(each): text_of(each, "spec", "parentQueue") for each in seen.all("queues")}
    problems: list[Finding] = []
    for fault in _faults_of_queues(seen):
        name, parent = fault.queue, parents[fault.queue]
        patch = f"kubectl edit queue {name}    its spec.parentQueue"
        about = f"queue/{name}"
        if fault.rule is Rule.ORPHAN:
            problems.append(
                failure(f"queue {name}: its parent {parent} does not exist", patch, about=about, found=parent)
            )
        # A queue below a circle has the fault as well, and is not below itself.
        elif fault.rule is Rule.CYCLE and name in fault.circle:
            back = f"{patch} leads back to it"
            problems.append(failure(f"queue {name} is below itself", back, about=about, found=parent))
        elif fault.rule is Rule.TOO_DEEP:
            above = counted(int(fault.found) - 1, "queue")
            problems.append(
                failure(f"queue {name} has {above} above it: nothing in it is scheduled", patch, about=about)
            )
    well = f"{counted(len(parents), 'queue')}, none without its parent"
    if not parents:
        problems.append(
            warning(
                "there is no queue: no job can be scheduled", "kubectl apply -k deploy/queues    or see docs/queues.md"
            )
        )
    return Looked(well=well, findings=problems)


def quotas(seen: Seen) -> Looked:
    """Check that parents have the quota that they promise to their children, and that limits allow the quotas."""
    problems: list[Finding] = []
    for fault in _faults_of_queues(seen):
        name, edit = fault.queue, f"kubectl edit queue {fault.queue}   "
        found, bound = (_shown_amount(each) for each in (fault.found, fault.bound))
        about = f"queue/{name}"
        if fault.rule is Rule.OVERCOMMITTED:
            message = f"queue {name}: the {fault.resource} quotas of its children sum to {found} of {bound}"
            mend = f"{edit} quota: {found}, or less for the children"
            problems.append(warning(message, mend, about=about, found=found, expected=f"at most {bound}"))
        elif fault.rule is Rule.LOW_LIMIT:
            unit = UNITS[fault.resource]
            message = f"queue {name}: its limit of {found} {unit} is below its quota of {bound}"
            problems.append(warning(message, f"{edit} limit: -1 is no limit", about=about))
        elif fault.rule is Rule.NO_COMPUTE:
            message = f"queue {name}: its limit of {fault.resource} is 0, so nothing that asks for it starts"
            mend = f"{edit} {fault.resource}: {{quota: -1, limit: -1}}"
            problems.append(warning(message, mend, about=about))
        elif fault.bad is not None:
            mend = f"{edit} until then the scheduler leaves this schedule out"
            problems.append(warning(f"queue {name}: {fault.bad}", mend, about=about))
        elif fault.rule is Rule.WINDOW_OVERCOMMITTED:
            message = (
                f"queue {name}: while {', '.join(fault.windows)} is open, the {fault.resource} quotas of its children"
                f" sum to {found} of {bound}"
            )
            mend = f"{edit} a schedule of {name} for the same time, or less for the children"
            problems.append(warning(message, mend, about=about, found=found, expected=f"at most {bound}"))
    problems += _conflicting_runtimes(seen)
    return Looked(well="no quota is promised twice", findings=problems)


def _conflicting_runtimes(seen: Seen) -> list[Finding]:
    """Return the run times of queues that are longer than the maximum that holds for them."""
    queues = {name_of(each): each for each in seen.all("queues")}
    parents = {name: text_of(each, "spec", "parentQueue") for name, each in queues.items()}
    found = []
    for name in sorted(queues):
        chain = [queues[each] for each in dict.fromkeys(ancestry(name, parents)) if each in queues]
        for each in runtime_conflicts(chain):
            message = f"queue {name}: {each.field} is {each.found}, and maxRuntime of queue {each.owner} is {each.most}"
            mend = f"kubectl edit queue {name}    the longer value cannot hold"
            found.append(warning(message, mend, about=f"queue/{name}"))
    return found


def budgets(seen: Seen) -> Looked:
    """Check that the use of each budget is known, that budgets that only warn hold, and that each can take effect."""
    problems = _unknown_budgets(seen)
    queues = {name_of(each): each for each in seen.all("queues")}
    parents = {name: text_of(each, "spec", "parentQueue") for name, each in queues.items()}
    for name, queue in sorted(queues.items()):
        about, mend = f"queue/{name}", f"kubectl edit queue {name}    see docs/budgets.md"
        above = {each: budgets_in(queues[each]) for each in ancestry(name, parents) if each in queues and each != name}
        for budget, owner, larger in beyond_parents(budgets_in(queue), above):
            message = (
                f"queue {name}: its budget {budget.name} of {number_text(budget.amount, 9)} GPU-hours is larger than"
                f" {larger.name} of {owner} above it, with {number_text(larger.amount, 9)}"
            )
            problems.append(warning(message, mend, about=about))
        for used in _used_up(queue):
            message = f"queue {name}: its budget {used} is used up; it only warns, so work goes on"
            problems.append(warning(message, mend, about=about))
    return Looked(well="no budget is unknown, or used up while it only warns", findings=problems)


def _used_up(queue: Manifest) -> list[str]:
    """Return the budgets that only warn and are used up, by name."""
    spent = {
        text_of(each, "name"): number_or(each.get("spent"), 0.0) - number_or(each.get("carried"), 0.0)
        for each in mappings_of(queue, "status", "budgets")
    }
    warning_ones = [each for each in budgets_in(queue) if each.enforce == "warn" and each.amount > 0]
    return [each.name for each in warning_ones if spent.get(each.name, 0.0) >= each.amount]


def _unknown_budgets(seen: Seen) -> list[Finding]:
    """Return budgets without a status of their use: with admit nothing starts under them."""
    found = []
    for queue in seen.all("queues"):
        name, known = name_of(queue), {text_of(each, "name") for each in mappings_of(queue, "status", "budgets")}
        lacking = [each for each in mappings_of(queue, "spec", "budgets") if text_of(each, "name") not in known]
        if lacking:
            message = f"queue {name}: it is not known what was used of its budget {text_of(lacking[0], 'name')}"
            mend = "usageDBConfig: {clientType: sqlite, ...}    in the scheduler's configuration, see docs/budgets.md"
            found.append(warning(message, mend, about=f"queue/{name}"))
    return found


def _faults_of_queues(seen: Seen) -> list[QueueFault]:
    return [fault for faults in queue_faults(map(shape_in, seen.all("queues"))).values() for fault in faults]


def _shown_amount(value: float) -> str:
    return "unlimited" if value == inf else number_text(value)


def jobs_in_parents(seen: Seen) -> Looked:
    """Check that jobs are in leaf queues: other queues run none."""
    parents = {text_of(each, "spec", "parentQueue") for each in seen.all("queues")}
    found = _groups_by_queue(seen)
    problems = [
        failure(
            f"{_jobs(groups)} in queue {queue}, which has children; only a leaf queue runs jobs",
            f"kubectl label JOB kai.scheduler/queue=QUEUE --overwrite    one of {first_of(_leaves_below(seen, queue))}",
            about=f"queue/{queue}",
            found=first_of(groups),
        )
        for queue, groups in sorted(found.items())
        # Top queues have no parent, which `parents` holds as an empty name.
        if queue and queue in parents
    ]
    total = sum(map(len, found.values()))
    return Looked(well=f"{counted(total, 'job')}, none in a parent queue", findings=problems)


def jobs_without_queue(seen: Seen) -> Looked:
    """Check that each job names a queue that exists."""
    known = {name_of(each) for each in seen.all("queues")}
    problems = [
        failure(
            f"{_jobs(groups)} in queue {shown(queue)}, which does not exist"
            if queue
            else f"{_jobs(groups)} name no queue",
            "kubectl label JOB kai.scheduler/queue=QUEUE --overwrite, or create the queue    kubectl get queues",
            about=f"queue/{queue}",
            found=first_of(groups),
        )
        for queue, groups in sorted(_groups_by_queue(seen).items())
        if queue not in known
    ]
    return Looked(well="each job is in a queue that exists", findings=problems)


def leaving_queues(seen: Seen) -> Looked:
    """Check that no queue is being deleted: its jobs start until it is gone, and those still waiting never start."""
    jobs = _groups_by_queue(seen)
    problems = []
    for each in sorted(seen.all("queues"), key=name_of):
        name, since = name_of(each), text_of(each, "metadata", "deletionTimestamp")
        if since:
            kept = first_of([str(one) for one in part_of(each, "metadata", "finalizers") or ()]) or "nothing"
            count = f"{counted(len(jobs.get(name, ())), 'job')} in it" if name in jobs else "no job in it"
            problems.append(
                warning(
                    f"queue {name} is being deleted since {since}, with {count}; finalizers keep it: {kept}",
                    "move its jobs to another queue, or let what has its finalizer finish    kubectl get queue "
                    f"{name} -o yaml",
                    about=f"queue/{name}",
                    found=since,
                )
            )
    return Looked(well="no queue is being deleted", findings=problems)


def pods_without_group(seen: Seen) -> Looked:
    """Check that kai's pods get a group, so that the pod grouper works."""
    late = [
        key_of(each)
        for each in _waiting(seen)
        if names.POD_GROUP not in annotations_of(each)
        and names.SKIP not in annotations_of(each)
        and _age(each, seen.now) > _LATE
    ]
    finding = failure(
        f"{counted(len(late), 'pod')} got no pod group in {_LATE:g}s: {first_of(late)}",
        "is the podgrouper running?    kubectl -n kai-scheduler logs deploy/kai | grep grouped",
        found=first_of(late),
    )
    return Looked(well="each waiting pod has its pod group", findings=[finding] if late else ())


def bind_requests(seen: Seen) -> Looked:
    """Check that bind requests are carried out, so that the binder works."""
    late, failed = [], []
    for each in seen.all("bindrequests"):
        phase = text_of(each, "status", "phase")
        if phase == "Failed":
            failed.append(key_of(each))
        elif phase != "Succeeded" and _age(each, seen.now) > _LATE:
            late.append(key_of(each))
    problems: list[Finding] = []
    if late:
        problems.append(
            failure(
                f"{counted(len(late), 'bind request')} without an outcome for {_LATE:g}s: {first_of(late)}",
                "is the binder running? D004 says so; its log says why    kubectl -n kai-scheduler logs deploy/kai",
                found=first_of(late),
            )
        )
    if failed:
        namespace, _, name = failed[0].partition("/")
        problems.append(
            warning(
                f"{counted(len(failed), 'bind request')} failed: {first_of(failed)}",
                f"kubectl -n {namespace} get bindrequest {name} -o yaml    status.reason says why",
                found=first_of(failed),
            )
        )
    return Looked(well=f"{counted(len(seen.all('bindrequests')), 'bind request')}, none late", findings=problems)


def refused_binds(seen: Seen) -> Looked:
    """Check that placed pods get bound: something that refuses a bind again and again has to be fixed."""
    refused: dict[str, str] = {}
    for each in _waiting(seen):
        # Conditions first: to read a whole pod costs far more, and hardly any pod has one of these.
        if any(part_of(one, "type") in _ABOUT_BINDS for one in list_of(each, "status", "conditions")):
            try:
                text = bind_refusal(structure_as(Pod, each))
            except InputError:
                continue
            if text:
                refused[key_of(each)] = text
    problems: list[Finding] = []
    if refused:
        first, text = next(iter(sorted(refused.items())))
        namespace, _, name = first.partition("/")
        who = f"{counted(len(refused), 'pod')} ({first_of(sorted(refused))})" if len(refused) > 1 else f"pod {first}"
        which = f" of {name}" if len(refused) > 1 else ""
        problems.append(
            warning(
                f"{who} cannot be bound: {text.replace('the bind was', f'the bind{which} was', 1)}",
                "correct what the message names, such as a quota or a policy; kai tries again without your help    "
                f"kubectl -n {namespace} describe pod {name}",
                about=f"pod/{first}",
                found=first_of(sorted(refused)),
            )
        )
    return Looked(well="no bind is refused", findings=problems)


def gpu_memory(seen: Seen) -> Looked:
    """Check that nodes report the memory of their GPUs, if pods request GPU memory."""
    asking = [key_of(each) for each in _alive(seen) if names.GPU_MEMORY in annotations_of(each)]
    silent = [
        name_of(each)
        for each in seen.all("nodes")
        if _gpus(each) and not any(_tells_memory(label) for label in labels_of(each))
    ]
    found = f"{counted(len(silent), 'GPU node')} without the label {names.NODE_GPU_MEMORY}: {first_of(silent)}"
    node = silent[0] if silent else ""
    help_text = f"install GPU feature discovery, or kubectl label node {node} {names.NODE_GPU_MEMORY}=81920"
    problems: list[Finding] = []
    if silent and asking:
        problems.append(
            failure(
                f"{found}; GPU memory is asked for by {counted(len(asking), 'pod')}", help_text, found=first_of(silent)
            )
        )
    elif silent:
        problems.append(
            warning(f"{found}; pods that ask for GPU memory find no place there", help_text, found=first_of(silent))
        )
    gpu_nodes = sum(bool(_gpus(each)) for each in seen.all("nodes"))
    return Looked(
        well=f"{counted(gpu_nodes, 'GPU node')}, each has a label with the memory of its GPUs", findings=problems
    )


def reservations(seen: Seen) -> Looked:
    """Check that the namespace of reservation pods exists."""
    wanted = {each.flags.get("resource-reservation-namespace", names.RESERVATION_NAMESPACE) for each in seen.programs()}
    known = {name_of(each) for each in seen.all("namespaces")}
    sharing = [
        key_of(each) for each in _alive(seen) if {names.GPU_FRACTION, names.GPU_MEMORY} & annotations_of(each).keys()
    ]
    problems: list[Finding] = []
    for namespace in sorted((wanted or {names.RESERVATION_NAMESPACE}) - known):
        severity = failure if sharing else warning
        problems.append(
            severity(
                f"namespace {namespace} does not exist: GPUs cannot be shared"
                + (f", as {counted(len(sharing), 'pod')} asked" if sharing else ""),
                "kubectl apply -k deploy/lasting",
                about=f"namespace/{namespace}",
            )
        )
    return Looked(well="the namespace of reservation pods is there", findings=problems)


def pools(seen: Seen) -> Looked:
    """Check that each node pool in use has a scheduler."""
    served = {each.pool[1] for each in seen.programs() if "scheduler" in each.roles}
    if not served:
        return Looked(well="no scheduler of kai to compare node pools with")
    wanted = Counter(
        pool
        for kind in ("queues", "podgroups")
        for each in seen.all(kind)
        if (pool := labels_of(each).get(names.NODE_POOL))
    )
    in_doubt = any(each.may_serve_another_pool for each in seen.programs())
    severity = warning if in_doubt else failure
    unless = ", unless a shard in --scheduler-conf names it" if in_doubt else ""
    problems = [
        severity(
            f"node pool {pool} has no scheduler{unless}: "
            f"{counted(count, 'queue or job', 'queues and jobs')} wait for one",
            f"run a scheduler with --partition-label-value={pool}, or remove the label {names.NODE_POOL}",
            about=f"nodepool/{pool}",
        )
        for pool, count in sorted(wanted.items())
        if pool not in served
    ]
    return Looked(well="each node pool has a scheduler", findings=problems)


def priority_classes(seen: Seen) -> Looked:
    """Check that the priority classes that jobs name exist."""
    known = {name_of(each) for each in seen.all("priorityclasses")}
    named = Counter(
        wanted
        for each in seen.all("podgroups")
        if (wanted := text_of(each, "spec", "priorityClassName")) not in {"", *known}
    )
    problems = [
        warning(
            f"priority class {name} does not exist; {counted(count, 'job')} with it get the default priority",
            "kubectl apply -k deploy/lasting    or kubectl get priorityclasses",
            about=f"priorityclass/{name}",
        )
        for name, count in sorted(named.items())
    ]
    absent = [name for name in _DEFAULT_CLASSES if name not in known and name not in named]
    if absent:
        help_text = "kubectl apply -k deploy/lasting"
        problems.append(
            warning(f"priority classes are not installed: {first_of(absent)}", help_text, found=first_of(absent))
        )
    return Looked(well="priority classes that jobs name exist", findings=problems)


# --- What is looked at ---------------------------------------------------------------------------------------------


def _groups_by_queue(seen: Seen) -> Mapping[str, list[str]]:
    out: dict[str, list[str]] = {}
    for each in seen.all("podgroups"):
        out.setdefault(text_of(each, "spec", "queue"), []).append(key_of(each))
    return out


def _leaves_below(seen: Seen, queue: str) -> list[str]:
    parents = {name_of(each): text_of(each, "spec", "parentQueue") for each in seen.all("queues")}
    inner = set(parents.values())
    return sorted(name for name in parents if name not in inner and queue in ancestry(name, parents))


def _jobs(groups: list[str]) -> str:
    return f"job {groups[0]} is" if len(groups) == 1 else f"{len(groups)} jobs ({first_of(groups)}) are"


def _alive(seen: Seen) -> Iterator[Manifest]:
    yield from (each for each in seen.all("pods") if text_of(each, "status", "phase") not in ENDED)


def _waiting(seen: Seen) -> Iterator[Manifest]:
    """Yield kai's pods that have no node yet."""
    # Without a scheduler of kai its usual name: pods that wait for it are what the check is for then.
    ours = {each.pool[0] for each in seen.programs()} or {names.SCHEDULER_NAME}
    for each in _alive(seen):
        if text_of(each, "spec", "schedulerName") in ours and not text_of(each, "spec", "nodeName"):
            yield each


def _age(manifest: Manifest, now: float) -> float:
    try:
        return now - values.instant(text_of(manifest, "metadata", "creationTimestamp"))
    except BadValue:
        # Without a time that can be read it counts as new, so it is never called late.
        return 0.0


def _gpus(node: Manifest) -> bool:
    amounts = part_of(node, "status", "allocatable")
    found = [amounts.get(name) for name in names.GPU_RESOURCES] if isinstance(amounts, Mapping) else []
    return any(str(each or "0") != "0" for each in found)


def _tells_memory(label: str) -> bool:
    return label == names.NODE_GPU_MEMORY or label.startswith(names.NODE_AMD_GPU_MEMORY_PREFIX)
