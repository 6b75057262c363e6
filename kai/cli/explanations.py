"""Explanations: for each job that waits the answer, what proves it and what would help; who was evicted, and why."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kai.cli.console import Console
from kai.cli.tables import columns

if TYPE_CHECKING:
    from kai.explain.phrases import Words
    from kai.simulation.explanation import Eviction, Explained, JobExplanation
    from kai.simulation.request import Result
    from kai.simulation.trials import Loss, Trial

_GPU = 1000
_UNITS = {"gpu": _GPU}


def explanations(result: "Result", console: Console) -> list[str]:
    """Return a block of text for each job that waits, and one for all evictions."""
    if result.explained is None:
        return []
    blocks = [_block(each, console) for each in result.explained.jobs]
    if result.explained.evictions:
        blocks.append(_evictions(result.explained.evictions, console))
    return blocks


# ---------------------------------------------------------------------------------------------------------------- jobs


def _block(each: "JobExplanation", console: Console) -> str:
    parts = [f"{console.styled(each.summary, bold=True)}\n{_facts(each)}"]
    evidence = [[f"  {one.label}", one.text] for one in each.evidence]
    evidence += [["  also", f"{words.code}: {words.text}"] for words in each.also]
    evidence += [[f"  {label}", text] for label, text in _wire(each)]
    if evidence:
        parts.append(columns(evidence))
    parts.append("\n".join(_changes(each, console)))
    return "\n\n".join(parts)


def _facts(each: "JobExplanation") -> str:
    job = each.job
    code = each.reason.code
    if each.wire_reason and each.wire_reason != code:
        code += f" (wire: {each.wire_reason})"
    pods = "1 pod" if job.wanted == 1 else f"{job.wanted} pods"
    amount = f", {job.gpus / _GPU:g} {'GPU' if job.gpus == _GPU else 'GPUs'}" if job.gpus else ""
    return " · ".join([code, f"queue {job.queue}", pods + amount, f"priority {job.priority}"])


def _wire(each: "JobExplanation") -> Iterator[tuple[str, str]]:
    """Yield the texts of conditions and events: what many pods say only once, what the group says not again."""
    job = each.job
    said = Counter(str(one) for one in job.explanations if not one.is_detail)
    for text, count in said.items():
        yield from _lines("wire" if count == 1 else f"wire, {count}x", text)
    pods: dict[str, list[str]] = {}
    for pod, message in job.pod_messages:
        if message != job.message and not any(_tidy(message) in _tidy(text) for text in said):
            pods.setdefault(_tidy(message), []).append(pod)
    for message, named in pods.items():
        more = "" if len(named) == 1 else f" and {len(named) - 1} more"
        yield from _lines("pod", f"{named[0]}{more}: {message}")


def _lines(label: str, text: str) -> Iterator[tuple[str, str]]:
    first, *rest = _tidy(text).split("\n")
    yield label, first
    yield from (("", line) for line in rest)


def _tidy(text: str) -> str:
    """Return a text of the wire for people: the wire ends some sentences with two full stops."""
    lines = (line.rstrip() for line in text.rstrip().split("\n"))
    return "\n".join(f"{line.rstrip('.')}." if line.endswith("..") else line for line in lines)


def _changes(each: "JobExplanation", console: Console) -> Iterator[str]:
    rows = [[f"  {trial.change.text}", _outcome(trial, console)] for trial in each.suggestions.told]
    if not rows and each.state != "starting":
        rows.append(["  no change", "of one field that was tried lets it start"])
    if each.state == "starting" and not rows:
        yield f"{each.waiting[0].upper()}{each.waiting[1:]}."
        return
    rows.append(["  wait", each.waiting])
    yield "To make it run"
    yield columns(rows)
    if not each.suggestions.all_tried:
        yield "  not all changes were tried"


def _outcome(trial: "Trial", console: Console) -> str:
    start = "start" if trial.waiting and trial.started > 1 else "starts"
    pods = f"{trial.started} of {trial.started + trial.waiting} pods {start}" if trial.waiting else start
    nodes = ", ".join(trial.nodes[:6]) + (f" and {len(trial.nodes) - 6} more" if len(trial.nodes) > 6 else "")
    match trial.result:
        case "starts":
            return f"{console.styled('✓', fg='green')} {pods} now on {nodes}{_cost(trial.losses)}"
        case "held":
            return f"~ {pods} on {nodes} when others have left{_cost(trial.losses)}"
        case "kept":
            kept = "1 pod" if trial.started == 1 else f"{trial.started} pods"
            return f"~ keeps {kept} that must go without it{_cost(trial.losses)}"
        case _:
            return f"~ then waits for {trial.reason}{_cost(trial.losses)}"


def _cost(losses: Sequence["Loss"]) -> str:
    """Return who pays for it: who is evicted, and who does not start in its place."""
    evicted = [(each.name, each.evicted) for each in losses if each.evicted]
    passed = [each.name for each in losses if not each.evicted]
    parts = []
    if evicted:
        total = sum(count for _, count in evicted)
        whose = evicted[0][0] if len(evicted) == 1 else f"{len(evicted)} jobs"
        parts.append(f"{total} {'pod' if total == 1 else 'pods'} of {whose} {'is' if total == 1 else 'are'} evicted")
    if passed:
        parts.append(f"{passed[0]} then waits" if len(passed) == 1 else f"{len(passed)} jobs then wait")
    return "".join(f"; {part}" for part in parts)


# ----------------------------------------------------------------------------------------------------------- evictions


def _evictions(evictions: Sequence["Eviction"], console: Console) -> str:
    """Return who has to go, for whom and by which rule: pods of one job that go for the same reason are one line."""
    counts = Counter(
        (each.job, each.queue, each.beneficiary, each.cause, each.rule, bool(each.moved_to)) for each in evictions
    )
    gpus: Counter[tuple[str, ...]] = Counter()
    because: dict[tuple[str, str], dict[str, None]] = {}
    for each in evictions:
        gpus[each.job, each.beneficiary, each.cause] += each.gpus
        because.setdefault((each.beneficiary, each.cause), {}).update(dict.fromkeys(each.because))
    rows = [["  JOB", "QUEUE", "PODS", "GPUS", "CAUSE", "FOR", "RULE"]]
    for (job, queue, gains, cause, rule, moved), count in counts.items():
        told = f"{rule}, moves to another node" if moved else rule
        amount = f"{gpus[job, gains, cause] / _GPU:g}"
        rows.append([f"  {job}", queue, str(count), amount, cause, gains or "-", told])
    lines = [console.styled("Evicted", bold=True), columns(rows, right={2, 3})]
    for (gains, cause), texts in because.items():
        if texts:
            lines.append(f"  {cause}{f' for {gains}' if gains else ''}: {'; '.join(_few(list(texts)))}")
    return "\n".join(lines)


def _few(texts: list[str]) -> list[str]:
    return texts if len(texts) <= 4 else [*texts[:3], f"and {len(texts) - 3} more"]


# ----------------------------------------------------------------------------------------------------------- documents


def documents(found: "Explained") -> dict[str, Any]:
    """Return explanations and evictions as plain values."""
    return {
        "explanations": [_document(each) for each in found.jobs],
        "evicted": [
            {
                "pod": each.pod,
                "job": each.job,
                "queue": each.queue,
                "gpus": each.gpus / _GPU,
                "cause": each.cause,
                "beneficiary": each.beneficiary or None,
                "rule": each.rule,
                "movedTo": each.moved_to or None,
                "because": list(each.because),
            }
            for each in found.evictions
        ],
    }


def _document(each: "JobExplanation") -> dict[str, Any]:
    return {
        "subject": {"kind": "PodGroup", "namespace": each.job.namespace, "name": each.job.name},
        "state": each.state,
        "summary": each.summary,
        "reason": {**_reason(each.reason), "wireReason": each.wire_reason or None},
        "also": [_reason(words) for words in each.also],
        "evidence": [{"label": one.label, "text": one.text, "values": dict(one.values)} for one in each.evidence],
        "suggestions": [_suggestion(trial) for trial in each.suggestions.told],
        "allChangesTried": each.suggestions.all_tried,
        "waiting": each.waiting,
    }


def _reason(words: "Words") -> dict[str, Any]:
    """Return a reason with its numbers. Units: GPUs in devices, CPU in millicores, memory in bytes; None is unknown."""
    facts = words.facts
    unit = _UNITS.get(str(facts.get("resource")), 1)

    def amount(key: str) -> float | None:
        value = facts.get(key)
        return float(value) / unit if isinstance(value, int | float) else None

    limit, used, requested = amount("bound"), amount("used"), amount("requested")
    excess = None if limit is None or used is None or requested is None else used + requested - limit
    return {
        "code": words.code,
        "detail": words.text,
        "queue": facts.get("queue"),
        "resource": facts.get("resource"),
        "limit": limit,
        "used": used,
        "requested": requested,
        "excess": excess,
    }


def _suggestion(trial: "Trial") -> dict[str, Any]:
    change = trial.change
    return {
        "field": change.field,
        "from": change.old or None,
        "to": change.new or None,
        "text": change.text,
        "verified": True,
        "outcome": str(trial.result),
        "nextReason": None if trial.reason is None else {"code": trial.reason.code, "detail": trial.reason.text},
        "placement": [{"pod": pod, "node": node} for pod, node in trial.placement],
        "podsStillWaiting": trial.waiting,
        "losses": [{"job": each.name, "pods": each.pods, "evicted": each.evicted} for each in trial.losses],
    }
