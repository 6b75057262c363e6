"""A moment of a run drawn for the size of the terminal; the most important parts keep their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

import attrs

from kai.answers.outcomes.queue_lines import Share
from kai.basics.wording import counted, number_text
from kai.cli.demonstrating.happenings import ARRIVES, BROKEN, DONE, EVICTED, HELD, STARTS, Line
from kai.cli.demonstrating.picture import GOING, IDLE, PROMISED, Gpu, JobShown, NodeShown, Picture, QueueShown
from kai.cli.listing.nodes import letters_for
from kai.cli.listing.queues import SHORT_LEGEND, bar
from kai.cli.tables import GAP, Cell, Column, cut_text, padded, shown_width, table, wrapped

if TYPE_CHECKING:
    from kai.cli.console import Console

LEAST_COLUMNS: Final = 60
_COLORS: Final = {ARRIVES: "blue", STARTS: "green", HELD: "cyan", EVICTED: "yellow", BROKEN: "red", DONE: "white"}
_SIGNS: Final = {IDLE: "·", PROMISED: "○", GOING: "×"}
_CELL_COLORS: Final = {PROMISED: "cyan", GOING: "yellow", "": "green"}
_LEAST_JOBS: Final = 2
_LEAST_BODY: Final = 9
"""Lines below which the list of jobs gives way to the list of events."""
_FRAME: Final = 6
"""The first line and the last, and the blank ones between the parts."""
_MOST_QUEUES: Final = 10
_MOST_NODE_ROWS: Final = 8
KEYS: Final = "space pause  . step  + - speed  w why  e evictions  q quit"
SHORT_KEYS: Final = "space .  + -  w why  e  q quit"
_WIDE: Final = 100
KEYS_BELOW: Final = "up and down choose  any other key back"
MORE_BELOW: Final = "space more  up and down choose  any other key back"


@attrs.frozen(kw_only=True)
class Frame:
    """The contents of one screen."""

    title: str
    picture: Picture
    lines: Sequence[Line]
    """The newest last."""
    pace: float
    state: str = ""
    """Why time passes slower than requested; "" at full speed."""
    page: str = ""
    """A text shown in place of jobs and lines."""
    turned: int = 0
    """How often the user turned to the next part of a long text."""
    note: str = ""


def drawn(frame: Frame, console: Console, columns: int, rows: int) -> list[str]:
    """Return the lines of a screen, at most ``rows`` of at most ``columns`` characters.

    Queues and nodes stay; on a low screen blank lines go first, then jobs.
    """
    width = max(LEAST_COLUMNS, columns)
    head, queues = _head(frame, console), _queues(frame.picture, console, width)
    nodes = _nodes(frame.picture, console, width)
    is_low = rows - len(queues) - len(nodes) < _LEAST_BODY + _FRAME
    gap = [] if is_low else [""]
    # A long page takes the room of the nodes, and then that of the queues.
    tops: Sequence[list[str]] = ([*queues, *gap, *nodes, *gap], [*queues, *gap], [])
    page = frame.page.splitlines()
    rooms = [rows - 2 - 2 * len(gap) - len(each) for each in tops]
    chosen = next((at for at, room in enumerate(rooms) if len(page) <= room), len(tops) - 1) if page else 0
    room = max(0, rooms[chosen])
    body = (_turned(page, room, frame.turned) if page else _body(frame, console, width, room))[:room]
    foot = _foot(frame, console, width, is_cut=len(page) > room)
    lines = [head, *gap, *tops[chosen], *body, *[""] * (room - len(body)), *gap, foot]
    return [cut_text(line, columns) if shown_width(line) > columns else line for line in lines][:rows]


def _turned(page: Sequence[str], room: int, turned: int) -> list[str]:
    """Return the part of a page that fits, with a hint that there is more."""
    if len(page) <= room:
        return list(page)
    each = max(1, room - 1)
    count = ceil(len(page) / each)
    at = turned % count
    part = page[at * each : (at + 1) * each]
    return [*part, *[""] * (each - len(part)), f"… part {at + 1} of {count}: space for the next"]


def _body(frame: Frame, console: Console, width: int, room: int) -> list[str]:
    jobs = _jobs(frame.picture, max(_LEAST_JOBS, room // 2 - 2), width) if room >= _LEAST_BODY else []
    gap = [""] if jobs and room > _LEAST_BODY else []
    return [*jobs, *gap, *_happened(frame.lines, console, room, width)]


def clock_text(seconds: float) -> str:
    """Return an instant of virtual time: ``1:00:05``."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def line_text(line: Line, console: Console, width: int = 0) -> str:
    """Return one event as one line."""
    sign = console.styled(line.sign, fg=_COLORS.get(line.sign, "white"))
    text = f"{clock_text(line.at):>8}  {padded(line.subject, 14)} {sign} {line.text}"
    return cut_text(text, width) if 0 < width < shown_width(text) else text


def _head(frame: Frame, console: Console) -> str:
    picture = frame.picture
    pace = f"{number_text(frame.pace)}x" + (f" ({frame.state})" if frame.state else "")
    idle = f"{number_text(picture.capacity - picture.used)} of {counted(picture.capacity, 'GPU')} idle"
    title = console.styled(f"kai demo {frame.title}", bold=True)
    return "   ".join([title, f"T+{clock_text(picture.at)}", pace, f"cycle {picture.cycle}", idle])


