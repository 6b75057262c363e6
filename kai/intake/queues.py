"""Queues as a tree of quotas in axis units, and the queues and priorities that namespaces may use.

Administrators restrict namespaces by annotations on objects that tenants cannot change: a queue admits namespaces
(``kai.api.conventions.queue_rules``), and a namespace lists priority classes and preemptibilities. Admission policies
refuse most objects that violate this. A group that got past them is held here: its waiting pods are not tried, and its
running pods keep their place.

A quota that follows the clock is settled here once for the instant of a snapshot (`Clocked`), so that all that follows
sees plain amounts.

Queues restrict namespaces only where ``IntakeSettings.queue_access`` is *required*. Otherwise every namespace may use
every queue, as with KAI-Scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.conventions.queue_rules import Admits, listed
from kai.api.conventions.quota_windows import in_force, is_usable, lower_quotas, next_limit, next_user_limit
from kai.api.scheduling import queue as api
from kai.deciding.explain.declared import Declared
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.groups import UNLIMITED, ModelBounds, Queue, Shares, Windows
from kai.framework.verdict import Code
from kai.intake.settings import IntakeSettings, QueueAccess

if TYPE_CHECKING:
    from kai.api.kubernetes.meta import Namespace, ObjectMeta
    from kai.api.scheduling.pod_group import PodGroup
    from kai.api.scheduling.queue import Queue as ApiQueue

FLAT_PARENT = "default"
"""The name of the synthetic parent when fairness ignores the hierarchy."""

_MEGABYTE = 1_000_000
_NO_DEPTH = 1 << 31
"""The depth of a queue whose parents do not lead to the top; one more means the same."""
_NO_RESOURCES = api.QueueResources()
_NO_SHARES = Shares()
_FREE_USER = Shares(cpu=UNLIMITED, memory=UNLIMITED, gpu=UNLIMITED)


@attrs.frozen
class Amounts:
    """The resources of a queue at an instant, and what is known of its windows."""

    resources: api.QueueResources | None
    windows: Windows


_LOOK_AGAIN_SECONDS: Final = 86_400.0
_NONE_CLOCKED: Final[Mapping[str, Amounts]] = MappingProxyType({})


@attrs.define
class Clocked:
    """The amounts of the queues whose quota follows the clock, remembered until they may change."""

    until: float = inf
    """When the amounts of a queue may change next."""
    _since: float = inf
    _queues: object = None
    _known: dict[str, tuple[api.QueueSpec, Amounts]] = attrs.field(factory=dict)
    _settled: Mapping[str, Amounts] = _NONE_CLOCKED

    def settle(self, queues: Iterable[api.Queue], now: float) -> Mapping[str, Amounts]:
        """Return the amounts at ``now`` by queue; the same mapping while they and the queues are the same.

        Cost: nothing for the same queues until the next edge; else that of the queues whose windows changed.
        """
        if queues is self._queues and self._since <= now < self.until:
            return self._settled
        # Edges that were computed for a later instant say nothing after a clock went back.
        before, is_back = self._known, not self._since <= now
        self._known = {}
        for each in queues:
            if each.spec.schedules:
                name, spec = each.metadata.name, each.spec
                known = before.get(name)
                if known is None or is_back or now >= known[1].windows.until or not _same_windows(known[0], spec):
                    known = (spec, _amounts_at(spec, now))
                self._known[name] = known
        self._queues, self._since = queues, now
        self.until = min((known.windows.until for _, known in self._known.values()), default=inf)
        found = {name: known for name, (_, known) in self._known.items()}
        # The mapping stays the same object while its content does: all columns of queues are memoized by it.
        if found != self._settled:
            self._settled = found or _NONE_CLOCKED
        return self._settled


def _same_windows(one: api.QueueSpec, other: api.QueueSpec) -> bool:
    return one is other or (one.schedules == other.schedules and one.resources == other.resources)


def _amounts_at(spec: api.QueueSpec, now: float) -> Amounts:
    found = in_force(spec, now)
    limit, user_limit = next_limit(spec, now), next_user_limit(spec, now)
    ending = None
    if found.ending is not None:
        closes, name = found.ending
        ending = (closes, name, _quota(in_force(spec, closes).resources or _NO_RESOURCES))
    # An edge beyond what is looked at may come within sight before the next edge.
    until = found.until if found.until == inf else min(found.until, now + _LOOK_AGAIN_SECONDS)
    windows = Windows(
        until=until,
        lower_quotas=tuple([(at, _quota(lower)) for at, lower in lower_quotas(spec, now)]),
        next_limit=None if limit is None else (limit[0], _limit(limit[1])),
        next_user_limit=None
        if user_limit is None
        else (user_limit[0], _per_user(user_limit[1].per_user) or _FREE_USER),
        timezone=next((each.time_zone for each in spec.schedules if is_usable(each)), ""),
        draining=found.draining,
        ended_at=found.ended_at,
        ended=found.ended,
        ending=ending,
    )
    return Amounts(found.resources, windows)


def read_queues(
    sources: Iterable[api.Queue],
    settings: IntakeSettings,
    usage: Mapping[str, Shares],
    clocked: Mapping[str, Amounts] = _NONE_CLOCKED,
) -> tuple[Queue, ...]:
    """Return the queues of this scheduler by name.

    A queue is kept if its parents lead to a top queue. Left out, with everything beneath them, are queues whose
    parent does not exist or belongs to another scheduler, queues whose parents form a cycle, and queues that are nested
    deeper than ``DEEPEST_QUEUE``.
    """
    chosen = {source.metadata.name: source for source in sources if settings.owns(source.metadata.labels)}
    if not settings.full_hierarchy_fairness:
        return _flat(chosen, usage, clocked)
    kept = _rooted({name: source.spec.parent_queue for name, source in chosen.items()})
    # By name, so that rows do not depend on the order in which objects came.
    rows = {name: row for row, name in enumerate(sorted(kept))}
    return tuple(_queue(chosen[name], rows.get(chosen[name].spec.parent_queue, -1), usage, clocked) for name in rows)


def declared_queues(sources: Iterable[api.Queue], settings: IntakeSettings) -> Declared:
    """Return parents of queues and the queues of other schedulers, to explain why a queue is not read."""
    parents: dict[str, str] = {}
    elsewhere: set[str] = set()
    for each in sources:
        if settings.owns(each.metadata.labels):
            parents[each.metadata.name] = each.spec.parent_queue or ""
        else:
            elsewhere.add(each.metadata.name)
    return Declared(parents=parents, elsewhere=frozenset(elsewhere))


def _rooted(parents: Mapping[str, str]) -> set[str]:
    """Return the queues whose parents lead to the top in at most ``DEEPEST_QUEUE`` steps."""
    depths: dict[str, int] = {}
    for name in parents:
        path: list[str] = []
        at = name
        while at in parents and at not in depths:
            depths[at] = _NO_DEPTH  # stays if the walk comes back here: a cycle
            path.append(at)
            at = parents[at]
        depth = depths.get(at, _NO_DEPTH) if at else 0
        # Each queue is walked over once, however many are below it: its depth is known to later walks.
        depths.update(zip(reversed(path), range(depth + 1, depth + len(path) + 1), strict=True))
    return {name for name, depth in depths.items() if depth <= api.DEEPEST_QUEUE}


def _flat(
    sources: Mapping[str, api.Queue], usage: Mapping[str, Shares], clocked: Mapping[str, Amounts]
) -> tuple[Queue, ...]:
    """Return all queues that have a parent as children of one unlimited queue, which has a reserved name."""
    everything = Shares(cpu=UNLIMITED, memory=UNLIMITED, gpu=UNLIMITED)
    one = Shares(cpu=1.0, memory=1.0, gpu=1.0)
    # A queue with the reserved name is left out: two rows would have one name.
    children = sorted(name for name, source in sources.items() if source.spec.parent_queue and name != FLAT_PARENT)
    order = sorted([*children, FLAT_PARENT])
    parent = order.index(FLAT_PARENT)
    top = Queue(
        name=FLAT_PARENT, quota=everything, limit=everything, weight=one, usage=usage.get(FLAT_PARENT, _NO_SHARES)
    )
    return tuple(top if name == FLAT_PARENT else _queue(sources[name], parent, usage, clocked) for name in order)


def _queue(source: api.Queue, parent: int, usage: Mapping[str, Shares], clocked: Mapping[str, Amounts]) -> Queue:
    """Return one queue. Without resources all its shares are 0, which is not unlimited.

    Source: the peer's queue_info.
    """
    metadata, spec = source.metadata, source.spec
    known = clocked.get(metadata.name)
    resources = (spec.resources if known is None else known.resources) or _NO_RESOURCES
    cpu, memory, gpu = resources.cpu, resources.memory, resources.gpu
    return Queue(
        name=metadata.name,
        display_name=spec.display_name,
        parent=parent,
        priority=names.DEFAULT_QUEUE_PRIORITY if spec.priority is None else spec.priority,
        created=metadata.creation_timestamp or 0.0,
        quota=_quota(resources),
        limit=_limit(resources),
        weight=Shares(cpu=cpu.over_quota_weight, memory=memory.over_quota_weight, gpu=gpu.over_quota_weight),
        usage=usage.get(metadata.name, _NO_SHARES),
        preempt_min_runtime=spec.preempt_min_runtime,
        reclaim_min_runtime=spec.reclaim_min_runtime,
        models={
            model: ModelBounds(quota=_gpus(each.quota), limit=_gpus(each.limit))
            for model, each in resources.models.items()
        },
        per_user=_per_user(resources.per_user),
        windows=None if known is None else known.windows,
        labels=dict(metadata.labels),
    )


def _per_user(source: api.UserResources | None) -> Shares | None:
    if source is None:
        return None
    return Shares(cpu=source.cpu.limit, memory=_bytes(source.memory.limit), gpu=_gpus(source.gpu.limit))


def _quota(resources: api.QueueResources) -> Shares:
    cpu, memory, gpu = resources.cpu.quota, resources.memory.quota, resources.gpu.quota
    return Shares(cpu=cpu, memory=_bytes(memory), gpu=_gpus(gpu))


def _limit(resources: api.QueueResources) -> Shares:
    cpu, memory, gpu = resources.cpu.limit, resources.memory.limit, resources.gpu.limit
    return Shares(cpu=cpu, memory=_bytes(memory), gpu=_gpus(gpu))


def _bytes(megabytes: float) -> float:
    # Scaled, the -1 of an unlimited queue would become another number.
    return max(UNLIMITED, megabytes * _MEGABYTE)


def _gpus(devices: float) -> float:
    """Return thousandths of devices; rounded, because 0.29 * 1000 is not 290."""
    return UNLIMITED if devices == UNLIMITED else round(devices * GPU_UNIT, 6)


Refusal = tuple[Code, str]
"""A code and its text; the text is "" if the group is allowed."""

ALLOWED: Final[Refusal] = (Code.HELD, "")


@attrs.frozen
class Bounds:
    """The priorities that a namespace may use; None: all."""

    classes: tuple[str, ...] | None = None
    preemptibilities: tuple[str, ...] | None = None

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Bounds:
        """Return the bounds in the annotations of a namespace."""
        classes, kinds = annotations.get(names.ALLOWED_PRIORITY_CLASSES), annotations.get(names.ALLOWED_PREEMPTIBILITY)
        return cls(None if classes is None else listed(classes), None if kinds is None else listed(kinds))


_FREE: Final = Bounds()


@attrs.frozen
class Permissions:
    """The queues and priorities that each namespace may use; equal permissions refuse the same groups."""

    queues: Mapping[str, Admits] | None = None
    """Admission rules of queues by name; None: every namespace may use every queue."""
    labels: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Labels of namespaces, as far as queues look at them."""
    bounds: Mapping[str, Bounds] = attrs.field(factory=dict)
    """Bounds of the namespaces that have any."""

    def refusal(self, source: PodGroup, *, preemptible: bool) -> Refusal:
        """Return why no pod of a group may be tried; `ALLOWED` if they may.

        A group in a queue that does not exist is not refused here.
        """
        namespace, spec = source.metadata.namespace, source.spec
        if self.queues is not None:
            queue = self.queues.get(spec.queue)
            if queue is not None and not queue.admits(namespace, self.labels.get(namespace, _NO_LABELS)):
                return Code.QUEUE_NOT_ALLOWED, queue_text(spec.queue, namespace)
        if self.bounds:
            return _beyond(self.bounds.get(namespace, _FREE), source, preemptible=preemptible)
        return ALLOWED


