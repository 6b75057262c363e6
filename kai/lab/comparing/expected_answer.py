"""Comparing an answer with the expectation of a case: item by item, or group by group for the short form.

Only listed items are compared. Devices are compared by the pods that share them, not by name; counts are upper bounds
for one cycle.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kai.answers.cases.case import Expected
from kai.answers.offline.run import Cycle, Outcome
from kai.answers.outcomes.overview import Job, overview
from kai.api import values
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.wording import shown
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from kai.framework.decisions import Evict
from kai.lab.scenarios.validation import parsed_clause, sentence_of

Values = Mapping[str, Any]


@attrs.frozen
class Differences:
    """The differences of an answer; ``unknown`` when the case expects nothing."""

    found: tuple[str, ...]
    unknown: bool = False


def compare(expected: Values | None, answer: Values, *, stable_cycles: int = 0) -> Differences:
    """Return the differences between ``answer`` and ``expected``.

    Raises: InputError for an expectation that cannot be read.
    """
    if expected is None:
        return Differences((), unknown=True)
    try:
        if "fairShare" in expected:
            return Differences(tuple(_shares(expected, answer)))
        found = [*_state(expected, answer), *_counts(expected, answer.get("counts"))]
        later = answer.get("stable", [])
        if stable_cycles and len(later) != stable_cycles:
            found.append(f"{len(later)} stable cycles, expected {stable_cycles}")
        for number, state in enumerate(later, start=1):
            where = f"stable cycle {number}: "
            found += [where + text for text in (*_state(expected, state), *_counts(expected, state.get("counts")))]
    # Expectations are files of users. Any shape may come, and one error with its kind is better than a traceback.
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"expected: found {type(error).__name__} {error}, expected pods, nodes and counts") from error
    return Differences(tuple(found))


def _state(expected: Values, state: Values) -> Iterator[str]:
    pods = state["pods"]
    for name, want in expected.get("pods", {}).items():
        have = pods.get(name)
        if have is None:
            yield f"{name}: found no such pod"
            continue
        if have["status"] != want["status"]:
            yield f"{name}: {have['status']}, expected {want['status']}"
        if want.get("node") and have["node"] != want["node"]:
            yield f"{name}: on {have['node'] or 'no node'}, expected {want['node']}"
        if "numaZones" in want and sorted(have["numaZones"]) != sorted(want["numaZones"]):
            yield f"{name}: in NUMA zones {have['numaZones']}, expected {want['numaZones']}"
    yield from _sharing(expected, pods)
    for name, want in expected.get("nodes", {}).items():
        have = state["nodes"].get(name, {})
        for key in ("idleGpus", "releasingGpus"):
            if key in want and not _close(have.get(key, math.nan), want[key]):
                yield f"node {name}: {key} {have.get(key)}, expected {want[key]}"


def _sharing(expected: Values, pods: Values) -> Iterator[str]:
    """Compare which pods share devices: equal symbols are one device; unequal ones are two if the case says so."""
    # By node as well: a symbol of the case names a device of one node only.
    symbols: dict[tuple[str, str], set[str]] = defaultdict(set)
    devices: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, want in expected.get("pods", {}).items():
        if "gpuGroups" not in want or name not in pods:
            continue
        have = pods[name]
        if len(have["gpuGroups"]) != len(want["gpuGroups"]):
            yield f"{name}: on {len(have['gpuGroups'])} shared GPUs, expected {len(want['gpuGroups'])}"
            return
        for symbol in want["gpuGroups"]:
            symbols[have["node"], symbol].add(name)
        for device in have["gpuGroups"]:
            devices[have["node"], device].add(name)
    if expected.get("gpuGroupsDistinct"):
        if _sets(symbols) != _sets(devices):
            yield f"pods share GPUs as {_shown(devices)}, expected {_shown(symbols)}"
        return
    for (node, _), members in symbols.items():
        if not set.intersection(*(set(pods[name]["gpuGroups"]) for name in members)):
            yield f"{', '.join(sorted(members))} share no GPU of {node}, expected one"


def _sets(groups: Mapping[tuple[str, str], set[str]]) -> Counter[frozenset[str]]:
    return Counter(frozenset(members) for members in groups.values())


def _shown(groups: Mapping[tuple[str, str], set[str]]) -> str:
    return " ".join(sorted("+".join(sorted(members)) for members in groups.values())) or "none"


def _counts(expected: Values, counts: Values | Sequence[Values] | None) -> Iterator[str]:
    bounds = expected.get("counts")
    if bounds is None or counts is None:
        return
    for number, found in enumerate([counts] if isinstance(counts, Mapping) else counts, start=1):
        for key, most in bounds.items():
            if found.get(key, 0) > most:
                yield f"cycle {number}: {found[key]} {key}, expected at most {most}"


def _shares(expected: Values, answer: Values) -> Iterator[str]:
    for uid, resources in expected["fairShare"].items():
        for resource, want in resources.items():
            have = answer["fairShare"].get(uid, {}).get(resource)
            if have is None or not _close(have, want):
                yield f"queue {uid}: fair share of {resource} {have}, expected {want}"
    for resource, want in expected.get("remaining", {}).items():
        have = answer["remaining"].get(resource)
        if have is None or not _close(have, want):
            yield f"remaining {resource}: {have}, expected {want}"


def _close(found: object, wanted: object) -> bool:
    # Expectations state fair shares as floats, which sums in another order miss by the last bits.
    return math.isclose(_number(found), _number(wanted), rel_tol=1e-9, abs_tol=1e-6)


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    try:
        return values.amount(str(value), 1000) / 1000
    except BadValue:
        return math.nan


_PLAIN = {
    Status.BINDING: "allocated",
    Status.RUNNING: "running",
    Status.BOUND: "running",
    Status.PENDING: "pending",
    Status.GATED: "gated",
    Status.SUCCEEDED: "finished",
}


def differences(expected: Expected, outcome: Outcome) -> Differences:
    """Return the differences between an outcome and the expectation."""
    jobs = {job.name: job for job in overview(outcome).jobs}
    pods = _pods(outcome.last)
    found: list[str] = []
    for name, want in expected.groups.items():
        if name not in jobs:
            found.append(f"{name}: found no such group")
        else:
            found += _group(jobs[name], want, pods.get(name, []))
    found += _idle(expected, outcome.last)
    found += _gpu_shares(expected, outcome.last)
    return Differences(tuple(found))


def _pods(cycle: Cycle) -> dict[str, list[tuple[str, str]]]:
    """Return the state and the node of each pod, by group."""
    evicted = {decision.pod for decision in cycle.decisions if isinstance(decision, Evict)}
    after = cycle.aftermath
    out: dict[str, list[tuple[str, str]]] = {}
    for row, pod in enumerate(cycle.snapshot.pods):
        status = after.status(row)
        if status == Status.PIPELINED:
            state = "moved" if row in evicted else "pipelined"
        elif status == Status.RELEASING:
            state = "evicted" if row in evicted else "terminating"
        else:
            state = _PLAIN.get(status, status.label.lower())
        out.setdefault(pod.group, []).append((state, after.node(row)))
    return out


def _group(job: Job, want: object, pods: list[tuple[str, str]]) -> Iterator[str]:
    have = _states_text(pods)
    sentence = sentence_of(want, job.name)
    for clause in sentence.split(","):
        count, state, nodes = parsed_clause(clause, job.name)
        there = [node for found, node in pods if found == state]
        # Nodes as a set: "2 running on n1 n2" says where the pods are, not which one is where.
        if len(there) != (len(pods) if count is None else count) or (nodes and set(there) != set(nodes)):
            yield f"{job.name}: {have}, expected {sentence}{_because(want)}"
            return
    if isinstance(want, Mapping):
        phrase = str(next(iter(want.values())))
        texts = [str(job.waiting_reason or ""), job.message, *(message for _, message in job.pod_messages)]
        if not any(phrase.lower() in text.lower() for text in texts):
            yield f"{job.name}: {sentence} because of {texts[0] or 'nothing'}, expected {shown(phrase)} to be said"


def _because(want: object) -> str:
    """Return the expected reason for a state, as text; "" without one."""
    return f" because of {shown(next(iter(want.values())))}" if isinstance(want, Mapping) else ""


def _states_text(pods: list[tuple[str, str]]) -> str:
    counts: dict[str, list[str]] = {}
    for state, node in pods:
        counts.setdefault(state, []).append(node)
    parts = []
    for state, nodes in sorted(counts.items()):
        where = sorted({node for node in nodes if node})
        parts.append(f"{len(nodes)} {state}" + (f" on {' '.join(where)}" if where else ""))
    return ", ".join(parts) or "no pods"


def _idle(expected: Expected, cycle: Cycle) -> Iterator[str]:
    rows = cycle.snapshot.node_rows
    for node, want in expected.idle.items():
        have = cycle.report.idle[rows[node], GPU] / GPU_UNIT if node in rows else None
        if have != want:
            yield f"node {node}: {have} GPUs idle, expected {want}"


def _gpu_shares(expected: Expected, cycle: Cycle) -> Iterator[str]:
    rows = cycle.snapshot.queue_rows
    for queue, want in expected.shares.items():
        have = cycle.report.fair_share[rows[queue], GPU] / GPU_UNIT if queue in rows else None
        if have is None or abs(have - float(want)) > 1e-6:
            yield f"queue {queue}: fair share of {have} GPUs, expected {want}"
