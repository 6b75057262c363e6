"""Queues: the tree of quotas, in axis units."""

from collections.abc import Iterable, Mapping

from kai.api import names
from kai.api.scheduling import queue as api
from kai.explain.declared import Declared
from kai.intake.settings import IntakeSettings
from kai.model.axis import GPU_UNIT
from kai.model.queue import UNLIMITED, Queue, Shares

FLAT_PARENT = "default"
"""Name of the synthetic parent when fairness ignores the hierarchy."""

_MEGABYTE = 1_000_000
_NO_DEPTH = 1 << 31
"""Of a queue from which parents do not lead to the top; so is one more."""
_NO_RESOURCES = api.QueueResources()
_NO_SHARES = Shares()


def read_queues(
    sources: Iterable[api.Queue], settings: IntakeSettings, usage: Mapping[str, Shares]
) -> tuple[Queue, ...]:
    """Return the queues of this scheduler by name.

    A queue is kept if its parents lead to a top queue. What is left out, with everything beneath it: queues whose
    parent does not exist or belongs to another scheduler, queues whose parents form a cycle, and queues that are nested
    deeper than ``DEEPEST_QUEUE``.
    """
    chosen = {source.metadata.name: source for source in sources if settings.owns(source.metadata.labels)}
    if not settings.full_hierarchy_fairness:
        return _flat(chosen, usage)
    kept = _rooted({name: source.spec.parent_queue for name, source in chosen.items()})
    rows = {name: row for row, name in enumerate(sorted(kept))}
    return tuple(_queue(chosen[name], rows.get(chosen[name].spec.parent_queue, -1), usage) for name in rows)


def declared_queues(sources: Iterable[api.Queue], settings: IntakeSettings) -> Declared:
    """Return the parents of queues, and queues of other schedulers: why a queue is not among those that are read."""
    parents: dict[str, str] = {}
    elsewhere: set[str] = set()
    for each in sources:
        if settings.owns(each.metadata.labels):
            parents[each.metadata.name] = each.spec.parent_queue or ""
        else:
            elsewhere.add(each.metadata.name)
    return Declared(parents=parents, elsewhere=frozenset(elsewhere))


def _rooted(parents: Mapping[str, str]) -> set[str]:
    """Return the queues from which parents lead to the top, in so many steps at most."""
    depths: dict[str, int] = {}
    for name in parents:
        path: list[str] = []
        at = name
        while at in parents and at not in depths:
            depths[at] = _NO_DEPTH  # holds if the walk comes back here: a cycle
            path.append(at)
            at = parents[at]
        depth = depths.get(at, _NO_DEPTH) if at else 0
        depths.update(zip(reversed(path), range(depth + 1, depth + len(path) + 1), strict=True))
    return {name for name, depth in depths.items() if depth <= api.DEEPEST_QUEUE}


def _flat(sources: Mapping[str, api.Queue], usage: Mapping[str, Shares]) -> tuple[Queue, ...]:
    """Return all queues that have a parent as children of one unlimited queue, which has its name for itself."""
    everything = Shares(cpu=UNLIMITED, memory=UNLIMITED, gpu=UNLIMITED)
    one = Shares(cpu=1.0, memory=1.0, gpu=1.0)
    children = sorted(name for name, source in sources.items() if source.spec.parent_queue and name != FLAT_PARENT)
    order = sorted([*children, FLAT_PARENT])
    parent = order.index(FLAT_PARENT)
    top = Queue(
        name=FLAT_PARENT, quota=everything, limit=everything, weight=one, usage=usage.get(FLAT_PARENT, _NO_SHARES)
    )
    return tuple(top if name == FLAT_PARENT else _queue(sources[name], parent, usage) for name in order)


def _queue(source: api.Queue, parent: int, usage: Mapping[str, Shares]) -> Queue:
    """Return one queue. Without resources all its shares are 0, which is not unlimited.

    Source: the peer's queue_info.
    """
    metadata, spec = source.metadata, source.spec
    resources = spec.resources or _NO_RESOURCES
    cpu, memory, gpu = resources.cpu, resources.memory, resources.gpu
    return Queue(
        name=metadata.name,
        display_name=spec.display_name,
        parent=parent,
        priority=names.DEFAULT_QUEUE_PRIORITY if spec.priority is None else spec.priority,
        created=metadata.creation_timestamp or 0.0,
        quota=Shares(cpu=cpu.quota, memory=_bytes(memory.quota), gpu=_gpus(gpu.quota)),
        limit=Shares(cpu=cpu.limit, memory=_bytes(memory.limit), gpu=_gpus(gpu.limit)),
        weight=Shares(cpu=cpu.over_quota_weight, memory=memory.over_quota_weight, gpu=gpu.over_quota_weight),
        usage=usage.get(metadata.name, _NO_SHARES),
        preempt_min_runtime=spec.preempt_min_runtime,
        reclaim_min_runtime=spec.reclaim_min_runtime,
    )


def _bytes(megabytes: float) -> float:
    return max(UNLIMITED, megabytes * _MEGABYTE)


def _gpus(devices: float) -> float:
    """Return thousandths of devices; rounded, because 0.29 * 1000 is not 290."""
    return UNLIMITED if devices == UNLIMITED else round(devices * GPU_UNIT, 6)
