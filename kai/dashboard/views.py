"""What each page shows: its title, and its sections with the values that their templates take.

Every function here computes from a `Look` and belongs in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from kai.colors import OTHERS, branches, colors_of
from kai.dashboard import charts
from kai.dashboard.access import missing_rights
from kai.dashboard.api import explanation_fields
from kai.dashboard.feed import CycleLine, Happening
from kai.dashboard.look import Look
from kai.documents.entitlements import entitled
from kai.documents.nodes import closed, occupied
from kai.explain.codes import NEVER, stage_of
from kai.model.axis import GPU, GPU_UNIT
from kai.simulation.outcomes.job_lines import JobLine
from kai.simulation.outcomes.overview import Job
from kai.wording import counted

MOST_ROWS: Final = 500
MOST_NODES: Final = 200
"""Of more nodes, racks are folded."""
_MOST_OTHERS: Final = 8
"""Of more queues without a colour of their own, a legend tells the number alone."""
_NEWEST: Final = 30

Values: TypeAlias = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class History:
    """What is remembered of cycles before, and how the process is."""

    cycles: tuple[CycleLine, ...] = ()
    happenings: tuple[Happening, ...] = ()
    facts: tuple[tuple[str, str, bool], ...] = ()


@attrs.frozen(kw_only=True)
class View:
    """A page: the question that it answers, and sections with their values."""

    title: str
    sections: Mapping[str, Values]
    is_found: bool = True


Maker: TypeAlias = Callable[[Look, History, tuple[str, ...], Mapping[str, str]], View]


def overview(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Return: is it healthy, who has the GPUs, what just happened."""
    del parts, query
    total = look.seen.totals[GPU]
    names = branches(look.seen.queues)
    used = sum(line.shares[GPU].used for line in look.seen.queues if line.name in names)
    states = Counter(str(line.job.state) for line in look.lines)
    waiting = sum(line.waits for line in look.lines)
    told = [look.own(each) for each in reversed(history.happenings)]
    return View(
        title="Who has the GPUs?",
        sections={
            "verdict": {
                "used": used / GPU_UNIT,
                "total": total / GPU_UNIT,
                "nodes": look.seen.nodes,
                "running": sum(line.job.runs for line in look.lines) - states["Finished"],
                "waiting": waiting,
                "impossible": states["Impossible"],
                "failing": look.cycle.plugins_failing,
                "facts": history.facts,
                "has_jobs": not missing_rights(look.scope, ["podgroups"]),
            },
            "shares": {
                "parts": charts.shares_of(look.seen.queues, names, _colors(look), total),
                "total": total / GPU_UNIT,
                "idle": (total - used) / GPU_UNIT,
                "missing": missing_rights(look.scope, ["queues"]),
            },
            "happened": {"items": [each for each in told if each is not None][:_NEWEST]},
        },
    )