_NO_LABELS: Final[Mapping[str, str]] = {}


def read_permissions(queues: Iterable[ApiQueue], spaces: Iterable[Namespace], access: QueueAccess) -> Permissions:
    """Return the permissions of namespaces. Labels that no queue looks at make no difference."""
    bounds = {each.metadata.name: Bounds.of(each.metadata.annotations) for each in spaces if _is_bounded(each.metadata)}
    if access is QueueAccess.OPEN:
        return Permissions(bounds=bounds)
    admitting = {each.metadata.name: Admits.of(each.metadata.annotations) for each in queues}
    looked_at = {key for queue in admitting.values() for key, _ in queue.terms}
    # Only labels that some queue asks for: permissions are compared, and an unrelated label must not make all groups be
    # read anew.
    labels = {each.metadata.name: _among(each.metadata.labels, looked_at) for each in spaces}
    return Permissions(admitting, {name: found for name, found in labels.items() if found}, bounds)


def queue_text(queue: str, namespace: str) -> str:
    """Return the message that a namespace may not use a queue. Other namespaces are not named: tenants read it."""
    return (
        f"spec.queue: found {queue}, expected a queue that allows namespace {namespace}; the annotations"
        f" {names.ALLOWED_NAMESPACES} and {names.ALLOWED_NAMESPACE_LABELS} of a queue say which it allows"
    )


