"""Why a job that waits takes no place from others: of those that run, none may be taken."""

from collections.abc import Iterator, Sequence

from kai.explain.phrases import listed, quantity
from kai.explain.takeable import Takeable
from kai.framework.decisions import Cause
from kai.framework.verdict import Code
from kai.model.axis import GPU, GPU_UNIT
from kai.model.queue import Queue, path_to
from kai.simulation.explaining.changes import Site
from kai.simulation.explaining.fact import Evidence
from kai.wording import number_text

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


def within_quotas(site: Site) -> Iterator[Evidence]:
    """Yield that others hold what their queues are owed, where a queue waits for what it is owed itself.

    Then more GPUs may be promised than there are: that is told beside.
    """
    snapshot, report = site.cycle.snapshot, site.cycle.report
    if site.takeable(Cause.RECLAIM) is None or report.takes_by_priority:
        return
    queues, own = snapshot.queues, snapshot.groups[site.group].queue_row
    held = {row: int(report.queue_used[row, GPU]) for row in range(len(queues)) if report.queue_used[row, GPU] > 0}
    mine = path_to(queues, own)
    rivals = sorted({row for row in held if row not in mine and queues[row].parent in {*mine, -1}})
    asked = int(report.queue_requested[own, GPU]) - held.get(own, 0)
    if not rivals or asked <= 0 or not all(_is_within(queues[row], held[row]) for row in rivals):
        return
    if not _is_within(queues[own], held.get(own, 0) + 1):
        return
    told = [f"{queues[row].name} has {_gpus(held[row])} and a quota of {_quota(queues[row])}" for row in rivals]
    text = f"{listed(told, _MOST_NAMED)}: what a queue has within its quota is not taken back"
    yield Evidence(label="quotas", text=text, values={"withinQuota": [queues[row].name for row in rivals]})
    parent = queues[rivals[0]].parent
    siblings = [queue for queue in queues if queue.parent == parent and queue.quota.gpu >= 0]
    promised, there = sum(queue.quota.gpu for queue in siblings), float(report.total[GPU])
    if promised > there:
        owed = f"{listed([queue.name for queue in siblings], _MOST_NAMED)} are promised {_gpus(promised)}"
        text = f"{owed} together, and the cluster has {_gpus(there)}"
        yield Evidence(label="promised", text=text, values={"gpus": promised / GPU_UNIT, "there": there / GPU_UNIT})


def _is_within(queue: Queue, used: float) -> bool:
    return queue.quota.gpu < 0 or used <= queue.quota.gpu


def _gpus(amount: float) -> str:
    return quantity(round(amount), "gpu")


def _quota(queue: Queue) -> str:
    return "no bound" if queue.quota.gpu < 0 else f"{number_text(queue.quota.gpu / GPU_UNIT)}"


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


__all__ = ["preempting", "reclaiming", "within_quotas"]
