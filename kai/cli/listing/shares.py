"""The queue tree with bars: who is entitled to what, who has it, who wants it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kai.cli.console import Console
from kai.cli.tables import Cell, Column, columns, table, wrapped
from kai.wording import number_text

if TYPE_CHECKING:
    from kai.simulation.outcomes.overview import Overview
    from kai.simulation.outcomes.queue_lines import QueueLine, Share
    from kai.simulation.request import Result

CELLS = 40
_LEAST_CELLS = 10
_BESIDE = 2
"""A bar has room for what is more than the whole, and the head for the last digit of its scale."""
SHORT_LEGEND = "█ used  ▓ above fair share  ░ wanted  ◆ fair share  | quota  ] limit"
LEGEND = "█ used  ▓ used above fair share (can be reclaimed)  ░ wanted  ◆ fair share  | quota  ] limit  » more"
CPU, MEMORY, GPU = 0, 1, 2
RESOURCES = {"gpu": GPU, "cpu": CPU, "memory": MEMORY}
"""What flags call them."""
UNITS = {CPU: (1000.0, "cores"), MEMORY: (1e9, "GB"), GPU: (1000.0, "GPUs")}
"""Axis units in one of what people count, and its name."""
_NOUNS = {GPU: "GPUs", CPU: "CPU cores", MEMORY: "memory"}


def queue_tables(seen: "Overview", console: Console) -> str:
    """Return the tree for GPUs, or for CPU where there is no GPU; for every resource when the form is wide."""
    resources = [GPU, CPU, MEMORY] if console.wide else [GPU if seen.totals[GPU] else CPU]
    return "\n\n".join(
        [
            *(queue_tree(seen.queues, seen.totals[resource], resource, console) for resource in resources),
            below_trees(seen.totals, resources, console),
        ]
    )


def absent_queues(result: "Result", console: Console) -> str:
    """Return the queues that are written down and take no part, each with the reason, in one block; "" if none."""
    from kai.simulation.outcomes.declared import left_out

    if result.outcome is None:
        return ""
    lines = [f"{words.text} ({words.code})" for _, words in left_out(result.outcome)]
    return "\n".join(wrapped(line, console.width, indent="  ") for line in lines)


def below_trees(totals: Sequence[float], resources: Sequence[int], console: Console) -> str:
    """Return what the signs in the bars of these resources mean, or why there are no bars."""
    if not any(totals[resource] > 0 for resource in resources):
        lacking = [noun for resource, noun in _NOUNS.items() if totals[resource] <= 0]
        return wrapped(f"no bars are drawn: there {_are_no(lacking)} to share", console.width, indent="  ")
    return console.styled(wrapped(LEGEND, console.width, between="  "), dim=True)


def _are_no(nouns: Sequence[str]) -> str:
    verb = "is" if nouns[0] == _NOUNS[MEMORY] else "are"
    *first, last = (f"no {noun}" for noun in nouns)
    return f"{verb} {', '.join(first)} and {last}" if first else f"{verb} {last}"


def queue_tree(queues: "Sequence[QueueLine]", total: float, resource: int, console: Console) -> str:
    """Return queues as a tree, with bars on a scale that ends at ``total``; without them where that is nothing."""
    unit, noun = UNITS[resource]
    name = noun.upper() if noun.islower() else noun
    heads = [
        Column(head="QUEUE"),
        Column(head="QUOTA", right=True, drop=2),
        Column(head="LIMIT", right=True, drop=4),
        Column(head="FAIR", right=True),
        Column(head="USED", right=True),
        Column(head="WANT", right=True, drop=1),
        Column(head="RUN/WAIT", right=True, drop=5),
        Column(
            head=lambda width: _scale(total / unit, name, width - _BESIDE),
            least=_LEAST_CELLS + _BESIDE,
            most=CELLS + _BESIDE,
            drop=3,
        ),
    ]
    rows: list[list[Cell]] = [
        [
            _branches(queue) + queue.name,
            _amount(queue.shares[resource].quota, unit),
            _amount(queue.shares[resource].limit, unit),
            _amount(queue.shares[resource].fair_share, unit),
            _amount(queue.shares[resource].used, unit),
            _amount(queue.shares[resource].wanted, unit),
            f"{queue.running}/{queue.waiting}",
            _drawn_bar(queue.shares[resource], total, console),
        ]
        for queue in queues
    ]
    if total <= 0:
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return table(heads, rows, console.width)


def _drawn_bar(share: "Share", total: float, console: Console) -> Callable[[int], str]:
    return lambda width: bar(share, total, console, width - _BESIDE)


def _branches(queue: "QueueLine") -> str:
    if not queue.last:
        return ""
    stem = "".join("   " if last else "│  " for last in queue.last[:-1])
    return stem + ("└─ " if queue.last[-1] else "├─ ")


def _scale(total: float, name: str, cells: int = CELLS) -> str:
    """Return the head of the bars: amounts at every quarter, where their places are."""
    line = f"0 {name}"
    for quarter in range(1, 5):
        text = number_text(total * quarter / 4, 4)
        place = cells * quarter // 4 if quarter < 4 else cells + _BESIDE - len(text)
        if place > len(line) and (quarter == 4 or place + len(text) < cells + _BESIDE - len(number_text(total, 4))):
            line = line.ljust(place) + text
    return line


def _amount(value: float | None, unit: float) -> str:
    return "-" if value is None else number_text(value / unit, 4)


def bar(share: "Share", total: float, console: Console, size: int = CELLS) -> str:
    """Return the bar of one queue on a scale that ends at ``total``, in so many places."""
    if total <= 0:
        return ""

    def place(amount: float) -> int:
        return min(size, round(amount * size / total))

    used, wanted, fair = place(share.used), place(share.wanted), place(share.fair_share)
    cells = [" "] * (size + 1)
    for at in range(max(used, wanted)):
        cells[at] = ("█" if at < fair else "▓") if at < used else "░"
    if share.limit is not None and place(share.limit) < size:
        cells[place(share.limit)] = "]"
    if share.quota is not None and place(share.quota) != fair and place(share.quota) < size:
        cells[place(share.quota)] = "|"
    cells[fair] = "◆"
    if share.wanted > total:
        cells[size] = "»"
    return _colored("".join(cells).rstrip(), console)


def _colored(text: str, console: Console) -> str:
    if not console.color:
        return text
    colors: Mapping[str, str] = {"█": "green", "▓": "yellow", "░": "blue"}
    return "".join(console.styled(char, fg=colors[char]) if char in colors else char for char in text)


def fair_share_table(title: str, answer: Mapping[str, Any]) -> str:
    """Return the answer of a fair-share case as a table."""
    resources = sorted({resource for shares in answer["fairShare"].values() for resource in shares})
    rows = [["QUEUE", *(resource.upper() for resource in resources)]]
    for uid, shares in answer["fairShare"].items():
        rows.append([uid, *(number_text(shares.get(resource, 0.0)) for resource in resources)])
    rows.append(["left over", *(number_text(answer["remaining"].get(resource, 0.0)) for resource in resources)])
    return f"{title}\n\n" + columns(rows, right=set(range(1, len(resources) + 1)))