def _foot(frame: Frame, console: Console, width: int, *, is_cut: bool) -> str:
    below = MORE_BELOW if is_cut else KEYS_BELOW
    keys = below if frame.page else KEYS if width >= _WIDE else SHORT_KEYS
    text = frame.note or f"next: {frame.picture.upcoming or 'nothing that is known'}"
    return padded(cut_text(text, width - len(keys) - len(GAP)), width - len(keys)) + console.styled(keys, dim=True)


# --- Queues --------------------------------------------------------------------------------------------------------


def _queues(picture: Picture, console: Console, width: int) -> list[str]:
    shown = [queue for queue in picture.queues if queue.depth or queue.leaf][:_MOST_QUEUES]
    heads = [
        Column(head="QUEUE"),
        Column(head="QUOTA", right=True, drop=2),
        Column(head="FAIR", right=True),
        Column(head="USED", right=True),
        Column(head="WAITING", right=True, drop=1),
        Column(head=lambda room: f"0 GPUs{picture.capacity:>{max(1, room - 6)}g}", least=12, most=width),
    ]
    rows: list[list[Cell]] = [
        [
            "  " * (queue.depth - 1) + queue.name,
            "-" if queue.quota is None else number_text(queue.quota),
            number_text(queue.fair),
            number_text(queue.used),
            counted(queue.waits, "pod") if queue.waits else "-",
            _bar(queue, picture.capacity, console),
        ]
        for queue in shown
    ]
    more = sum(1 for queue in picture.queues if queue.depth or queue.leaf) - len(shown)
    legend = wrapped(SHORT_LEGEND, width, between="  ").splitlines()
    lines = [*table(heads, rows, width).splitlines(), *([f"… {more} more queues"] if more > 0 else [])]
    return [*lines, *(console.styled(line, dim=True) for line in legend)]


def _bar(queue: QueueShown, capacity: float, console: Console) -> Cell:
    share = Share(
        quota=queue.quota,
        limit=queue.limit,
        fair_share=queue.fair,
        used=queue.used,
        used_non_preemptible=0.0,
        wanted=queue.wanted,
    )
    return lambda room: bar(share, capacity, console, room - 2)


# --- Nodes ---------------------------------------------------------------------------------------------------------


def _nodes(picture: Picture, console: Console, width: int) -> list[str]:
    letters = letters_for(queue.name for queue in picture.queues if queue.leaf)
    texts = [_node(node, letters, console) for node in picture.nodes]
    widest = max(map(shown_width, texts), default=0)
    beside = max(1, (width + len(GAP)) // (widest + len(GAP)))
    rows = ceil(len(texts) / beside)
    shown = min(rows, _MOST_NODE_ROWS)
    lines = [
        GAP.join(padded(text, widest) for text in texts[row * beside : (row + 1) * beside]).rstrip()
        for row in range(shown)
    ]
    left = len(texts) - shown * beside
    named = "  ".join(f"{letter} {queue}" for queue, letter in letters.items())
    legend = f"{named}  a shared  · idle  ○ held  × leaving"
    lines += [f"… {counted(left, 'more node', 'more nodes')}"] if left > 0 else []
    return [*lines, *(console.styled(line, dim=True) for line in wrapped(legend, width, between="  ").splitlines())]


def _node(node: NodeShown, letters: dict[str, str], console: Console) -> str:
    cells = "".join(_cell(cell, letters, console) for cell in node.cells)
    return f"{node.name} {cells}" + (" closed" if node.is_closed else "")


def _cell(cell: Gpu, letters: dict[str, str], console: Console) -> str:
    letter = letters.get(cell.queue, "?")
    text = _SIGNS.get(cell.state, letter.lower() if cell.is_shared else letter)
    color = _CELL_COLORS.get(cell.state)
    return text if color is None else console.styled(text, fg=color)


# --- Jobs and what happened ----------------------------------------------------------------------------------------


def _jobs(picture: Picture, most: int, width: int) -> list[str]:
    jobs = picture.jobs
    if not jobs:
        return [f"no jobs now, {picture.to_come} will arrive" if picture.to_come else "no jobs"]
    heads = [
        Column(head="JOB"),
        Column(head="QUEUE", drop=1),
        Column(head="GPUS", right=True),
        Column(head="PODS", right=True),
        Column(head="", least=12),
    ]
    rows = [
        [job.name, job.queue, number_text(job.gpus), f"{job.running}/{job.pods}", _state(job)] for job in jobs[:most]
    ]
    more = [f"… {len(jobs) - most} more"] if len(jobs) > most else []
    return [*table(heads, rows, width).splitlines(), *more]


def _state(job: JobShown) -> str:
    if not job.waits:
        return job.text or "runs"
    return f"waits: {job.text}" if job.text else "waits"


def _happened(lines: Sequence[Line], console: Console, most: int, width: int) -> Iterator[str]:
    """Yield events, the newest cycle first, the events of each cycle in order."""
    blocks: list[list[Line]] = []
    for line in lines:
        if blocks and blocks[-1][0].at == line.at:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    newest_first = [line for block in reversed(blocks) for line in block]
    yield from (line_text(line, console, width) for line in newest_first[:most])
