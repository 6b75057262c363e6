"""Evidence for a reason: the figures behind it, each with a label, as text for people and as values for machines."""

import difflib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf

import attrs
import numpy as np

from kai.answers.offline.run import Cycle
from kai.answers.outcomes.states import counted_gpus, demanded_by_memory
from kai.answers.why.changes import LIMITS, Site, used_against
from kai.answers.why.evictions import Evictions
from kai.answers.why.facts import (
    Ahead,
    Evidence,
    Maker,
    asks_gpus,
    idle,
    in_units,
    preempting,
    reclaiming,
    within_quotas,
)
from kai.answers.why.obstacles import affinities, claims, config_maps, devices, foreign_nodes, ports, topologies
from kai.answers.why.unfit_nodes import unfit_evidence
from kai.api.kinds import key_of
from kai.api.values import instant_text
from kai.basics.parsing import GPU_HOUR
from kai.basics.schedules import clock_text
from kai.basics.wording import counted, span_text
from kai.deciding.explain import messages
from kai.deciding.explain.code_texts import date_text, hours_text, share_text
from kai.deciding.explain.codes import Stage, stage_of
from kai.deciding.explain.phrases import alternatives, bare, listed, number, objection, quantity
from kai.deciding.explain.recorded import least_pods, whole_histogram
from kai.facts.kernels import fit
from kai.facts.model.axis import GPU, GPU_UNIT, LEADING
from kai.facts.model.groups import path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED, TERMINATING, GpuKind, Status, within
from kai.framework.decisions import Evict
from kai.framework.verdict import Histogram

_MOST_NAMED = 5
_PODS = GPU + 1


def evidence(site: Site) -> tuple[Evidence, ...]:
    """Return the evidence for the dominant reason of a group."""
    code = site.reasons[0].code
    makers = _BY_CODE.get(code) if code in _BY_CODE else _BY_STAGE.get(stage_of(code), _NO_ROOM)
    return tuple(found for make in makers or () for found in make(site))


# ------------------------------------------------------------------------------------------------------------- requests


def _needs(site: Site) -> Iterator[Evidence]:
    snapshot = site.cycle.snapshot
    facts = snapshot.groups[site.group]
    keys = {key_of(pod) for pod in site.waiting}
    rows = [row for row, pod in enumerate(snapshot.pods) if (pod.namespace, pod.name) in keys]
    each = Counter(int(snapshot.pod_shape[row]) for row in rows)
    named: Counter[tuple[str, str]] = Counter()
    for row in rows:
        leaf = int(snapshot.pod_subgroup[row])
        name = facts.subgroups[leaf].name if leaf >= 0 else ""
        named[name, _request(site, int(snapshot.pod_shape[row]))] += 1
    parts = [_part(name, count, request) for (name, request), count in _told_apart(named).items()]
    least = _at_once(site)
    together = f", {least} at once" if least > 1 else ""
    constraint = facts.subgroups[0].constraint
    level = constraint.required if constraint else ""
    near = f", all in one {level}" if level else ""
    # A request by memory has no GPUs in its columns before a node is chosen, since nodes differ in the size of their
    # GPUs. It counts here as in the demand of its queue: as a part of the smallest GPU that can hold it.
    asked = snapshot.requests @ snapshot.axis.gpu_weights() + demanded_by_memory(snapshot)
    gpus = sum(int(asked[shape]) * count for shape, count in each.items())
    values = {"pods": len(rows), "minMember": least, "gpus": gpus / GPU_UNIT, "requiredLevel": level or None}
    yield Evidence(label="needs", text=", ".join(parts) + together + near, values=values)


