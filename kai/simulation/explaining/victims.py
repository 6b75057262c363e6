"""Why a job that waits takes no place from others: of those that run, none may be taken."""

from collections.abc import Iterator, Sequence

from kai.explain.phrases import listed
from kai.explain.takeable import Takeable
from kai.framework.decisions import Cause
from kai.framework.verdict import Code
from kai.simulation.explaining.changes import Site
from kai.simulation.explaining.fact import Evidence

_MOST_NAMED = 4


def reclaiming(site: Site) -> Iterator[Evidence]:
    """Yield why a queue that may take from other queues finds nothing that could be taken."""
    record = site.cycle.report.records.get(site.group)
    told = [] if record is None else [*record.notes, *record.reasons]
    if any(each.code in {Code.NOT_ELIGIBLE, Code.PREEMPTION_DELAY} for each in told):
        return
    found = site.takeable(Cause.RECLAIM)
    if found is None or found.free or not (found.fixed or found.protected):
        return
    queue = site.cycle.snapshot.groups[site.group].queue
    text = f"queue {queue} may take from others, and none can be taken: {'; '.join(_spared(site, found))}"
    yield Evidence(label="reclaim", text=text, values=_values(site, found))


def preempting(site: Site) -> Iterator[Evidence]:
    """Yield why a job takes nothing from jobs of its own queue."""
    found = site.takeable(Cause.PREEMPT)
    if found is None or found.free or not (found.fixed or found.protected or found.higher):
        return
    facts = site.cycle.snapshot.groups[site.group]
    if not (found.fixed or found.protected):
        if site.reasons[0].code != Code.NOT_ELIGIBLE:
            return
        text = f"no job that runs in queue {facts.queue} has a lower priority than {facts.priority}"
    else:
        text = f"of lower priority in queue {facts.queue}: {'; '.join(_spared(site, found))}"
    yield Evidence(label="preempt", text=text, values=_values(site, found))


def _spared(site: Site, found: Takeable) -> Iterator[str]:
    for rows, one, many in (
        (found.fixed, "is non-preemptible", "are non-preemptible"),
        (found.protected, "is protected by its minimum runtime", "are protected by their minimum runtime"),
    ):
        if rows:
            yield f"{listed(_names(site, rows), _MOST_NAMED)} {one if len(rows) == 1 else many}"


def _names(site: Site, rows: Sequence[int]) -> list[str]:
    return [site.cycle.snapshot.groups[row].name for row in rows]


def _values(site: Site, found: Takeable) -> dict[str, list[str]]:
    groups = site.cycle.snapshot.groups
    return {
        "nonPreemptible": [groups[row].key for row in found.fixed],
        "protected": [groups[row].key for row in found.protected],
    }


__all__ = ["preempting", "reclaiming"]