def _beyond(bounds: Bounds, source: PodGroup, *, preemptible: bool) -> Refusal:
    """Return which bound of its namespace a group violates."""
    named, namespace = source.spec.priority_class_name, source.metadata.namespace
    # A group that names no class has the default priority, which its tenant did not choose.
    if bounds.classes is not None and named and named not in bounds.classes:
        wanted = ", ".join(bounds.classes) or "none"
        text = f"spec.priorityClassName: found {named}, expected what namespace {namespace} may use: {wanted}"
        return Code.PRIORITY_NOT_ALLOWED, text
    kind = names.PREEMPTIBLE if preemptible else names.NON_PREEMPTIBLE
    if bounds.preemptibilities is not None and kind not in bounds.preemptibilities:
        wanted = ", ".join(bounds.preemptibilities) or "none"
        text = f"spec.preemptibility: found {kind}, expected what namespace {namespace} may use: {wanted}"
        return Code.PRIORITY_NOT_ALLOWED, text
    return ALLOWED


def _is_bounded(metadata: ObjectMeta) -> bool:
    annotations = metadata.annotations
    return names.ALLOWED_PRIORITY_CLASSES in annotations or names.ALLOWED_PREEMPTIBILITY in annotations


def _among(labels: Mapping[str, str], keys: set[str]) -> Mapping[str, str]:
    return {key: labels[key] for key in sorted(keys) if key in labels}
