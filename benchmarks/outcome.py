"""Check what a cycle decided: the counts that were expected, and laws that hold for any scheduler.

A fast wrong answer is worth nothing, so every measured run is checked and carries its problems with it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from attrs import frozen

from benchmarks.manifests import node_index, running_name, running_node, waiting_name
from benchmarks.workload import RACK_LABEL, ZONE_LABEL, Pending, Workload

TINY = 1e-9


@frozen
class Decisions:
    """What one cycle decided, by pod name.

    Where pending pods are bound or were promised a place, where victims were promised another, and all victims.
    """

    bound: Mapping[str, str]
    pipelined: Mapping[str, str]
    moved: Mapping[str, str]
    evicted: frozenset[str]


def problems(workload: Workload, decisions: Decisions) -> list[str]:
    """Say everything that is wrong with ``decisions``; nothing where they are right."""
    return [
        *_wrong_counts(workload, decisions),
        *_strangers(workload, decisions),
        *_torn_gangs(workload, decisions),
        *_overcommitted(workload, decisions),
        *_scattered(workload, decisions),
    ]


def _wrong_counts(workload: Workload, decisions: Decisions) -> Iterable[str]:
    expected = workload.expected
    for what, wanted, found in (
        ("placed", expected.placed, len(decisions.bound)),
        ("pipelined", expected.pipelined, len(decisions.pipelined)),
        ("moved", expected.moved, len(decisions.moved)),
        ("evicted", expected.evicted, len(decisions.evicted)),
    ):
        if wanted != found:
            yield f"{what}: {found:,} pods, expected {wanted:,} ({expected.source})"


def _strangers(workload: Workload, decisions: Decisions) -> Iterable[str]:
    """Report decisions about pods that do not exist or are not in the state that the decision needs."""
    waiting, running = _waiting_pods(workload), _running_pods(workload)
    placed = decisions.bound.keys() | decisions.pipelined.keys()
    if strange := placed - waiting:
        yield f"placed, but not pending: {_some(strange)}"
    if unknown := decisions.evicted - running:
        yield f"evicted, but not running: {_some(unknown)}"
    if kept := decisions.moved.keys() - decisions.evicted:
        yield f"moved, but not evicted: {_some(kept)}"
    if twice := decisions.bound.keys() & decisions.pipelined.keys():
        yield f"bound and pipelined: {_some(twice)}"


def _torn_gangs(workload: Workload, decisions: Decisions) -> Iterable[str]:
    pending = workload.pending
    if pending is None:
        return
    members = Counter(_group(pod) for pod in (*decisions.bound, *decisions.pipelined))
    torn = {group for group, count in members.items() if count != pending.pods}
    if torn:
        yield f"gangs placed in part: {_some(torn)}"


def _overcommitted(workload: Workload, decisions: Decisions) -> Iterable[str]:
    """Report nodes that would have to give more GPUs than they have."""
    shape = workload.nodes
    used = defaultdict[int, float](float)
    if workload.running:
        for index in range(workload.running.groups):
            if f"{running_name(index)}-000" not in decisions.evicted:
                used[running_node(workload, index)] += float(workload.running.fraction or workload.running.gpus)
    each = _asked(workload.pending)
    for pod, node in (*decisions.bound.items(), *decisions.pipelined.items()):
        used[node_index(node)] += each.get(_group(pod), 0.0)
    for node in decisions.moved.values():
        used[node_index(node)] += workload.running.gpus if workload.running else 0
    # Parts such as 0.3 have no exact sum.
    over = [index for index, gpus in used.items() if gpus > shape.gpus + TINY or not 0 <= index < shape.count]
    if over:
        yield f"nodes given more GPUs than they have: {_some(f'{index}' for index in over)}"


def _asked(pending: Pending | None) -> Mapping[str, float]:
    """Return the GPUs that each pod asks for, by its group."""
    groups = 0 if pending is None else pending.groups
    return {waiting_name(at): float(pending.share_of(at) or pending.gpus) for at in range(groups) if pending}


def _scattered(workload: Workload, decisions: Decisions) -> Iterable[str]:
    expected, shape = workload.expected, workload.nodes
    size = {RACK_LABEL: shape.rack_size, ZONE_LABEL: shape.zone_size}.get(expected.gang_within, 0)
    if size:
        domains = defaultdict[str, set[int]](set)
        for pod, node in decisions.bound.items():
            domains[_group(pod)].add(node_index(node) // size)
        if split := [group for group, found in domains.items() if len(found) > 1]:
            yield f"gangs in more than one {expected.gang_within}: {_some(split)}"
    used = len(set(decisions.bound.values()))
    if expected.nodes_used is not None and used != expected.nodes_used:
        yield f"nodes used: {used:,}, expected {expected.nodes_used:,}"


def _running_pods(workload: Workload) -> set[str]:
    return {f"{running_name(index)}-000" for index in range(workload.running_pods)}


def _waiting_pods(workload: Workload) -> set[str]:
    pending = workload.pending
    if pending is None:
        return set()
    return {f"{waiting_name(index)}-{member:03d}" for index in range(pending.groups) for member in range(pending.pods)}


def _group(pod: str) -> str:
    return pod.rpartition("-")[0]


def _some(names: Iterable[str], shown: int = 3) -> str:
    """Name the first few of ``names`` and count the rest."""
    ordered = sorted(names)
    rest = f" and {len(ordered) - shown:,} more" if len(ordered) > shown else ""
    return ", ".join(ordered[:shown]) + rest
