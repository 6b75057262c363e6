"""Claims about jobs that wait, each with the way to try it; an *untruth* is a line that says what was found instead."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from kai.deciding.explain.codes import NEVER
from kai.deciding.explain.words import GroupReasons
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from kai.framework.decisions import Bind, Cause, Evict, Nominate
from tests.truth.trial import Object, Trial

Claim = Callable[[Trial], Iterator[str]]
_UNITS = {"gpu": 1000.0, "cpu": 1.0, "memory": 1_000_000.0}
_LEAVING = (Status.RELEASING, Status.STUCK_IN_RELEASING)


def every_job_that_waits_has_a_reason(trial: Trial) -> Iterator[str]:
    """A job has a reason if, and only if, pods of it wait or are held."""
    cycle = trial.outcome.last
    waits = {Status.PENDING, Status.GATED, Status.PIPELINED}
    for row, facts in enumerate(cycle.snapshot.groups):
        pods = [at for at, group in enumerate(cycle.snapshot.pod_group.tolist()) if group == row]
        does = any(int(cycle.report.status[pod]) in waits for pod in pods)
        job = trial.jobs[facts.name]
        if does != (job.waiting_reason is not None):
            yield f"{job.name}: waits {does}, reason {job.waiting_reason}"


def waiting_helps_where_it_is_said_to(trial: Trial) -> Iterator[str]:
    """``until ...`` others end: more of the job starts once all others are gone. ``does not help``: none does."""
    for each in trial.items:
        name, text = each["subject"]["name"], each["waiting"]
        hopes = re.match("until (running work|the delay|.* uses )", text) is not None
        if not hopes and not text.startswith("does not help"):
            continue
        job, alone = trial.jobs[name], trial.without_pods_of_others(name).jobs[name]
        more = alone.started + alone.held - job.started - job.held
        if hopes and more <= 0:
            yield f"{name}: {each['reason']['detail']}: wait {text}, and alone it waits: {alone.waiting_reason}"
        if not hopes and more > 0:
            yield f"{name}: {each['reason']['detail']}: wait {text}, and alone {more} more pods of it start"


def an_impossible_job_never_starts(trial: Trial) -> Iterator[str]:
    """No pod of a job that can never run starts on the empty cluster."""
    for job in trial.jobs.values():
        if job.waiting_reason is not None and job.waiting_reason.code in NEVER and not job.placed:
            alone = trial.without_pods_of_others(job.name).jobs[job.name]
            if alone.placed or alone.held:
                yield f"{job.name}: {job.waiting_reason}, and alone it starts"


def a_bound_that_is_raised_is_no_reason_any_more(trial: Trial) -> Iterator[str]:
    """``queue q may not use more than L, and this job would make it W``: with W the job does not wait for that."""
    for job in trial.jobs.values():
        words = job.waiting_reason
        if words is None or words.code not in {"OverLimit", "NonPreemptibleOverQuota"}:
            continue
        facts = words.facts
        row, resource = int(str(facts["queue_row"])), str(facts["resource"])
        queue = trial.outcome.last.snapshot.queues[row].name
        would = float(str(facts["used"])) + float(str(facts["requested"]))
        bound = "limit" if words.code == "OverLimit" else "quota"
        after = trial.with_bound(queue, bound, resource, would / _UNITS[resource]).jobs[job.name].waiting_reason
        if after is None or after.code != words.code or after.facts["queue_row"] != row:
            continue
        if after.facts["resource"] == resource and float(str(after.facts["used"])) <= float(str(facts["used"])):
            yield f"{job.name}: {words.text}; raised to that, it waits: {after.text}"


def what_no_node_has_idle_is_idle_nowhere(trial: Trial) -> Iterator[str]:
    """``no node that it may use has X idle; Y idle in all``: Y is the sum, and no node that matches has X.

    A node that is in no domain of the level that the job requires is none that it may use.
    """
    cycle = trial.outcome.last
    teller = GroupReasons(cycle.snapshot, trial.outcome.profile, cycle.report)
    rows = {facts.name: row for row, facts in enumerate(cycle.snapshot.groups)}
    total = sum(max(0, int(idle)) for idle in cycle.report.idle[:, GPU]) / GPU_UNIT
    for job in trial.jobs.values():
        if job.waiting_reason is None or not (
            match := re.search(r"; ([\d.]+) (?:whole GPUs? )?idle in all", job.waiting_reason.text)
        ):
            continue
        if abs(float(match[1]) - total) > 0.001:
            yield f"{job.name}: {job.waiting_reason.text}, and {total} are idle"
        pod = next(
            at
            for at, group in enumerate(cycle.snapshot.pod_group.tolist())
            if group == rows[job.name] and cycle.report.status[at] == Status.PENDING
        )
        refused = {node for nodes in teller.objections(pod).values() for node in nodes}
        request = cycle.snapshot.requests[int(cycle.snapshot.pod_shape[pod])]
        level = _required_level(trial, job.name)
        for node in range(len(cycle.snapshot.nodes)):
            if level and level not in cycle.snapshot.nodes[node].labels:
                continue
            if node in refused or ";" in job.waiting_reason.text.partition("in all")[2]:
                continue
            if (cycle.report.idle[node] >= request).all():
                yield f"{job.name}: {job.waiting_reason.text}, and {cycle.snapshot.nodes[node].name} has it"


def _required_level(trial: Trial, job: str) -> str:
    """Return the node label whose equal values make the domains that a job must fit in one of; "" for none."""
    spec = next(group["spec"] for group in trial.objects("PodGroup") if group["metadata"]["name"] == job)
    return str(spec.get("topologyConstraint", {}).get("requiredTopologyLevel", ""))


def nodes_are_counted_once_and_rightly(trial: Trial) -> Iterator[str]:
    """``no node matches``: each node is in one objection, and taints and states are what the nodes say."""
    nodes = {node["metadata"]["name"]: node for node in trial.objects("Node")}
    for each in trial.items:
        if each["reason"]["code"] != "NoNodeMatches" or not each["reason"]["detail"].startswith("no node matches"):
            continue
        lines = [one["values"] for one in each["evidence"] if "objection" in one["values"]]
        counts = Counter(name for values in lines for name in values["nodes"])
        if set(counts) != set(nodes) or max(counts.values()) > 1:
            yield f"{each['summary']}: {dict(counts)}, expected each of {sorted(nodes)} once"
        for values in lines:
            for name in values["nodes"]:
                if not _holds(values["objection"], nodes[name]):
                    yield f"{each['summary']}: {values['objection']} is not so of {name}"


def _holds(objection: str, node: Object) -> bool:
    """Say whether an objection is true of a node, as far as the node alone says it."""
    taints = node["spec"].get("taints", ())
    if match := re.search(r"untolerated taint \{(.*?)(?:: (.*))?\}", objection):
        return any((taint["key"], taint.get("value", "")) == (match[1], match[2] or "") for taint in taints)
    if re.fullmatch(r"(cordoned|not ready|under \w+|being deleted)( and .*)?", objection):
        ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
        pressed = [
            each for each in node["status"]["conditions"] if each["type"] != "Ready" and each["status"] == "True"
        ]
        return bool(node["spec"].get("unschedulable")) or ready != ["True"] or bool(pressed)
    return True


def a_gang_starts_with_as_many_pods_as_are_said_to_fit_when_all_is_empty(trial: Trial) -> Iterator[str]:
    """``only K would fit on empty nodes``: alone, with no minimum and no bounds, no more than K start."""
    for job in trial.jobs.values():
        if job.waiting_reason is None or not (
            match := re.search(r"only (\d+) would fit on empty nodes", job.waiting_reason.text)
        ):
            continue

        def free(obj: Object, name: str = job.name) -> Object:
            if obj["kind"] == "Queue":
                unbounded = {each: {"quota": -1, "limit": -1} for each in ("cpu", "memory", "gpu")}
                return {**obj, "spec": {**obj["spec"], "resources": unbounded}}
            if obj["kind"] != "PodGroup" or obj["metadata"]["name"] != name or obj["spec"].get("subGroups"):
                return obj
            spec = {key: value for key, value in obj["spec"].items() if key != "topologyConstraint"}
            return {**obj, "spec": {**spec, "minMember": 1}}

        alone = trial.without_pods_of_others(job.name).changed(free).jobs[job.name]
        if alone.placed + alone.held > int(match[1]):
            yield f"{job.name}: {job.waiting_reason.text}, and {alone.placed + alone.held} start"


def a_suggestion_does_what_is_said(trial: Trial) -> Iterator[str]:
    """Each change, written into the objects by its patch, leads to what is told: starts, losses, the next reason."""
    for each in trial.items:
        name = each["subject"]["name"]
        for change in each["suggestions"]:
            after = trial.patched(change["patch"])
            found = after.jobs[name]
            said = f"{name}: {change['text']}: {change['outcome']}"
            begun = {"starts": found.started, "held": found.held}.get(change["outcome"])
            if begun is not None and begun != len(change["placement"]):
                yield f"{said} {len(change['placement'])}, found {begun}, {found.waiting_reason}"
            if (
                change["outcome"] == "waits"
                and str(found.waiting_reason and found.waiting_reason.text) != change["nextReason"]["detail"]
            ):
                yield f"{said} for {change['nextReason']['detail']}, found {found.waiting_reason}"
            lost = {one["job"].rpartition("/")[2] for one in change["losses"]}
            really = {
                job.name
                for job in trial.jobs.values()
                if job.name != name and after.jobs[job.name].placed + after.jobs[job.name].held < job.placed + job.held
            }
            if lost != really:
                yield f"{said} at the cost of {sorted(lost)}, found {sorted(really)}"


def who_gains_from_an_eviction_has_a_place(trial: Trial) -> Iterator[str]:
    """``evicted for X``: X is a job of which pods start or are promised a place, which later ones may take again."""
    snapshot = trial.outcome.last.snapshot
    gaining = [each for each in trial.outcome.last.decisions if isinstance(each, Bind | Nominate)]
    jobs = {snapshot.groups[int(snapshot.pod_group[each.pod])].key for each in gaining}
    for each in trial.told.evictions:
        if each.cause == Cause.STALE.name:
            continue
        if each.beneficiary not in jobs:
            yield f"{each.pod}: evicted for {each.beneficiary or 'no job'}, which has no new place"


def a_place_that_is_held_is_being_vacated(trial: Trial) -> Iterator[str]:
    """``its place on N is being vacated``: pods of N are terminating, or leave it in this cycle."""
    cycle = trial.outcome.last
    gone = {each.pod for each in cycle.decisions if isinstance(each, Evict)}
    leaving: set[str] = set()
    for row in range(len(cycle.snapshot.pods)):
        node = int(cycle.origins[row])
        if node >= 0 and (row in gone or int(cycle.report.status[row]) in _LEAVING):
            leaving.add(cycle.snapshot.nodes[node].name)
    for job in trial.jobs.values():
        if job.waiting_reason is None or job.waiting_reason.code != "HeldForLeaving":
            continue
        named = re.findall(r"node-\d+", job.waiting_reason.text)
        if "held until pods" in job.waiting_reason.text:
            named = re.findall(r"node-\d+", job.waiting_reason.text.partition("have left")[2])
        if not leaving or ("in this cycle" not in job.waiting_reason.text and not (named and set(named) <= leaving)):
            yield f"{job.name}: {job.waiting_reason.text}, and pods leave {sorted(leaving)}"


CLAIMS: Sequence[Claim] = (
    every_job_that_waits_has_a_reason,
    waiting_helps_where_it_is_said_to,
    an_impossible_job_never_starts,
    a_bound_that_is_raised_is_no_reason_any_more,
    what_no_node_has_idle_is_idle_nowhere,
    nodes_are_counted_once_and_rightly,
    a_gang_starts_with_as_many_pods_as_are_said_to_fit_when_all_is_empty,
    a_suggestion_does_what_is_said,
    who_gains_from_an_eviction_has_a_place,
    a_place_that_is_held_is_being_vacated,
)
