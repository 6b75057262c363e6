"""Explanations: for each job that waits the answer, what proves it and what would help; who was evicted, and why."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kai.cli.console import Console
from kai.cli.tables import columns, wrapped
from kai.documents.spans import span
from kai.model.axis import GPU_UNIT
from kai.wording import counted, first_of

if TYPE_CHECKING:
    from kai.simulation.evictions import Eviction
    from kai.simulation.explanation import Fold, JobExplanation
    from kai.simulation.request import Result
    from kai.simulation.trials import ChangeTrial, Loss

_MOST_NAMED = 4
_MOST_NODES = 6
_BETWEEN = " · "


def explanations(result: "Result", console: Console) -> list[str]:
    """Return a block of text for each reason why jobs wait, and one for all evictions."""
    if result.explained is None or result.overview is None:
        return []
    found = result.explained
    detail = console.wide or bool(console.verbose)
    blocks = [block(fold, console, detail=detail) for fold in found.folds]
    return blocks + evicted(found.evictions, found.unused, result.overview.titles, console) + assumed(found.assumptions)


def block(fold: "Fold", console: Console, *, detail: bool = False) -> str:
    """Return the answer, the evidence, and what would help; ``detail`` adds the texts of conditions."""
    each = fold.explanation
    summary = console.styled(wrapped(each.summary, console.width, indent="  "), bold=True)
    parts = [f"{summary}\n{wrapped(_facts(each, detail=detail), console.width, indent='  ', between=_BETWEEN)}"]
    evidence = [[f"  {one.label}", one.text] for one in each.evidence]
    evidence += [["  also", f"{words.text} ({words.code})"] for words in each.also]
    evidence += [["  evicted", f"{text}"] for text in each.evicted_by]
    evidence += [["  alike", text] for text in _alike(fold)]
    if detail:
        evidence += [[f"  {label}", text] for label, text in _wire(each)]
    if evidence:
        parts.append(columns(evidence, width=console.width))
    parts.append("\n".join(_changes(each, console)))
    return "\n\n".join(parts)


def _facts(each: "JobExplanation", *, detail: bool) -> str:
    job, code = each.job, each.reason.code
    if detail and each.wire_reason and each.wire_reason != code:
        code += f" (wire: {each.wire_reason})"
    parts = [code, f"queue {job.queue}", sized(job.wanted, job.gpus)]
    if each.waited:
        parts.append(f"waiting {span(each.waited)}")
    if each.position is not None:
        parts.append(f"position {each.position}")
    return _BETWEEN.join(parts)


def sized(pods: int, gpus: int) -> str:
    """Return how many pods there are, and the GPUs of all of them."""
    from kai.explain.phrases import quantity

    return counted(pods, "pod") + (f", {quantity(gpus, 'gpu')}" if gpus else "")


def _alike(fold: "Fold") -> Iterator[str]:
    """Yield which other jobs wait for the same."""
    if fold.alike:
        names = [job.title for job in fold.alike]
        named = first_of(names, _MOST_NAMED)
        size = sized(sum(job.wanted for job in fold.alike), sum(job.gpus for job in fold.alike))
        yield f"{named} {'waits' if len(names) == 1 else 'wait'} for the same ({size})"


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


# ------------------------------------------------------------------------------------------------------------- changes


def _changes(each: "JobExplanation", console: Console) -> Iterator[str]:
    rows = [[f"  {change}", outcome] for change, outcome in change_lines(each, console)]
    if not rows and each.reason.code in {"HeldForLeaving", "Moves"}:
        yield f"{each.waiting[0].upper()}{each.waiting[1:]}.{_eta(each)}"
        return
    rows.append(["  wait", each.waiting + _eta(each)])
    yield "To make it run"
    if not each.suggestions.told:
        verb = (
            "No single change that was tried would start it." if each.suggestions.all_tried else "No change was tried."
        )
        yield f"  {verb}"
    yield columns(rows, width=console.width)
    if each.suggestions.told and not each.suggestions.all_tried:
        yield "  not all changes were tried"


def change_lines(each: "JobExplanation", console: Console) -> list[tuple[str, str]]:
    """Return each change that helps, with what it leads to."""
    return [(trial.change.text, _outcome(trial, console)) for trial in each.suggestions.told]


def _eta(each: "JobExplanation") -> str:
    if each.eta is None:
        return ""
    return f" In about {span(each.eta.seconds)}, if {' and '.join(each.eta.assumptions)}."


def _outcome(trial: "ChangeTrial", console: Console) -> str:
    start = "start" if trial.waiting and trial.started > 1 else "starts"
    pods = f"{trial.started} of {trial.started + trial.waiting} pods {start}" if trial.waiting else start
    nodes = first_of(trial.nodes, _MOST_NODES)
    match trial.result:
        case "starts":
            return f"{console.styled('✓', fg='green')} {pods} now on {nodes}{_cost(trial.losses)}"
        case "held":
            return f"~ {pods} on {nodes} when others have left{_cost(trial.losses)}"
        case "kept":
            return f"~ keeps {counted(trial.started, 'pod')} that must go without it{_cost(trial.losses)}"
        case _:
            then = "" if trial.reason is None else f": {trial.reason.text} ({trial.reason.code})"
            return f"~ then waits{then}{_cost(trial.losses)}"


def _cost(losses: Sequence["Loss"]) -> str:
    """Return who pays for it: who is evicted, and who does not start in its place."""
    evictions = [(each.name, each.evicted) for each in losses if each.evicted]
    passed = [each.name for each in losses if not each.evicted]
    parts = []
    if evictions:
        total = sum(count for _, count in evictions)
        whose = evictions[0][0] if len(evictions) == 1 else f"{len(evictions)} jobs"
        parts.append(f"{counted(total, 'pod')} of {whose} {'is' if total == 1 else 'are'} evicted")
    if passed:
        parts.append(f"{passed[0]} then waits" if len(passed) == 1 else f"{len(passed)} jobs then wait")
    return "".join(f"; {part}" for part in parts)


# ----------------------------------------------------------------------------------------------------------- evictions


def evicted(
    evictions: "Sequence[Eviction]", unused: Sequence[str], titles: Mapping[str, str], console: Console
) -> list[str]:
    """Return who has to go, for whom and by which rule, in one block; none where no pod has to."""
    if not evictions:
        return []
    lines = [console.styled("Evicted", bold=True), _eviction_rows(evictions, titles, console.width)]
    because: dict[tuple[str, str], dict[str, None]] = {}
    for each in evictions:
        because.setdefault((each.beneficiary, each.cause), {}).update(dict.fromkeys(each.because))
    for (gains, cause), texts in because.items():
        if texts:
            said = f"{cause}{f' for {titles.get(gains, gains)}' if gains else ''}: {'; '.join(_few(list(texts)))}"
            lines.append(columns([["", said]], width=console.width))
    lines += [columns([["", f"unused: {text}"]], width=console.width) for text in unused]
    return ["\n".join(lines)]


def _eviction_rows(evictions: Sequence["Eviction"], titles: Mapping[str, str], width: int) -> str:
    """Return a table; pods of one job that go for the same reason are one row."""
    counts: Counter[tuple[str, str, str, str, str]] = Counter()
    gpus: Counter[tuple[str, str, str, str, str]] = Counter()
    for each in evictions:
        rule = f"{each.rule}, moves to another node" if each.moved_to else each.rule
        key = (each.job, each.queue, each.cause, each.beneficiary, rule)
        counts[key] += 1
        gpus[key] += each.gpus
    rows = [["  JOB", "QUEUE", "PODS", "GPUS", "CAUSE", "FOR", "RULE"]]
    for key, count in counts.items():
        job, queue, cause, gains, rule = key
        amount = f"{gpus[key] / GPU_UNIT:g}"
        rows.append(
            [f"  {titles.get(job, job)}", queue, str(count), amount, cause, titles.get(gains, gains) or "-", rule]
        )
    return columns(rows, right={2, 3}, width=width)


def _few(texts: list[str]) -> list[str]:
    return texts if len(texts) <= 4 else [*texts[:3], f"and {len(texts) - 3} more"]


def assumed(assumptions: Sequence[str]) -> list[str]:
    """Return what was assumed because the input does not say it, in one block."""
    return ["\n".join(f"Assumed: {text}." for text in assumptions)] if assumptions else []


__all__ = ["assumed", "block", "change_lines", "evicted", "explanations", "sized"]