def _told_apart(named: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return the pods by sub-group and request; without sub-groups if these do not differ in what they ask for."""
    alike: Counter[tuple[str, str]] = Counter()
    for (_, request), count in named.items():
        alike["", request] += count  # pods with individual claims have individual shapes
    return named if len(alike) > 1 and all(name for name, _ in named) else alike


def _part(name: str, count: int, request: str) -> str:
    if not name:
        return f"{counted(count, 'pod')} x {request}"
    return f"{name} {request}" if count == 1 else f"{count} {name} x {request}"


def _at_once(site: Site) -> int:
    """Return how many pods must start together: those of the sub-group in question where the others are complete."""
    facts = site.reasons[0].facts
    return (
        int(number(facts.get("minimum"))) if facts.get("extra") else least_pods(site.cycle.snapshot.groups[site.group])
    )


def _request(site: Site, shape: int) -> str:
    """Return the request of a pod as text: its GPUs, else everything, and always the resources that are short."""
    snapshot = site.cycle.snapshot
    request, gpu, names = snapshot.requests[shape], snapshot.shapes[shape].gpu, snapshot.axis.names
    parts = [quantity(int(request[GPU]), "gpu")] if request[GPU] else []
    if gpu.kind is GpuKind.MEMORY:
        parts = [f"{gpu.memory} MiB of {'a GPU' if gpu.devices == 1 else f'each of {gpu.devices} GPUs'}"]
    others = [at for at in np.flatnonzero(request) if at not in (GPU, _PODS)]
    named = [at for at in others if names[at] in _short(site)] if parts else others
    return " and ".join(parts + [quantity(int(request[at]), names[at]) for at in named]) or "nothing"


def _short(site: Site) -> set[str]:
    """Return the resources that are short."""
    found = {str(reason.facts["resource"]) for reason in site.reasons if "resource" in reason.facts}
    # Not every reason names its resource: where nodes lack different ones, only the histogram has them.
    histogram = _histogram_of(site)
    counts = histogram.counts if histogram is not None else ()
    return found | {reason.subject for _, reason in counts if reason.code >= fit.SHORT_OF}


def _histogram_of(site: Site) -> Histogram | None:
    """Return the histogram of node objections from the first refusal of a pod."""
    record = site.cycle.report.records.get(site.group)
    return whole_histogram(
        each.facts.get("histogram") for each in (*site.reasons, *(record.reasons if record is not None else ()))
    )


# --------------------------------------------------------------------------------------------------------------- queues


def _bound(site: Site) -> Iterator[Evidence]:
    """Yield the bound of the queue, its usage, its usage with the job, and its users."""
    reason = site.reasons[0]
    resource, row = str(reason.facts["resource"]), int(number(reason.facts["queue_row"]))
    at, limit = LEADING.index(resource), reason.code in LIMITS
    bound, used, asked = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    later, model = used_against(site, reason), str(reason.facts.get("model", ""))
    queue = str(reason.facts["queue"])
    name, held = ("limit", "used") if limit else ("quota", "non-preemptible used")
    user = str(reason.facts.get("user", ""))
    name_of = f" of {model}" if model else " of each user" if user else ""
    text = f"{name}{name_of} {bare(bound, resource)}   {f'{user} holds' if user else held} {bare(used, resource)}"
    if later != used:
        text += f" when it was tried, {bare(later, resource)} in the end"
    text += f"   this job {bare(asked, resource)}   over by {bare(used + asked - bound, resource)}"
    values = {
        "queue": queue,
        "resource": resource,
        name: in_units(bound, resource),
        "used": in_units(used, resource),
        "usedInTheEnd": in_units(later, resource),
        "requested": in_units(asked, resource),
        "excess": in_units(used + asked - bound, resource),
    }
    whose = {key: each for key, each in (("model", model), ("user", user)) if each}
    yield Evidence(label=queue, text=text, values=values | whose)
    yield from _by_clock(site, f"{name} of each user" if user else name, resource)
    yield from _users(site, row, at, fixed=not limit, model=model, user=user)
    if not limit:
        yield Evidence(label="why so", text="non-preemptible jobs start only within the quota")


def _by_clock(site: Site, name: str, resource: str) -> Iterator[Evidence]:
    """Yield how the clock changes the bound ``name`` of a queue, and when the job could start; else nothing."""
    facts = site.reasons[0].facts
    zone, bound = str(facts.get("timezone", "")), bare(number(facts["bound"]), resource)
    if "from" in facts:
        at, ahead = number(facts["from"]), Ahead.of(site, site.reasons[0])
        runs = "no end of the job is known" if ahead.runs == inf else f"the job may run for {span_text(ahead.runs)}"
        text = f"its {name} falls to {bound} at {clock_text(at, zone)}{ahead.turning(at)}, and {runs}"
        values = {
            "from": instant_text(at),
            "runsAtMostSeconds": None if ahead.runs == inf else ahead.runs,
            "startsAt": None if ahead.start is None else instant_text(ahead.start),
            "fitsForSeconds": None if ahead.fits == inf else ahead.fits,
        }
        yield Evidence(label="clock", text=text, values=values)
    elif "until" in facts:
        value, until = number(facts["next"]), number(facts["until"])
        then = "unlimited" if value < 0 else bare(value, resource)
        text = f"its {name} is {bound} until {clock_text(until, zone)}, then {then}"
        values = {"until": instant_text(until), "next": in_units(value, resource)}
        yield Evidence(label="clock", text=text, values=values)


def _budget(site: Site) -> Iterator[Evidence]:
    """Yield what a budget has, what was used and is held for running work, who used it, and when it begins anew."""
    facts = site.reasons[0].facts
    queue, row = str(facts["queue"]), int(number(facts["queue_row"]))
    amount, held, asked = (number(facts[key]) for key in ("amount", "committed", "requested"))
    spent = None if facts["spent"] is None else number(facts["spent"])
    text = f"budget {facts['budget']} {hours_text(amount)} GPU-hours"
    text += "   used unknown" if spent is None else f"   used {hours_text(spent)}"
    text += f"   held for running work {hours_text(held)}   this job {hours_text(asked)}"
    if spent is not None and facts["is_open"] and spent + held + asked > amount:
        text += f"   over by {hours_text(spent + held + asked - amount)}"
    values = {
        "queue": queue,
        "budget": facts["budget"],
        "gpuHours": amount / GPU_HOUR,
        "used": None if spent is None else spent / GPU_HOUR,
        "committed": held / GPU_HOUR,
        "requested": asked / GPU_HOUR,
    }
    yield Evidence(label=queue, text=text, values=values)
    until = number(facts["until"])
    if math.isfinite(until):
        when = date_text(until, str(facts["timezone"]))
        yield Evidence(label="begins anew", text=when, values={"until": instant_text(until)})
    for label, key in (("used by", "users"), ("in jobs", "jobs")):
        found = facts.get(key)
        pairs = [each for each in found if each[0]] if isinstance(found, tuple) else []
        if pairs:
            named = {name: used / GPU_HOUR for name, used in pairs}
            shown = _some([f"{name} {hours_text(used)}" for name, used in pairs])
            yield Evidence(label=label, text=shown, values={key: named})
    yield from (attrs.evolve(each, label="running") for each in _users(site, row, GPU, fixed=False))


def _users(site: Site, queue: int, at: int, *, fixed: bool, model: str = "", user: str = "") -> Iterator[Evidence]:
    """Yield the groups at or below ``queue`` (-1: of all queues) that use a resource; promises are marked.

    With ``model``, only GPUs of that model count; with ``user``, only groups of that user.
    """
    snapshot, report = site.cycle.snapshot, site.cycle.report
    amounts: Counter[int] = Counter()
    promised: set[int] = set()
    # The column of whole GPUs lacks slices, memory and devices of claims;
    # the count has what a queue is charged for them.
    counts = snapshot.requests[:, at][snapshot.pod_shape]
    if at == GPU:
        counts = counted_gpus(snapshot, report.node, report.details)
    for row, group in enumerate(snapshot.pod_group):
        status = int(report.status[row])
        if group < 0 or not within(status, ACTIVE_ALLOCATED):
            continue
        if model and snapshot.nodes[int(report.node[row])].gpu_model != model:
            continue
        facts = snapshot.groups[group]
        if user and facts.holder != user:
            continue
        if (fixed and facts.preemptible) or not (queue < 0 or queue in path_to(snapshot.queues, facts.queue_row)):
            continue
        amounts[int(group)] += int(counts[row])
        if status == Status.PIPELINED:
            promised.add(int(group))
    resource, groups = snapshot.axis.names[at], snapshot.groups
    names = Counter(group.name for group in groups)
    # Ties by name, not by row: rows follow the order of the input, and the same cluster must give the same text.
    users = sorted((-amount, groups[group].key, group) for group, amount in amounts.items() if amount)
    texts = [
        f"{groups[group].name if names[groups[group].name] == 1 else key} {bare(-amount, resource)}"
        f"{' (promised)' if group in promised else ''}"
        for amount, key, group in users
    ]
    if texts:
        values = {"users": {key: in_units(-amount, resource) for amount, key, _ in users}}
        yield Evidence(label="used by", text=_some(texts), values=values)


def _holders(site: Site) -> Iterator[Evidence]:
    """Yield the groups that hold GPUs on any node, the greatest first."""
    if asks_gpus(site):
        yield from _users(site, -1, GPU, fixed=False)


def _queues(site: Site) -> Iterator[Evidence]:
    """Yield the leaf queues, those with similar names first."""
    queues = site.cycle.snapshot.queues
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for row, queue in enumerate(queues) if row not in parents]
    near = difflib.get_close_matches(site.source.spec.queue, leaves)
    known = [*near, *(name for name in leaves if name not in near)]
    if known:
        yield Evidence(label="leaf queues", text=listed(known, 8), values={"leafQueues": known})


def _taking(site: Site) -> Iterator[Evidence]:
    reason = next((each for each in site.reasons if each.code == "AtFairShare"), None)
    # Where it is the dominant reason, its sentence already stands above the evidence.
    if reason is None or reason is site.reasons[0]:
        return
    facts = reason.facts
    resource = str(facts["resource"])
    used, asked, share = (number(facts[key]) for key in ("used", "requested", "fair_share"))
    yield Evidence(
        label="taking",
        text=f"not allowed: {share_text(facts).partition(', so ')[0]}",
        values={
            "queue": facts["queue"],
            "resource": resource,
            "used": in_units(used, resource),
            "requested": in_units(asked, resource),
            "withThisJob": in_units(used + asked, resource),
            "fairShare": in_units(share, resource),
        },
    )


def _cap(site: Site) -> Iterator[Evidence]:
    """Yield the cap on evictions and the number of evictions that would be needed."""
    facts = site.reasons[0].facts
    cap, named = str(facts["cap"]), str(facts["queue"])
    # Facts name any queue, but a reader may lack permission for some: their snapshots leave these out.
    queue = named if any(each.name == named for each in site.cycle.snapshot.queues) else ""
    most, found, before = (number(facts[key]) for key in ("most", "found", "before"))
    parts = [f"parameters.{cap} {most:.12g}"] if most else [f"parameters.{cap}"]
    parts += [f"queue {queue}"] if queue else []
    parts += [f"evicted before {before:.12g}"] if before else []
    parts.append(f"for {'a part of ' if facts.get('part') else ''}this job {found - before:.12g}")
    parts += [f"over by {found - most:.12g}"] if most else []
    values = {"cap": cap, "most": most, "evictedBefore": before, "forThisJob": found - before, "queue": queue or None}
    yield Evidence(label="cap", text="   ".join(parts), values=values)


# ---------------------------------------------------------------------------------------------------------------- nodes


def _histogram(site: Site) -> Iterator[Evidence]:
    """Yield the objections of nodes at the first refusal of a pod, the most frequent first."""
    histogram = _histogram_of(site)
    if histogram is None:
        return
    counts: Counter[str] = Counter()
    for count, reason in histogram.counts:
        counts[messages.node_text(reason)] += count
    for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        said = objection(text)
        yield Evidence(label=counted(count, "node"), text=said, values={"nodes": count, "objection": text})


def _objections(site: Site) -> Iterator[Evidence]:
    """Yield the objections that hold even for empty nodes."""
    found = site.reasons[0].facts.get("objections")
    snapshot, idle = site.cycle.snapshot, site.cycle.report.idle
    for text, rows in found if isinstance(found, tuple) else ():
        names = [snapshot.nodes[row].name for row in rows]
        gpus = int(np.maximum(idle[list(rows), GPU], 0).sum())
        said = objection(text)
        yield Evidence(
            label=counted(len(names), "node"),
            text=f"{said}: {listed(names, 4)}" + (f" ({quantity(gpus, 'gpu')} idle)" if gpus else ""),
            values={"objection": text, "nodes": names, "idleGpus": gpus / GPU_UNIT},
        )


def _selected(site: Site) -> Iterator[Evidence]:
    """Yield for each selected label how many nodes have it, and which values the others have."""
    # All nodes, not those of the snapshot: a label may exist on nodes of
    # another pool alone, and the user should see that.
    nodes = site.objects.nodes
    for key, value in sorted({each for pod in site.waiting for each in pod.spec.node_selector.items()}):
        values = Counter(node.metadata.labels[key] for node in nodes if key in node.metadata.labels)
        others = sorted(set(values) - {value})
        count = f"{values[value] or 'none'} of {counted(len(nodes), 'node')}"
        have = (
            f"; others have {alternatives(others, 4)}"
            if others
            else ""
            if values[value]
            else "; no node has this label"
        )
        numbers = {"key": key, "value": value, "nodesWith": values[value], "others": others}
        yield Evidence(label="selector", text=f"{key}={value} is on {count}{have}", values=numbers)


def _domains(site: Site) -> Iterator[Evidence]:
    reason = site.reasons[0]
    domains = reason.facts.get("domains")
    if isinstance(domains, tuple) and domains:
        texts = [f"{name} {count}" for name, count in sorted(domains, key=lambda item: (-item[1], item[0]))]
        yield Evidence(
            label=f"by {reason.facts['level']}",
            text=f"{_some(texts)} (pods that would fit if all were empty)",
            values={"domains": dict(domains)},
        )


def _domains_now(site: Site) -> Iterator[Evidence]:
    """Yield how many of the pods each domain can hold now, the roomiest first."""
    for reason in site.cycle.report.records[site.group].reasons if site.group in site.cycle.report.records else ():
        found = reason.facts.get("small", ())
        # A domain in which the search counted no pods has -1; 0 would claim that none fits there.
        counts = {each.name: each.held for each in found if each.held >= 0} if isinstance(found, tuple) else {}
        if counts:
            level = str(reason.facts.get("requirement", "")).rpartition("/")[2]
            texts = [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
            wanted = reason.facts.get("pods", 0)
            yield Evidence(
                label=f"by {level}", text=f"{_some(texts)} (of {wanted} pods, now)", values={"domainsNow": counts}
            )


# ---------------------------------------------------------------------------------------------------------- held places


def _held(site: Site) -> Iterator[Evidence]:
    """Yield where the group will start, whose pods terminate for it, and what allowed their eviction."""
    cycle = site.cycle
    snapshot, report = cycle.snapshot, cycle.report
    rows = [int(row) for row in np.flatnonzero(snapshot.pod_group == site.group)]
    held = [row for row in rows if report.status[row] == Status.PIPELINED]
    places = {snapshot.pods[row].name: cycle.aftermath.node(row) for row in held}
    nodes = sorted(set(places.values()))
    count = counted(len(held), "pod")
    yield Evidence(label="place", text=f"{listed(nodes)} {_are(nodes)} held for {count}", values={"placement": places})
    mine = [each for each in cycle.decisions if isinstance(each, Evict) and each.aggressor == site.group]
    # Pods that this cycle evicts are listed above; these were terminating when it began, for whatever reason.
    before = [
        row
        for row, status in enumerate(snapshot.pod_status)
        if within(int(status), TERMINATING) and cycle.aftermath.node(row) in nodes
    ]
    for label, pods in (("evicted", [each.pod for each in mine]), ("leaving", before)):
        jobs = Counter(_job(cycle, row) for row in pods)
        texts = [f"{job} {count}" for job, count in sorted(jobs.items(), key=lambda item: (-item[1], item[0]))]
        if texts:
            total = counted(len(pods), "pod")
            yield Evidence(label=label, text=f"{total}: {_some(texts)}", values={"pods": len(pods), "jobs": dict(jobs)})
    book = Evictions(cycle)
    because = sorted({text for each in mine for text in book.because(each)})
    if because:
        yield Evidence(label="because", text="; ".join(because))


def _job(cycle: Cycle, pod: int) -> str:
    group = int(cycle.snapshot.pod_group[pod])
    return cycle.snapshot.groups[group].name if group >= 0 else cycle.snapshot.pods[pod].name


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


# ---------------------------------------------------------------------------------------------------------------- texts


def _some(texts: list[str]) -> str:
    left = len(texts) - _MOST_NAMED
    return "   ".join(texts[:_MOST_NAMED]) + (f"   and {left} more" if left > 0 else "")


_NO_ROOM: tuple[Maker, ...] = (
    _needs,
    idle,
    _histogram,
    unfit_evidence,
    ports,
    claims,
    devices,
    _domains_now,
    _holders,
    _taking,
    reclaiming,
    within_quotas,
    preempting,
)
_BY_STAGE: Mapping[Stage, tuple[Maker, ...]] = {
    Stage.QUEUE: (),
    Stage.READINESS: (),
    Stage.BIND: (_needs,),
    Stage.IMPOSSIBLE: (_needs, unfit_evidence),
    Stage.LIMIT: (_bound,),
    Stage.QUOTA: (_bound,),
    Stage.MATCH: (_needs, unfit_evidence),
}
_BY_CODE: Mapping[str, tuple[Maker, ...]] = {
    "BudgetUsed": (_budget,),
    "QueueDoesNotExist": (_queues,),
    "DomainTooSmall": (_needs, _domains),
    "NoNodeMatches": (_needs, _objections, unfit_evidence, _selected, affinities, claims, ports),
    "NoNodes": (_needs, foreign_nodes),
    "PodRefused": (_needs, config_maps, claims, devices),
    "TopologyMissing": (_needs, topologies),
    "TopologyLevelMissing": (_needs, topologies),
    "EvictionsCapped": (_cap, *_NO_ROOM),
    "HeldForLeaving": (_held,),
    "Moves": (),
}
"""By reason code, where other evidence applies than for the rest of the stage."""
