"""The pages as values: for each page its title, and its sections with the values for their templates.

Every function here computes from a `Look`, and must run in a worker thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from kai.answers.documents.document import as_json
from kai.answers.documents.nodes import closed, occupied
from kai.answers.documents.queues import entitled
from kai.basics.trees import OTHERS, branches
from kai.basics.wording import counted
from kai.dashboard import charts, past
from kai.dashboard.access import missing_rights
from kai.dashboard.api import explanation_of
from kai.dashboard.look import History, Look
from kai.deciding.explain.codes import NEVER, stage_of
from kai.facts.model.axis import GPU, GPU_UNIT

if TYPE_CHECKING:
    from kai.answers.outcomes.job_lines import JobLine
    from kai.answers.outcomes.overview import Job
    from kai.answers.outcomes.queue_lines import QueueLine, QueueWeek
    from kai.answers.why.explanation import Fold

MOST_ROWS: Final = 200
"""Rows of jobs, queues or racks on one page."""
MOST_REASONS: Final = 50
MOST_NODES: Final = 200
"""With more nodes, racks are folded."""
_MOST_SHARES: Final = 20
"""The most queues that the overview names, by usage."""
_MOST_OTHERS: Final = 8
"""With more queues that share the colour "others", a legend shows their number only."""
_NEWEST: Final = 30
_MOST_WAITING: Final = 50
"""The most waiting jobs on the page of a queue; the page of jobs has all."""
_LONGEST_NUMBER: Final = 7

Values: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Pager:
    """The position among several pages of rows."""

    number: int
    last: int
    rows: int
    """Number of rows on all pages."""

    @classmethod
    def of(cls, rows: Sequence[T], query: Mapping[str, str], size: int) -> tuple[Pager, Sequence[T]]:
        """Return the requested page and its rows; the last page if there are fewer."""
        text, last = query.get("page", ""), max(1, -(-len(rows) // size))
        # Foreign input: what is no number is the first page.
        number = min(max(1, int(text) if text.isdecimal() and len(text) < _LONGEST_NUMBER else 1), last)
        return cls(number=number, last=last, rows=len(rows)), rows[(number - 1) * size : number * size]


@attrs.frozen(kw_only=True)
class View:
    """A page: the question that it answers, and its sections with their values."""

    title: str
    sections: Mapping[str, Values]
    is_found: bool = True


Maker: TypeAlias = Callable[[Look, History, tuple[str, ...], Mapping[str, str]], View]


def overview(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the overview: health, who has the GPUs, and recent events."""
    del parts
    total = look.capacity.gpus
    used, whose = _held(look)
    states = Counter(str(line.job.state) for line in look.lines)
    return View(
        title="Who has the GPUs?",
        sections={
            "verdict": {
                "used": used / GPU_UNIT,
                "whose": whose,
                "total": total / GPU_UNIT,
                "nodes": look.capacity.nodes,
                "running": sum(line.job.runs for line in look.lines) - states["Finished"],
                "waiting": sum(line.waits for line in look.lines),
                "impossible": states["Impossible"],
                "failing": look.failing,
                "facts": history.facts,
                "has_jobs": not missing_rights(look.scope, ["podgroups"]),
                "is_partial": look.scope.namespaces is not None,
            },
            "shares": {
                **_shares(look, total, used),
                "total": total / GPU_UNIT,
                "is_partial": look.scope.queues is not None,
                "missing": missing_rights(look.scope, ["queues"]),
            },
            "usage": past.used(look, history.past, query, _branches(look), _MOST_SHARES),
            "happened": {
                "items": history.happenings[::-1][:_NEWEST],
                "is_partial": look.scope.namespaces is not None,
                "missing": missing_rights(look.scope, ["podgroups"]),
            },
        },
    )


def _held(look: Look) -> tuple[float, str]:
    """Return how many GPUs are in use, as far as the reader may see, and by what; "" for the whole cluster."""
    used = sum(line.shares[GPU].used for line in look.tops)
    if look.scope.queues is None:
        return used, ""
    if look.queues:
        return used, counted(len(look.queues), "queue")
    return sum(line.job.gpus_held or 0 for line in look.lines), counted(len(look.lines), "job")


def _branches(look: Look) -> list[QueueLine]:
    names = frozenset(branches(look.queues))
    return [line for line in look.queues if line.name in names]


