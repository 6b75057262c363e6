"""Explanations as text: the reason why a job waits, its evidence, the changes that would help, and evictions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kai.answers.documents.document import ABSENT, span
from kai.basics.wording import counted, first_of, number_text
from kai.cli.console import Console
from kai.cli.tables import columns, wrapped
from kai.deciding.explain.phrases import quantity
from kai.facts.model.units import GPU_UNIT

if TYPE_CHECKING:
    from kai.answers.documents.evictions import EvictionItem
    from kai.answers.documents.explanations import AlikeItem, ExplanationItem, InFileItem, LossItem, SuggestionItem
    from kai.answers.outcomes.overview import Job
    from kai.lab.request import Result

_MOST_NAMED = 4
_MOST_NODES = 6
_HELPS = frozenset({"starts", "held", "kept"})
_BETWEEN = " · "


def explanations(result: "Result", console: Console) -> list[str]:
    """Return a block for each reason why jobs wait, and one for all evictions."""
    from kai.answers.documents.evictions import EvictionItem
    from kai.answers.documents.explanations import ExplanationItem

    if result.explained is None or result.overview is None:
        return []
    found = result.explained
    detail = console.wide or bool(console.verbose)
    blocks = [
        block(ExplanationItem.of(fold), console, wire=wire_texts(fold.explanation.job) if detail else None)
        for fold in found.folds
    ]
    gone = tuple(map(EvictionItem.of, found.evictions))
    return blocks + evicted(gone, found.unused, result.overview.titles, console) + assumed(found.assumptions)


def block(item: "ExplanationItem", console: Console, *, wire: Sequence[tuple[str, str]] | None = None) -> str:
    """Return reason, evidence and helpful changes; ``wire`` are texts of conditions, None without ``--detail``."""
    summary = console.styled(wrapped(item.summary, console.width, indent="  "), bold=True)
    facts = _facts(item, detail=wire is not None)
    parts = [f"{summary}\n{wrapped(facts, console.width, indent='  ', between=_BETWEEN)}"]
    evidence = [[f"  {one.label}", one.text] for one in item.evidence]
    evidence += [["  also", f"{reason.detail} ({reason.code})"] for reason in item.also]
    evidence += [["  evicted", text] for text in item.evicted_by]
    evidence += [["  alike", text] for text in _alike(item.alike)]
    evidence += [[f"  {label}", text] for label, text in wire or ()]
    if evidence:
        parts.append(columns(evidence, width=console.width))
    parts.append("\n".join(changes_text(item, console)))
    return "\n\n".join([*parts, *in_file_text(item, console)])


def _facts(item: "ExplanationItem", *, detail: bool) -> str:
    code, wire = ("", None) if item.reason is None else (item.reason.code, item.reason.wire_reason)
    if detail and wire and wire != code:
        code += f" (wire: {wire})"
    parts = [code, f"queue {item.queue}", sized([item])]
    if item.waiting_seconds:
        parts.append(f"waiting {span(item.waiting_seconds)}")
    if item.position is not None:
        parts.append(f"position {item.position}")
    return _BETWEEN.join(parts)


def sized(jobs: "Sequence[ExplanationItem | AlikeItem]") -> str:
    """Return the total number of pods, and of their GPUs."""
    gpus = sum(round(each.gpus * GPU_UNIT) for each in jobs)
    return counted(sum(each.pods for each in jobs), "pod") + (f", {quantity(gpus, 'gpu')}" if gpus else "")


def _alike(jobs: "Sequence[AlikeItem]") -> Iterator[str]:
    """Yield a line that names the other jobs waiting for the same reason."""
    if jobs:
        named = first_of([each.title for each in jobs], _MOST_NAMED)
        yield f"{named} {'waits' if len(jobs) == 1 else 'wait'} for the same ({sized(jobs)})"


def wire_texts(job: "Job") -> list[tuple[str, str]]:
    """Return the texts of conditions and events; one that pods share, or repeat from the group, appears once."""
    found: list[tuple[str, str]] = []
    said = Counter(str(one) for one in job.explanations if not one.is_detail)
    for text, count in said.items():
        found += _lines("wire" if count == 1 else f"wire, {count}x", text)
    pods: dict[str, list[str]] = {}
    for pod, message in job.pod_messages:
        if message != job.message and not any(_tidy(message) in _tidy(text) for text in said):
            pods.setdefault(_tidy(message), []).append(pod)
    for message, named in pods.items():
        more = "" if len(named) == 1 else f" and {len(named) - 1} more"
        found += _lines("pod", f"{named[0]}{more}: {message}")
    return found


def _lines(label: str, text: str) -> Iterator[tuple[str, str]]:
    first, *rest = _tidy(text).split("\n")
    yield label, first
    yield from (("", line) for line in rest)


def _tidy(text: str) -> str:
    """Return a condition text for people: KAI-Scheduler ends some sentences with two full stops."""
    lines = (line.rstrip() for line in text.rstrip().split("\n"))
    return "\n".join(f"{line.rstrip('.')}." if line.endswith("..") else line for line in lines)


# ------------------------------------------------------------------------------------------------------------- changes


def changes_text(item: "ExplanationItem", console: Console, who: str = "it") -> Iterator[str]:
    """Yield lines: each change that helps with its outcome, and the outcome of waiting."""
    rows = [[f"  {change}", outcome] for change, outcome in change_lines(item, console)]
    waiting, code = item.waiting or "", "" if item.reason is None else item.reason.code
    if not rows and code in {"HeldForLeaving", "Moves"}:
        yield f"{waiting[0].upper()}{waiting[1:]}.{_eta(item)}"
        return
    has_changes = bool(rows)
    rows.append(["  wait", waiting + _eta(item)])
    yield f"To make {who} run"
    if not has_changes:
        yield (
            "  No single change that was tried would start it." if item.all_changes_tried else "  No change was tried."
        )
    yield columns(rows, width=console.width)
    if has_changes and not item.all_changes_tried:
        yield "  not all changes were tried"


def in_file_text(item: "ExplanationItem", console: Console) -> list[str]:
    """Return one block with the edit of the manifest for the first helpful change that a manifest can express."""
    chosen = next((each for each in item.suggestions if each.in_file and each.outcome in _HELPS), None)
    if chosen is None:
        return []
    rows = [[f"  {each.object or 'command'}", _merged(each)] for each in chosen.in_file[:_MOST_NAMED]]
    head = wrapped(f"What to write for: {chosen.text}", console.width)
    return [f"{head}\n{columns(rows, width=console.width)}"]


def _merged(each: "InFileItem") -> str:
    """Return the fields to merge, on one line of YAML."""
    import yaml

    if each.merge is ABSENT or each.merge is None:
        return each.command or ""
    text: str = yaml.safe_dump(each.merge, default_flow_style=True, width=float("inf"), sort_keys=False)
    return text.strip()[1:-1]


def change_lines(item: "ExplanationItem", console: Console) -> list[tuple[str, str]]:
    """Return each change with its outcome."""
    return [(each.text, _outcome(each, console)) for each in item.suggestions]


def _eta(item: "ExplanationItem") -> str:
    eta = item.eta
    return "" if eta is None else f" In about {span(eta.seconds)}, if {' and '.join(eta.assumptions)}."


def _outcome(trial: "SuggestionItem", console: Console) -> str:
    started, waiting, costs = len(trial.placement), trial.pods_still_waiting, _cost(trial.losses)
    start = "start" if waiting and started > 1 else "starts"
    pods = f"{started} of {started + waiting} pods {start}" if waiting else start
    nodes = first_of(sorted({each["node"] for each in trial.placement}), _MOST_NODES)
    match trial.outcome:
        case "starts":
            return f"{console.styled('✓', fg='green')} {pods} now on {nodes}{costs}"
        case "held":
            return f"~ {pods} on {nodes} when others have left{costs}"
        case "kept":
            return f"~ keeps {counted(trial.pods_kept, 'pod')} that must go without it{costs}"
        case _:
            reason = trial.next_reason
            then = "" if reason is None else f": {reason.detail} ({reason.code})"
            return f"~ then waits{then}{costs}"


def _cost(losses: "Sequence[LossItem]") -> str:
    """Return the cost of a change: the jobs that are evicted, and the jobs that no longer start."""
    names = [each.job.rpartition("/")[2] for each in losses]
    evictions = [(name, each.evicted) for name, each in zip(names, losses, strict=True) if each.evicted]
    passed = [name for name, each in zip(names, losses, strict=True) if not each.evicted]
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
    evictions: "Sequence[EvictionItem]", unused: Sequence[str], titles: Mapping[str, str], console: Console
) -> list[str]:
    """Return a block with each evicted pod, its beneficiary and the rule; empty without evictions."""
    if not evictions:
        return []
    lines = [console.styled("Evicted", bold=True), _eviction_rows(evictions, titles, console.width)]
    because: dict[tuple[str, str], dict[str, None]] = {}
    for each in evictions:
        because.setdefault((each.beneficiary or "", each.cause), {}).update(dict.fromkeys(each.because))
    for (gains, cause), texts in because.items():
        if texts:
            said = f"{cause}{f' for {titles.get(gains, gains)}' if gains else ''}: {'; '.join(_few(list(texts)))}"
            lines.append(columns([["", said]], width=console.width))
    lines += [columns([["", f"unused: {text}"]], width=console.width) for text in unused]
    return ["\n".join(lines)]


def _eviction_rows(evictions: "Sequence[EvictionItem]", titles: Mapping[str, str], width: int) -> str:
    """Return a table; pods of one job that are evicted for the same reason share a row."""
    counts: Counter[tuple[str, str, str, str, str]] = Counter()
    gpus: Counter[tuple[str, str, str, str, str]] = Counter()
    for each in evictions:
        rule = f"{each.rule}, moves to another node" if each.moved_to else each.rule
        key = (each.job, each.queue, each.cause, each.beneficiary or "", rule)
        counts[key] += 1
        gpus[key] += round(each.gpus * GPU_UNIT)
    rows = [["  JOB", "QUEUE", "PODS", "GPUS", "CAUSE", "FOR", "RULE"]]
    for key, count in counts.items():
        job, queue, cause, gains, rule = key
        amount = number_text(gpus[key] / GPU_UNIT)
        rows.append(
            [f"  {titles.get(job, job)}", queue, str(count), amount, cause, titles.get(gains, gains) or "-", rule]
        )
    return columns(rows, right={2, 3}, width=width)


def _few(texts: list[str]) -> list[str]:
    return texts if len(texts) <= 4 else [*texts[:3], f"and {len(texts) - 3} more"]


def assumed(assumptions: Sequence[str]) -> list[str]:
    """Return a block with the assumptions made where the input is silent."""
    return ["\n".join(f"Assumed: {text}." for text in assumptions)] if assumptions else []
