"""A run over virtual time as text: a chart of GPU usage, a table of queues, the main figures, and notable facts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kai.basics.wording import counted, number_text, span_text
from kai.cli.console import Console
from kai.cli.tables import GAP, Column, columns, padded, table, wrapped
from kai.lab.virtual.results.comparison import remarks, top_queues
from kai.lab.virtual.results.metrics import goodput_text
from kai.lab.virtual.results.result import HEADLINES, figure

if TYPE_CHECKING:
    from kai.lab.virtual.results.result import QueueResult, SimulationResult

_LEVELS = " ▁▂▃▄▅▆▇█"
_WIDE = 64
_LEAST_WIDE = 24
_LAST_MARK = 4
"""Columns reserved behind the chart for the last label of the axis."""
_BETWEEN = "   "
_HOUR = 3600.0
_STEPS = (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 1440, 2880)
"""Hours between two labels of the axis."""
_MOST_MARKS = 9


def run_text(result: "SimulationResult", console: Console) -> str:
    """Return the summary of one run."""
    rows = top_queues(result)
    parts = [console.styled(wrapped(_title(result), console.width, between=" · "), bold=True)]
    if result.most_gpus and result.horizon_seconds:
        parts.append(_chart(result, rows, console))
    figures = _BETWEEN.join(_figures(result))
    meant = wrapped(goodput_text(result), console.width)
    parts += [_table(result, rows, console), f"{wrapped(figures, console.width, between=_BETWEEN)}\n{meant}"]
    said = remarks(result)
    if said:
        lines = (wrapped(f"  {text}", console.width, indent="  ") for text in said)
        parts.append("\n".join(["Worth knowing", *lines]))
    return "\n\n".join(parts)


def _title(result: "SimulationResult") -> str:
    counts = result.counts
    parts = [
        result.title,
        counted(counts["nodes"], "node"),
        counted(counts["gpus"], "GPU"),
        counted(counts["leafQueues"], "leaf queue"),
        counted(counts["jobs"], "job"),
        f"seed {result.inputs.seed}",
        *([f"from {result.starts_at[:10]}"] if result.starts_at else []),
        f"policy {result.policy}",
    ]
    return " · ".join(parts)


# --- The chart -----------------------------------------------------------------------------------------------------


def _chart(result: "SimulationResult", rows: "Sequence[QueueResult]", console: Console) -> str:
    """Return a chart of the GPUs of each queue over time; one character is the mean of its interval."""
    total = f"GPUs allocated, 0-{counts_text(result.most_gpus)}"
    names = [*(queue.name for queue in rows), "both" if len(rows) == 2 else "all"]
    head = max(len(total), *map(len, names)) + 2
    room = console.width - head - _LAST_MARK if console.width else _WIDE
    width = max(_LEAST_WIDE, min(_WIDE, room))
    lines = [padded(total, head) + _axis(result.horizon_seconds, width)]
    used = {queue.name: _used(result, queue.name) for queue in rows}
    everything = [sum(values) for values in zip(*used.values(), strict=True)] if used else []
    for name, values in [*used.items(), *([(names[-1], everything)] if len(rows) > 1 else [])]:
        lines.append((padded(name, head) + _drawn(values, result, width)).rstrip())
    return "\n".join([*lines, _reminder(head, console.width)])


def _reminder(head: int, width: int) -> str:
    """Return the reminder that allocation is not activity, aligned with the chart where it fits."""
    text = "allocation is not activity: an allocated GPU may be idle"
    return padded("", head) + text if not width or head + len(text) <= width else wrapped(text, width)


def counts_text(number: float) -> str:
    """Return a number without needless digits."""
    return f"{number:,.0f}" if number == int(number) else number_text(number)


def _axis(horizon: float, width: int) -> str:
    hours = horizon / _HOUR
    step = next((each for each in _STEPS if hours / each <= _MOST_MARKS), _STEPS[-1])
    axis = "T+0h"
    for mark in range(step, int(hours) + 1, step):
        text = f"{mark}h" if step < 24 else f"{mark // 24}d"
        at = round(mark / hours * width)
        if at > len(axis):
            axis = padded(axis, at) + text
    return axis


def _used(result: "SimulationResult", queue: str) -> list[float]:
    """Return the series of a queue: the sum of the leaves below it."""
    columns = {f"used/{name}" for name in result.queues_below(queue)}
    found = [column for name, column in result.series.columns.items() if name in columns]
    return [sum(values) for values in zip(*found, strict=True)] or [0.0] * len(result.series.start_seconds)


def _drawn(values: Sequence[float], result: "SimulationResult", width: int) -> str:
    gpus, count = result.most_gpus, len(values)
    out = []
    for place in range(width):
        first = place * count // width
        part = values[first : max(first + 1, (place + 1) * count // width)]
        level = sum(part) / len(part) / gpus if part else 0.0
        out.append(_LEVELS[min(8, max(1, round(level * 8)))] if level > 0.001 else " ")
    return "".join(out)


# --- The table and the figures -------------------------------------------------------------------------------------


def _table(result: "SimulationResult", rows: "Sequence[QueueResult]", console: Console) -> str:
    heads = [
        Column(head=""),
        Column(head="GPU-HOURS", right=True),
        Column(head="OF QUOTA", right=True, drop=2),
        Column(head="WAIT p50", right=True),
        Column(head="p95", right=True, drop=1),
        Column(head="MAX", right=True),
        Column(head="STARTED", right=True),
        Column(head="EVICTED", right=True),
        Column(head="LOST WORK", right=True, drop=1),
    ]
    lines = [_row(queue) for queue in rows]
    capacity = result.counts["gpuHours"]
    idle = max(0.0, capacity - sum(queue.gpu_hours for queue in rows))
    return table(heads, [*lines, ["idle", f"{idle:,.1f}", *["-"] * 7]], console.width)


def _row(queue: "QueueResult") -> list[str]:
    waits = (queue.wait_p50_seconds, queue.wait_p95_seconds, queue.wait_max_seconds)
    return [
        queue.name,
        f"{queue.gpu_hours:,.1f}",
        "-" if queue.of_quota is None else f"{queue.of_quota:.0%}",
        *("-" if wait is None else span_text(wait) for wait in waits),
        f"{queue.started} / {queue.jobs}",
        str(queue.evicted_pods),
        f"{queue.lost_gpu_hours:,.1f} GPU-h" if queue.lost_gpu_hours else "-",
    ]


def _figures(result: "SimulationResult") -> Iterator[str]:
    for name, text, unit in (
        ("utilisation", "utilisation", "%"),
        ("goodput", "goodput", "%"),
        ("jain", "fairness (Jain)", ""),
        ("fragmentation", "fragmentation", "%"),
        ("completionMean", "completion, mean", "s"),
    ):
        value = result.value(name)
        if value is not None:
            yield f"{text} {figure(value, unit)}"


# --- Several runs --------------------------------------------------------------------------------------------------


def runs_table(results: "Sequence[SimulationResult]", console: Console) -> str:
    """Return several runs as columns beside each other, wrapped into blocks where the terminal is narrow."""
    heads = ["", *(head for head, _, _ in HEADLINES)]
    runs = [[result.policy, *(figure(result.value(name), unit) for _, name, unit in HEADLINES)] for result in results]
    title = wrapped(_title(results[0]).rpartition(" · ")[0], console.width, between=" · ")
    blocks = [
        columns(list(zip(heads, *block, strict=True)), right=range(1, len(block) + 1), width=console.width)
        for block in _blocks(runs, console.width - max(map(len, heads)))
    ]
    meant = wrapped(goodput_text(results[0]), console.width)
    return "\n\n".join([console.styled(title, bold=True), *blocks, meant])


def _blocks(runs: "Sequence[Sequence[str]]", room: int) -> "Iterator[Sequence[Sequence[str]]]":
    """Yield the runs in blocks that fit side by side; one block without a width limit."""
    block: list[Sequence[str]] = []
    taken = 0
    for run in runs:
        needed = len(GAP) + max(map(len, run))
        if block and 0 < room < taken + needed:
            yield block
            block, taken = [], 0
        block.append(run)
        taken += needed
    yield block