def _shares(look: Look, total: int, used: float) -> Values:
    """Return the users of GPUs: the queues with the most usage by name, the others together, and the rest."""
    lines = _branches(look)
    most = sorted(lines, key=lambda line: (-line.shares[GPU].used, line.name))[:_MOST_SHARES]
    named = frozenset(line.name for line in most)
    rest = [line for line in lines if line.name not in named]
    shares = charts.shares_of([line for line in lines if line.name in named], look.colors, total)
    if rest:
        amount = sum(line.shares[GPU].used for line in rest)
        shares.append(charts.part_after(shares, counted(len(rest), "other queue"), amount, total))
    return {"parts": shares, "idle": (total - used) / GPU_UNIT}


def queues(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the page of queues: entitlement, usage and demand."""
    if parts:
        return _queue(look, history, parts[0], query)
    total, resource = _axis(look)
    pager, lines = Pager.of(look.queues, query, MOST_ROWS)
    bars = [charts.bar_of(line, look.colors.get(line.name, "x"), total, resource) for line in lines]
    return View(
        title="Who is entitled to what, who has it, who wants it?",
        sections={
            "queues": {
                "bars": bars,
                "pager": pager,
                "is_partial": look.scope.queues is not None,
                "unit": "GPUs" if resource == GPU else "cores",
                "total": total / 1000,
                "missing": missing_rights(look.scope, ["queues"]),
            },
            "usage": past.used(look, history.past, query, lines),
        },
    )


def _queue(look: Look, history: History, name: str, query: Mapping[str, str]) -> View:
    found = look.entitlement(name)
    if found is None:
        return View(title="There is no such queue", sections={}, is_found=False)
    unit = GPU_UNIT if found.resource == "gpu" else 1
    below = look.below(name)
    own = next((line for line in look.queues if line.name == name), None)
    waiting = [line for line in look.lines if line.waits and line.job.queue in below]
    # The queue in question comes first, wherever its name is among its siblings.
    siblings = sorted(found.siblings, key=lambda part: part.name != name)
    pager, shown = Pager.of(siblings, query, MOST_ROWS)
    return View(
        title=f"Why is this the share of {name}?",
        sections={
            "entitlement": {
                "found": found,
                "siblings": shown,
                "pager": pager,
                "summary": entitled(found),
                "unit": unit,
                "waiting": waiting[:_MOST_WAITING],
                "count": len(waiting),
                "week": look.week(name),
                "days": _days(look.week(name), found.resource),
                "models": () if own is None else own.models,
                "users": () if own is None else own.users,
            },
            "used": past.used_by(look, history.past, query, own),
        },
    )


@attrs.frozen(kw_only=True)
class _Bar:
    """A part of a day with one quota, in thousandths of its axes."""

    begin: float
    width: float
    height: float
    quota: float


def _days(week: QueueWeek | None, resource: str) -> list[tuple[str, list[_Bar]]]:
    """Return the bars of each day of a week; an unlimited quota is as high as the highest."""
    if week is None:
        return []
    days = list(week.days(resource))
    # Not 0, where no quota of the week is above it.
    most = max((quota for _, cells in days for quota in cells), default=0.0) or 1.0
    found = []
    for day, cells in days:
        bars: list[_Bar] = []
        for quota, same in groupby(cells):
            begin = bars[-1].begin + bars[-1].width if bars else 0.0
            height = 1000.0 if quota < 0 else 1000 * quota / most
            bars.append(_Bar(begin=begin, width=1000 * len(list(same)) / len(cells), height=height, quota=quota))
        found.append((day, bars))
    return found


def jobs(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the page of jobs: running and waiting ones, the reasons, and the order of queues."""
    if len(parts) == 2:
        return _job(look, history, parts[0], parts[1])
    if parts:
        return View(title="There is no such page", sections={}, is_found=False)
    state, queue = query.get("state", ""), query.get("queue", "")
    below = look.below(queue) if queue else frozenset[str]()
    chosen = [
        line for line in look.lines if (not queue or line.job.queue in below) and (not state or _is_in(line, state))
    ]
    chosen.sort(key=_SORTS.get(query.get("sort", ""), _by_place))
    counts = Counter(str(line.job.state) for line in look.lines)
    pager, shown = Pager.of(chosen, query, MOST_ROWS)
    return View(
        title="What runs, what waits, and why?",
        sections={
            "jobs": {
                "lines": shown,
                "pager": pager,
                "is_partial": look.scope.namespaces is not None,
                "states": sorted(counts.items()),
                "waiting": sum(line.waits for line in look.lines),
                "queues": sorted({line.job.queue for line in look.lines}),
                "state": state,
                "queue": queue,
                "sort": query.get("sort", ""),
                "now": look.time,
                "missing": missing_rights(look.scope, ["podgroups"]),
            }
        },
    )


def _by_place(line: JobLine) -> tuple[Any, ...]:
    return (not line.waits, line.job.queue, line.position or 0, line.job.name)


_SORTS: Final[Mapping[str, Callable[[JobLine], tuple[Any, ...]]]] = {
    "name": lambda line: (line.job.name, line.job.namespace),
    "gpus": lambda line: (-line.job.gpus, line.job.name),
    "since": lambda line: (line.since or float("inf"), line.job.name),
    "priority": lambda line: (-(line.job.priority or 0), line.job.name),
}


def _is_in(line: JobLine, state: str) -> bool:
    return line.waits if state == "waiting" else str(line.job.state).lower() == state.lower()


def _job(look: Look, history: History, namespace: str, name: str) -> View:
    line = look.find(namespace, name)
    if line is None:
        return View(title="There is no such job", sections={}, is_found=False)
    explanation = explanation_of(look, namespace, name)
    happenings = [
        each
        for each in reversed(history.happenings)
        if (each.namespace, each.job) == (namespace, name) or (each.for_namespace, each.for_job) == (namespace, name)
    ]
    return View(
        title=f"Where does {name} stand?",
        sections={
            "explanation": {
                "line": line,
                "explanation": {} if explanation is None else as_json(explanation),
                "tries": look.tries,
                "now": look.time,
                "limit": look.run_limit(line),
            },
            "history": {"items": happenings},
        },
    )


def nodes(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the page of nodes: GPUs and MIG slices, their users, and how they are divided."""
    del history
    if parts:
        return _node(look, parts[0])
    # Nodes without GPUs are left out of the map, unless no node has any.
    found = [node for node in look.nodes if node.slots or node.slices] or list(look.nodes)
    label = charts.label_of(found)
    colors = look.colors
    racks = charts.racks_of(found, label, colors, query.get("rack", ""), MOST_NODES)
    opened = [rack for rack in racks if len(rack.rows) > MOST_NODES]
    if opened:  # one rack alone can have more rows than a page
        pager, rows = Pager.of(opened[0].rows, query, MOST_NODES)
        shown_racks: Sequence[charts.Rack] = [
            attrs.evolve(rack, rows=tuple(rows)) if rack is opened[0] else rack for rack in racks
        ]
    else:
        pager, shown_racks = Pager.of(racks, query, MOST_ROWS)
    users = {user.queue or "other pods" for node in found for each in node.slices for user in each.users}
    shown = sorted({part.name for rack in shown_racks for part in rack.parts} | users)
    return View(
        title="Where are the GPUs, and who has them?",
        sections={
            "nodes": {
                "racks": shown_racks,
                "pager": pager,
                "label": label.rpartition("/")[2] or "all nodes",
                "is_folded": len(found) > MOST_NODES,
                "rooms": charts.rooms_of(found),
                "gpus": sum(rack.gpus for rack in racks),
                "free": sum(rack.free for rack in racks),
                "unhealthy": sum(rack.unhealthy for rack in racks),
                "slices": sum(rack.slices for rack in racks),
                "free_slices": charts.free_slices_of(found),
                "legend": _legend(shown, colors),
                "bare": len(look.nodes) - len(found),
                "is_partial": look.scope.namespaces is not None,
                "missing": missing_rights(look.scope, ["nodes"]),
            }
        },
    )


def _node(look: Look, name: str) -> View:
    """Build the page of one node: its tenants, its free resources, and what keeps the reader's jobs away."""
    title = f"What runs on {name}, and what is free?"
    if missing := missing_rights(look.scope, ["nodes"]):
        # The answer is the same for a node that does not exist, so it does not reveal which nodes there are.
        return View(title=title, sections={"node": {"missing": missing}})
    found = look.occupancy(name)
    if found is None:
        return View(title="There is no such node", sections={}, is_found=False)
    (slots,) = (node for node in look.nodes if node.name == name)
    colors = look.colors
    own = {line.job.title: line.job for line in look.lines}
    place = slots.labels.get(charts.label_of([slots]), "")
    users = {user.queue or "other pods" for slot in slots.slots for user in slot.users}
    users |= {user.queue or "other pods" for each in slots.slices for user in each.users}
    return View(
        title=title,
        sections={
            "node": {
                "missing": "",
                "summary": occupied(found),
                "row": charts.row_of(slots, colors),
                "places": sorted({place, *slots.domains.values()} - {name, ""}),
                "spare": look.spare(name),
                "legend": _legend(sorted(users), colors),
                "tenants": [(each, look.find(*each.job.split("/", 1)) is not None) for each in found.tenants],
                "closed": closed(found),
                "kept": [(why, [(each, own.get(each)) for each in titles]) for why, titles in found.kept_away],
                "is_partial": look.scope.namespaces is not None,
            }
        },
    )


def _legend(names: Sequence[str], colors: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names with their colours; if many names share the colour "others", only their number."""
    own = [(name, colors[name]) for name in names if colors.get(name, OTHERS) != OTHERS]
    others = [name for name in names if colors.get(name, OTHERS) == OTHERS]
    if len(others) > _MOST_OTHERS:
        return [*own, (counted(len(others), "other queue"), OTHERS)]
    return [(name, colors.get(name, OTHERS)) for name in names]


def finished(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the page of jobs that have ended."""
    del parts
    return View(
        title="Which jobs have ended, how, and what did they use?", sections=past.finished(look, history.past, query)
    )


def waiting(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the page of waiting jobs by reason; jobs that can never run come first."""
    del history, parts
    folds = sorted(
        look.folds(),
        key=lambda fold: (
            fold.explanation.reason.code not in NEVER,
            stage_of(fold.explanation.reason.code),
            -len(fold.alike),
        ),
    )
    pager, shown = Pager.of(folds, query, MOST_REASONS)
    return View(
        title="What waits, and for what?",
        sections={
            "waiting": {
                "rows": [_row(look, fold) for fold in shown],
                "pager": pager,
                "jobs": sum(1 + len(fold.alike) for fold in folds),
                "queues": len({fold.explanation.job.queue for fold in folds}),
                "codes": _by_code(folds),
                "rooms": charts.rooms_of(look.nodes),
                "sees_nodes": look.scope.nodes,
                "is_partial": look.scope.namespaces is not None,
                "missing": missing_rights(look.scope, ["podgroups"]),
            }
        },
    )


def _by_code(folds: Sequence[Fold]) -> Sequence[tuple[str, int]]:
    """Return the number of waiting jobs for each reason, in the order of the page."""
    counts: Counter[str] = Counter()
    for fold in folds:
        counts[fold.explanation.reason.code] += 1 + len(fold.alike)
    return list(counts.items())


def _row(look: Look, fold: Fold) -> Values:
    members, code = (fold.explanation.job, *fold.alike), fold.explanation.reason.code
    return {
        "explanation": fold.explanation,
        "jobs": len(members),
        "pods": sum(job.wanted for job in members),
        "gpus": sum(job.gpus for job in members) / GPU_UNIT,
        "is_never": code in NEVER,
        "names": members[:6],
        "more": max(0, len(members) - 6),
        "fits": _fits(look, members[0]),
    }


def _fits(look: Look, job: Job) -> str:
    """Return how many pods of a job's size fit by GPUs alone, now and later; "" for jobs without whole GPUs."""
    size, rest = divmod(job.gpus, max(1, job.wanted) * GPU_UNIT)
    if rest or size < 1 or job.gpu_memory or not look.nodes:
        return ""
    now, later, empty = charts.fits_of(look.nodes, size)
    freed = f", {later} when pods that are leaving have left" if later > now else ""
    pods = f"{counted(now, 'pod')} of {counted(size, 'GPU')}"
    return f"by GPUs alone, {pods} would fit now{freed}, {empty} on empty nodes"


def cycles(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Build the page of cycles: how long they take, and what they decide."""
    del parts, query
    lines = list(reversed(history.cycles))
    phases = sorted({name for line in lines for name in line.phases})
    longest = max((line.took for line in lines), default=0.0) or 1.0
    return View(
        title="How long do cycles take, and what do they decide?",
        sections={
            "process": {"facts": history.facts, "failing": look.failing},
            "cycles": {
                "lines": lines[:60],
                "phases": phases,
                "longest": longest,
                "groups": look.groups,
                "is_partial": look.scope.namespaces is not None,
            },
        },
    )


# --- What pages have in common -------------------------------------------------------------------------------------


def _axis(look: Look) -> tuple[float, int]:
    total = look.capacity.gpus
    return (float(total), GPU) if total else (float(look.capacity.totals[0]), 0)


MAKERS: Final[Mapping[str, Maker]] = {
    "": overview,
    "queues": queues,
    "jobs": jobs,
    "nodes": nodes,
    "waiting": waiting,
    "finished": finished,
    "cycles": cycles,
}
TITLES: Final[Sequence[tuple[str, str]]] = (
    ("", "Overview"),
    ("queues", "Queues"),
    ("jobs", "Jobs"),
    ("nodes", "Nodes"),
    ("waiting", "Waiting"),
    ("finished", "Finished"),
    ("cycles", "Cycles"),
)