def queues(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Return: who is entitled to what, who has it, who wants it."""
    del history, query
    if parts:
        return _queue(look, parts[0])
    total, resource = _axis(look)
    colors = _colors(look)
    names = {line.name for line in look.queues}
    bars = [charts.bar_of(line, colors.get(line.name, "x"), total, resource) for line in look.queues]
    depths = {line.name: (line.depth if line.parent in names or not line.depth else 0) for line in look.queues}
    return View(
        title="Who is entitled to what, who has it, who wants it?",
        sections={
            "queues": {
                "bars": bars,
                "depths": depths,
                "unit": "GPUs" if resource == GPU else "cores",
                "total": total / 1000,
                "missing": missing_rights(look.scope, ["queues"]),
            }
        },
    )


def _queue(look: Look, name: str) -> View:
    found = look.entitlement(name)
    if found is None:
        return View(title="There is no such queue", sections={}, is_found=False)
    unit = GPU_UNIT if found.resource == "gpu" else 1
    below = look.seen.queues_below(name)
    waiting = [line for line in look.lines if line.waits and line.job.queue in below]
    return View(
        title=f"Why is this the share of {name}?",
        sections={
            "entitlement": {
                "found": found,
                "summary": entitled(found),
                "unit": unit,
                "waiting": waiting[:MOST_ROWS],
                "count": len(waiting),
            }
        },
    )


def jobs(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Return: what runs, what waits, why, and in which order."""
    if len(parts) == 2:
        return _job(look, history, parts[0], parts[1])
    if parts:
        return View(title="There is no such page", sections={}, is_found=False)
    state, queue = query.get("state", ""), query.get("queue", "")
    below = look.seen.queues_below(queue) if queue else frozenset[str]()
    chosen = [
        line for line in look.lines if (not queue or line.job.queue in below) and (not state or _is_in(line, state))
    ]
    chosen.sort(key=_SORTS.get(query.get("sort", ""), _by_place))
    counts = Counter(str(line.job.state) for line in look.lines)
    return View(
        title="What runs, what waits, and why?",
        sections={
            "jobs": {
                "lines": chosen[:MOST_ROWS],
                "left": max(0, len(chosen) - MOST_ROWS),
                "states": sorted(counts.items()),
                "waiting": sum(line.waits for line in look.lines),
                "queues": sorted({line.job.queue for line in look.lines}),
                "state": state,
                "queue": queue,
                "sort": query.get("sort", ""),
                "now": look.cycle.time,
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
    told = [
        look.own(each)
        for each in reversed(history.happenings)
        if (each.namespace, each.job) == (namespace, name) or (each.for_namespace, each.for_job) == (namespace, name)
    ]
    return View(
        title=f"Where does {name} stand?",
        sections={
            "explanation": {
                "line": line,
                "told": explanation_fields(look, namespace, name),
                "now": look.cycle.time,
            },
            "history": {"items": [each for each in told if each is not None]},
        },
    )


def nodes(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Return: where the GPUs and the MIG slices are, who has them, in what pieces."""
    del history
    if parts:
        return _node(look, parts[0])
    found = [node for node in look.nodes if node.slots or node.slices] or list(look.nodes)
    label = charts.label_of(found)
    colors = _colors(look)
    racks = charts.racks_of(found, label, colors, query.get("rack", ""), MOST_NODES)
    users = {user.queue or "other pods" for node in found for each in node.slices for user in each.users}
    shown = sorted({part.name for rack in racks for part in rack.parts} | users)
    return View(
        title="Where are the GPUs, and who has them?",
        sections={
            "nodes": {
                "racks": racks,
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
                "missing": missing_rights(look.scope, ["nodes"]),
            }
        },
    )


def _node(look: Look, name: str) -> View:
    """Return: what runs on one node, what is free there, and what keeps the reader's jobs from it."""
    title = f"What runs on {name}, and what is free?"
    if missing := missing_rights(look.scope, ["nodes"]):
        # Of a node that is not there a reader is told the same.
        return View(title=title, sections={"node": {"missing": missing}})
    found = look.occupancy(name)
    if found is None:
        return View(title="There is no such node", sections={}, is_found=False)
    (slots,) = (node for node in look.nodes if node.name == name)
    colors = _colors(look)
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
    """Return the names with their colours; of those that share the colour of all others only the number, if many."""
    own = [(name, colors[name]) for name in names if colors.get(name, OTHERS) != OTHERS]
    others = [name for name in names if colors.get(name, OTHERS) == OTHERS]
    if len(others) > _MOST_OTHERS:
        return [*own, (counted(len(others), "other queue"), OTHERS)]
    return [(name, colors.get(name, OTHERS)) for name in names]


def waiting(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Return: what waits for what, the impossible first."""
    del history, parts, query
    folds = sorted(
        look.folds(),
        key=lambda fold: (
            fold.explanation.reason.code not in NEVER,
            stage_of(fold.explanation.reason.code),
            -len(fold.alike),
        ),
    )
    rows = []
    for fold in folds:
        members = (fold.explanation.job, *fold.alike)
        rows.append(
            {
                "told": fold.explanation,
                "jobs": len(members),
                "pods": sum(job.wanted for job in members),
                "gpus": sum(job.gpus for job in members) / GPU_UNIT,
                "is_never": fold.explanation.reason.code in NEVER,
                "names": members[:6],
                "more": max(0, len(members) - 6),
                "fits": _fits(look, members[0]),
            }
        )
    return View(
        title="What waits, and for what?",
        sections={
            "waiting": {
                "rows": rows,
                "jobs": sum(row["jobs"] for row in rows),
                "rooms": charts.rooms_of(look.nodes),
                "sees_nodes": look.scope.nodes,
                "missing": missing_rights(look.scope, ["podgroups"]),
            }
        },
    )


def _fits(look: Look, job: Job) -> str:
    """Return how many pods like those of a job fit, by GPUs alone, now and later; "" where they want no whole GPUs."""
    size, rest = divmod(job.gpus, max(1, job.wanted) * GPU_UNIT)
    if rest or size < 1 or job.gpu_memory or not look.nodes:
        return ""
    now, later, empty = charts.fits_of(look.nodes, size)
    freed = f", {later} when pods that are leaving have left" if later > now else ""
    pods = f"{counted(now, 'pod')} of {counted(size, 'GPU')}"
    return f"by GPUs alone, {pods} would fit now{freed}, {empty} on empty nodes"


def cycles(look: Look, history: History, parts: tuple[str, ...], query: Mapping[str, str]) -> View:
    """Return: how long cycles take, and what they decide."""
    del parts, query
    lines = list(reversed(history.cycles))
    phases = sorted({name for line in lines for name in line.phases})
    longest = max((line.took for line in lines), default=0.0) or 1.0
    return View(
        title="How long do cycles take, and what do they decide?",
        sections={
            "process": {"facts": history.facts, "failing": look.cycle.plugins_failing},
            "cycles": {"lines": lines[:60], "phases": phases, "longest": longest, "groups": look.cycle.groups},
        },
    )


# --- What pages have in common -------------------------------------------------------------------------------------


def _colors(look: Look) -> Mapping[str, str]:
    """Return the colours of queues: those of the whole tree, so that every reader sees the same ones."""
    whole = look if look.whole is None else look.whole
    return colors_of(whole.seen.queues)


def _axis(look: Look) -> tuple[float, int]:
    total = look.seen.totals[GPU]
    return (float(total), GPU) if total else (float(look.seen.totals[0]), 0)


MAKERS: Final[Mapping[str, Maker]] = {
    "": overview,
    "queues": queues,
    "jobs": jobs,
    "nodes": nodes,
    "waiting": waiting,
    "cycles": cycles,
}
TITLES: Final[Sequence[tuple[str, str]]] = (
    ("", "Overview"),
    ("queues", "Queues"),
    ("jobs", "Jobs"),
    ("nodes", "Nodes"),
    ("waiting", "Waiting"),
    ("cycles", "Cycles"),
)
