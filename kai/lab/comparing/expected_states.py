"""Comparing an outcome with the expectation of a scenario in the short form, group by group."""

from collections.abc import Iterator, Mapping

from kai.answers.cases.case import Expected
from kai.answers.offline.run import Cycle, Outcome
from kai.answers.outcomes.overview import Job, overview
from kai.basics.wording import shown
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from kai.framework.decisions import Evict
from kai.lab.comparing.expected_answer import Differences
from kai.lab.scenarios.expectations import parsed_clause, sentence_of

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
    found += _shares(expected, outcome.last)
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
        if len(there) != (len(pods) if count is None else count) or (nodes and set(there) != set(nodes)):
            yield f"{job.name}: {have}, expected {sentence}{_because(want)}"
            return
    if isinstance(want, Mapping):
        phrase = str(next(iter(want.values())))
        texts = [str(job.words or ""), job.message, *(message for _, message in job.pod_messages)]
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


def _shares(expected: Expected, cycle: Cycle) -> Iterator[str]:
    rows = cycle.snapshot.queue_rows
    for queue, want in expected.shares.items():
        have = cycle.report.fair_share[rows[queue], GPU] / GPU_UNIT if queue in rows else None
        if have is None or abs(have - float(want)) > 1e-6:
            yield f"queue {queue}: fair share of {have} GPUs, expected {want}"
