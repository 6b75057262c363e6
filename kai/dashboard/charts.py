"""Charts as values for templates: bars in thousandths, GPUs as cells. Pages show the numbers beside them as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from kai.answers.outcomes.gpu_slots import FREE, HELD, LEAVING, UNHEALTHY, USED, NodeSlots, Slices, Slot
from kai.answers.outcomes.queue_lines import QueueLine
from kai.basics.trees import OTHERS
from kai.basics.wording import number_text
from kai.facts.model.axis import GPU, GPU_UNIT

WIDTH = 1000


@attrs.frozen(kw_only=True)
class Part:
    """A segment of a bar. Units: thousandths of its length."""

    name: str
    color: str
    at: float
    width: float
    amount: float
    """In GPUs, or cores."""


@attrs.frozen(kw_only=True)
class QueueBar:
    """The bar of a queue, on the axis of the whole cluster."""

    line: QueueLine
    color: str
    used: float
    over: float
    """Start of the segment of usage above the fair share."""
    wanted: float
    fair: float
    quota: float | None
    limit: float | None
    is_more: bool
    """Whether the demand exceeds the axis."""
    numbers: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class Cell:
    """One GPU as a cell."""

    color: str
    state: str
    height: float
    """The granted fraction, 0 to 1."""


@attrs.frozen(kw_only=True)
class SliceRow:
    """The MIG slices of one profile on a node."""

    profile: str
    cells: tuple[Cell, ...]
    """One for each slice; Kubernetes does not expose which slice a pod has, so used ones come first."""
    free: int
    users: str
    """The users of slices, as text."""


@attrs.frozen(kw_only=True)
class NodeRow:
    """One node of the map."""

    name: str
    product: str
    cells: tuple[Cell, ...]
    free: int
    ready: bool
    users: str
    """The users of GPUs, as text."""
    slices: tuple[SliceRow, ...] = ()
    """Its MIG slices, by profile; they are not among ``cells``."""


@attrs.frozen(kw_only=True)
class Rack:
    """Nodes with the same value of a label."""

    name: str
    nodes: int
    gpus: int
    free: int
    unhealthy: int
    slices: int
    free_slices: int
    parts: tuple[Part, ...]
    rows: tuple[NodeRow, ...]
    """Empty if the rack is folded."""


def shares_of(queues: Sequence[QueueLine], colors: Mapping[str, str], total: float) -> list[Part]:
    """Return the usage of GPUs as segments of one bar; no queue may be below another."""
    out: list[Part] = []
    for line in queues:
        out.append(part_after(out, line.name, line.shares[GPU].used, total, colors.get(line.name, OTHERS)))
    return out


def part_after(parts: Sequence[Part], name: str, amount: float, total: float, color: str = OTHERS) -> Part:
    """Return the segment after ``parts``, cut at the end of the bar."""
    at = parts[-1].at + parts[-1].width if parts else 0.0
    width = min(WIDTH - at, WIDTH * amount / total) if total else 0.0
    return Part(name=name, color=color, at=at, width=width, amount=amount / GPU_UNIT)


def bar_of(line: QueueLine, color: str, total: float, resource: int) -> QueueBar:
    """Return the bar of a queue on an axis that ends at ``total``."""
    unit = GPU_UNIT if resource == GPU else 1000 if resource == 0 else 1e9
    share = line.shares[resource]

    def place(amount: float) -> float:
        return round(max(0.0, min(1.0, amount / total)) * WIDTH, 1) if total else 0.0

    return QueueBar(
        line=line,
        color=color,
        used=place(share.used),
        over=place(min(share.used, share.fair_share)),
        wanted=place(share.wanted),
        fair=place(share.fair_share),
        quota=None if share.quota is None else place(share.quota),
        limit=None if share.limit is None or share.limit > total else place(share.limit),
        is_more=share.wanted > total,
        numbers={
            "quota": None if share.quota is None else share.quota / unit,
            "limit": None if share.limit is None else share.limit / unit,
            "fair": share.fair_share / unit,
            "used": share.used / unit,
            "want": share.wanted / unit,
        },
    )


def racks_of(nodes: Sequence[NodeSlots], label: str, colors: Mapping[str, str], opened: str, most: int) -> list[Rack]:
    """Return nodes grouped by a label; beyond ``most`` nodes only the rack ``opened`` is unfolded.

    Nodes without the label form a rack whose name is no valid label value.
    """
    groups: dict[str, list[NodeSlots]] = {}
    for node in nodes:
        groups.setdefault(node.labels.get(label, "") if label else "", []).append(node)
    shows_all = len(nodes) <= most
    without = f"without {label.rpartition('/')[2]}" if len(groups) > 1 else "all nodes"
    racks = [(name or without, members) for name, members in sorted(groups.items())]
    return [_rack(name, members, colors, shows=shows_all or name == opened) for name, members in racks]


def _rack(name: str, nodes: Sequence[NodeSlots], colors: Mapping[str, str], *, shows: bool) -> Rack:
    size = sum(len(node.slots) for node in nodes)
    taken: Counter[str] = Counter()
    for node in nodes:
        if node.taken:
            taken.update(node.taken)
    parts, at = [], 0.0
    for queue, amount in sorted(taken.items()):
        # Rounding and over-commitment must not draw beyond the bar.
        width = min(WIDTH - at, WIDTH * amount / GPU_UNIT / max(1, size))
        name_of, color = queue or "other pods", colors.get(queue, OTHERS)
        parts.append(Part(name=name_of, color=color, at=at, width=width, amount=amount / GPU_UNIT))
        at += width
    return Rack(
        name=name,
        nodes=len(nodes),
        gpus=size,
        free=sum(node.free for node in nodes),
        unhealthy=sum(node.unhealthy for node in nodes),
        slices=sum(found.total for node in nodes for found in node.slices),
        free_slices=sum(count for _, count in free_slices_of(nodes)),
        parts=tuple(parts),
        rows=tuple(row_of(node, colors) for node in nodes) if shows else (),
    )


def row_of(node: NodeSlots, colors: Mapping[str, str]) -> NodeRow:
    """Return one node with its GPUs and slices as cells."""
    users: Counter[tuple[str, str]] = Counter()
    for slot in node.slots:
        for user in slot.users:
            users[user.queue or "other pods", user.state] += user.share
    return NodeRow(
        name=node.name,
        product=node.product,
        cells=tuple(_cell(slot, colors) for slot in node.slots),
        free=node.free,
        ready=node.ready,
        users=_usage_text(users, GPU_UNIT),
        slices=tuple(_slice_row(found, colors, ready=node.ready) for found in node.slices),
    )


def _usage_text(users: Mapping[tuple[str, str], int], unit: int) -> str:
    """Return the usage by queue and state, as text."""
    return ", ".join(
        f"{queue} {number_text(amount / unit)}{'' if state == USED else f' {state}'}"
        for (queue, state), amount in sorted(users.items())
    )


def _slice_row(found: Slices, colors: Mapping[str, str], *, ready: bool) -> SliceRow:
    """Return the slices of one profile: used ones first, then those being vacated, promised, and free."""
    users: Counter[tuple[str, str]] = Counter()
    cells: dict[str, list[Cell]] = {USED: [], LEAVING: [], HELD: []}
    for user in found.users:
        users[user.queue or "other pods", user.state] += user.count
        cells[user.state] += [Cell(color=colors.get(user.queue, OTHERS), state=user.state, height=1.0)] * user.count
    here = [*cells[USED], *cells[LEAVING]]
    # Promises beyond the free slices are for slices that are being vacated, which have cells already.
    here += cells[HELD][: max(0, found.total - len(here))]
    here += [Cell(color="", state=FREE, height=0.0)] * (found.total - len(here))
    return SliceRow(
        profile=found.profile, cells=tuple(here), free=found.free if ready else 0, users=_usage_text(users, 1)
    )


def free_slices_of(nodes: Sequence[NodeSlots]) -> list[tuple[str, int]]:
    """Return the number of free MIG slices, by profile, including profiles with none."""
    counts: Counter[str] = Counter()
    for node in nodes:
        for found in node.slices:
            counts[found.profile] += found.free if node.ready else 0
    return sorted(counts.items())


def _cell(slot: Slot, colors: Mapping[str, str]) -> Cell:
    if slot.state in {FREE, UNHEALTHY} or not slot.users:
        return Cell(color="", state=slot.state, height=0.0)
    present = [user for user in slot.users if user.state != HELD] or slot.users
    largest = max(present, key=lambda user: user.share)
    height = 1.0 if slot.state in {HELD, LEAVING} else slot.granted / GPU_UNIT
    return Cell(color=colors.get(largest.queue, OTHERS), state=slot.state, height=height)


def rooms_of(nodes: Sequence[NodeSlots]) -> list[tuple[int, int]]:
    """Return how many pods of 8, 4, 2 and 1 whole GPUs would fit now, by GPUs alone."""
    counts = Counter(node.free for node in nodes)
    return [(size, sum(free // size * count for free, count in counts.items())) for size in (8, 4, 2, 1)]


def fits_of(nodes: Sequence[NodeSlots], size: int) -> tuple[int, int, int]:
    """Return how many pods of ``size`` whole GPUs fit by GPUs alone: now, after departures, and on empty nodes."""
    counts = Counter((node.free, node.left, len(node.slots) if node.ready else 0) for node in nodes)
    now = sum(free // size * count for (free, _, _), count in counts.items())
    later = sum((free + left) // size * count for (free, left, _), count in counts.items())
    return now, later, sum(whole // size * count for (_, _, whole), count in counts.items())


def label_of(nodes: Sequence[NodeSlots]) -> str:
    """Return the label for grouping nodes into racks: the narrowest level of a topology above the node itself."""
    for node in nodes:
        levels = [level for level in node.domains if not level.endswith("hostname")]
        if levels:
            return levels[-1]
    known = {key for node in nodes for key in node.labels}
    near = [key for key in sorted(known) if key.rpartition("/")[2] in {"rack", "zone"}]
    return near[0] if near else ""
