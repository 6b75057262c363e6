"""What scenarios in the short form expect, in words: ``2 running, 1 pending``, ``{pending: OverLimit}``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kai.errors import InputError
from kai.framework.decisions import Evict
from kai.model.axis import GPU, GPU_UNIT
from kai.model.status import Status
from kai.simulation.case import Expected
from kai.simulation.check import Differences
from kai.simulation.overview import Job, overview
from kai.simulation.run import Cycle, Outcome
from kai.simulation.values import mapping

STATES = ("allocated", "pipelined", "running", "pending", "evicted", "moved", "terminating", "gated", "finished")
_CLAUSE = re.compile(r"(?:(?P<count>\d+)\s+)?(?P<state>[a-z]+)(?:\s+on\s+(?P<nodes>.+))?")
_PLAIN = {
    Status.BINDING: "allocated",
    Status.RUNNING: "running",
    Status.BOUND: "running",
    Status.PENDING: "pending",
    Status.GATED: "gated",
    Status.SUCCEEDED: "finished",
}


def read_expected(document: Mapping[str, Any], place: str) -> Expected | None:
    """Return what ``document`` expects, None if nothing.

    Raises: InputError for a sentence that cannot be read.
    """
    groups = mapping(document.get("expect"), f"{place}: expect")
    for name, want in groups.items():
        for clause in _sentence(want, f"{place}: expect.{name}").split(","):
            _parsed(clause, f"{place}: expect.{name}")
    idle = _gpus(document, "idle", place)
    shares = _gpus(document, "shares", place)
    return Expected(groups=groups, idle=idle, shares=shares) if groups or idle or shares else None


def differences(expected: Expected, outcome: Outcome) -> Differences:
    """Return in what an outcome differs from what is expected."""
    jobs = {job.name: job for job in overview(outcome).jobs}
    pods = _pods(outcome.last)
    found: list[str] = []
    for name, want in expected.groups.items():
        if name not in jobs:
            found.append(f"{name}: found no such group")
        else:
            found += _group(jobs[name], want, pods.get(name, []))
    found += _idle(expected, outcome.last)
    found += _shares(expected, outcome.last)
    return Differences(tuple(found))


def _sentence(want: object, place: str) -> str:
    if isinstance(want, str):
        return want
    if isinstance(want, Mapping) and len(want) == 1:
        return str(next(iter(want)))
    raise InputError(f'{place}: found {want!r}, expected "allocated on n1" or {{pending: a reason}}')


def _gpus(document: Mapping[str, Any], key: str, place: str) -> Mapping[str, float]:
    """Return the number of GPUs that is expected of each name below ``key``."""
    found = mapping(document.get(key), f"{place}: {key}")
    for name, number in found.items():
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise InputError(f"{place}: {key}.{name}: found {number!r}, expected a number of GPUs")
    return found


def _parsed(clause: str, place: str) -> tuple[int | None, str, tuple[str, ...]]:
    match = _CLAUSE.fullmatch(clause.strip())
    if match is None or match["state"] not in STATES:
        raise InputError(f"{place}: found {clause.strip()!r}, expected a number, one of {', '.join(STATES)}, and nodes")
    count = None if match["count"] is None else int(match["count"])
    return count, match["state"], tuple((match["nodes"] or "").replace(" and ", " ").split())


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
    have = _told(pods)
    sentence = _sentence(want, job.name)
    for clause in sentence.split(","):
        count, state, nodes = _parsed(clause, job.name)
        there = [node for found, node in pods if found == state]
        if len(there) != (len(pods) if count is None else count) or (nodes and set(there) != set(nodes)):
            yield f"{job.name}: {have}, expected {sentence}{_because(want)}"
            return
    if isinstance(want, Mapping):
        phrase = str(next(iter(want.values())))
        texts = [str(job.words or ""), job.message, *(message for _, message in job.pod_messages)]
        if not any(phrase.lower() in text.lower() for text in texts):
            yield f"{job.name}: {sentence} because of {texts[0] or 'nothing'}, expected {phrase!r} to be said"


def _because(want: object) -> str:
    """Return the reason that is expected beside a state, if one is."""
    return f" because of {next(iter(want.values()))!r}" if isinstance(want, Mapping) else ""


def _told(pods: list[tuple[str, str]]) -> str:
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


def _shares(expected: Expected, cycle: Cycle) -> Iterator[str]:
    rows = cycle.snapshot.queue_rows
    for queue, want in expected.shares.items():
        have = cycle.report.fair_share[rows[queue], GPU] / GPU_UNIT if queue in rows else None
        if have is None or abs(have - float(want)) > 1e-6:
            yield f"queue {queue}: fair share of {have} GPUs, expected {want}"
