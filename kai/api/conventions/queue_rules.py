"""Faults of queues, checked in one place for `kai lint`, `kai doctor`, the queue controller and the webhook.

The API server accepts a parent that does not exist, a circle of parents, a limit below the quota, quotas of children
beyond that of their parent, and a queue that may use no CPU. Each fault is a value here, without a message text and
without a place in a file. All faults of a queue are returned together.

Which namespaces a queue admits, by annotations of the queue.

They are annotations rather than fields, so that the custom resource of KAI-Scheduler can hold them, and plain lists of
terms, so that an admission policy of the API server can read them (``deploy/components/queue-access``): the policy and
kai decide alike.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.conventions.gpu_sharing import is_model_name
from kai.api.conventions.quota_windows import (
    AHEAD_SECONDS,
    BadEntry,
    bad_entries,
    is_usable,
    never_opens,
    slices,
    spec_in,
    while_open,
)
from kai.api.scheduling.queue import DEEPEST_QUEUE, Queue, QueueResources, QueueSpec
from kai.basics.parsing import is_number, mapping_of, mappings_of, part_of

EVERY: Final = "*"


@attrs.frozen
class Admits:
    """The namespaces that a queue admits: by name, or by having all of some labels."""

    spaces: frozenset[str] = frozenset()
    terms: tuple[tuple[str, str | None], ...] = ()
    """Required label keys, each with its value; None: any value. Without terms, labels admit no namespace."""

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Admits:
        """Return the admission rules in a queue's annotations. A selector with an invalid term admits no namespace."""
        spaces = listed(annotations.get(names.ALLOWED_NAMESPACES, ""))
        terms = tuple(_term(each) for each in listed(annotations.get(names.ALLOWED_NAMESPACE_LABELS, "")))
        return cls(frozenset(spaces), terms if all(key for key, _ in terms) else ())

    def admits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with these labels is admitted."""
        if EVERY in self.spaces or namespace in self.spaces:
            return True
        return bool(self.terms) and all(
            key in labels if value is None else labels.get(key) == value for key, value in self.terms
        )


def listed(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _term(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    # "key" admits any value, "key=" the empty one alone: they are different terms.
    return key.strip(), value.strip() if equals else None


RESOURCES: Final = ("gpu", "cpu", "memory")
UNITS: Final[Mapping[str, str]] = {"gpu": "GPUs", "cpu": "millicores", "memory": "MB"}
"""The unit of each resource in the Queue API."""


class Rule(StrEnum):
    """What a queue can violate."""

    ORPHAN = "the parent does not exist"
    CYCLE = "following parents never ends at a queue without a parent"
    TOO_DEEP = "more queues stand above it than a scheduler looks at"
    LOW_LIMIT = "the limit of a resource is below the quota"
    OVERCOMMITTED = "the quotas of the children add up to more than the queue's own"
    NO_COMPUTE = "the queue may use GPUs, and no CPU or no memory"
    BAD_SCHEDULE = "a part of a schedule cannot be used"
    NEVER_OPENS = "a schedule has no start in the years to come"
    WINDOW_LOW_LIMIT = "while windows are open, the limit of a resource is below the quota"
    WINDOW_OVERCOMMITTED = "while windows are open, the quotas of the children add up to more than the queue's own"
    BAD_MODEL = "a key of models is no short name of a model of GPU"
    IDLE_MODEL_LIMIT = "the limit of a model is above the limit of GPUs, or above that of a queue further up"
    MODEL_LOW_LIMIT = "the limit of a model is below its quota"
    MODELS_OVERCOMMITTED = "the quotas of models add up to more than the queue's quota of GPUs"
    MODEL_OVERCOMMITTED = "the quotas of a model of the children add up to more than the queue's own"
    IDLE_USER_LIMIT = "the limit of users is above the limit of the queue, or above a limit of a queue further up"
    STARTS_AGAIN = "what a closing window evicts may start again at once"


@attrs.frozen(kw_only=True)
class Bounds:
    """Quota and limit of one resource; infinite is unlimited.

    Units: those of the Queue API.
    """

    quota: float = 0.0
    limit: float = 0.0


_UNBOUNDED: Final = Bounds(limit=math.inf)
"""The bounds of a resource or a model that a queue does not name."""


@attrs.frozen(kw_only=True)
class QueueShape:
    """The fields of a queue that the rules read; ``bounds`` are None without resources."""

    name: str
    parent: str = ""
    bounds: Mapping[str, Bounds] | None = None
    models: Mapping[str, Bounds] = attrs.field(factory=dict)
    """The bounds of models of GPUs."""
    users: Mapping[str, float] = attrs.field(factory=dict)
    """What each user may hold, by resource; infinite is unlimited, empty where users have no limits."""
    spec: QueueSpec | None = None
    """The resources and schedules of a queue whose amounts follow the clock."""


@attrs.frozen(kw_only=True)
class QueueFault:
    """One fault of one queue."""

    rule: Rule
    queue: str
    resource: str = ""
    found: float = 0.0
    """The limit, the sum of the quotas, or how many queues there are from the top down to this one."""
    bound: float = 0.0
    """The least that ``found`` should be (a limit), or the most (a sum, a depth)."""
    circle: tuple[str, ...] = ()
    """The circle that the parents lead into, from its alphabetically first queue on."""
    entry: int = -1
    """The place of the schedule that is at fault; -1 for none."""
    bad: BadEntry | None = None
    """What of that schedule cannot be used."""
    model: str = ""
    """The model of GPU whose bound is at fault."""
    owner: str = ""
    """The queue that has ``bound``, if it is another one."""
    windows: tuple[str, ...] = ()
    """Windows that are open when it is wrong, each as queue and name of the schedule."""


def amount(value: float) -> float:
    """Return an amount as the Queue API writes it, infinite for -1."""
    return math.inf if value == names.UNLIMITED else value


def shape_of(queue: Queue) -> QueueShape:
    """Return the fields of a queue that the rules read."""
    spec = queue.spec
    return QueueShape(
        name=queue.metadata.name,
        parent=spec.parent_queue,
        bounds=_bounds_of(spec.resources),
        models={}
        if spec.resources is None
        else {
            model: Bounds(quota=amount(each.quota), limit=amount(each.limit))
            for model, each in spec.resources.models.items()
        },
        users=_users_of(spec.resources),
        spec=spec if spec.schedules else None,
    )


def shape_in(manifest: Mapping[str, Any]) -> QueueShape:
    """Return the shape of a manifest that may be invalid: a missing or non-numeric amount counts as 0."""
    resources = part_of(manifest, "spec", "resources")
    bounds = None
    if isinstance(resources, Mapping):
        bounds = {
            name: Bounds(quota=_number(resources, name, "quota"), limit=_number(resources, name, "limit"))
            for name in RESOURCES
        }
    return QueueShape(
        name=str(part_of(manifest, "metadata", "name")),
        parent=str(part_of(manifest, "spec", "parentQueue") or ""),
        bounds=bounds,
        models={
            model: Bounds(quota=_number(resources, "models", model, "quota"), limit=_limit_in(resources, model))
            for model in mapping_of(manifest, "spec", "resources", "models")
        },
        users={
            name: _number(resources, "perUser", name, "limit")
            if is_number(part_of(resources, "perUser", name, "limit"))
            else math.inf
            for name in (RESOURCES if isinstance(part_of(resources, "perUser"), Mapping) else ())
        },
        spec=spec_in(manifest),
    )


def limits_users(manifest: Mapping[str, Any]) -> bool:
    """Return whether a queue limits what its users hold, always or in a window. The manifest may be invalid."""
    spec = mapping_of(manifest, "spec")
    return any(mapping_of(each, "resources", "perUser") for each in (spec, *mappings_of(spec, "schedules")))


def queue_faults(queues: Iterable[QueueShape]) -> dict[str, tuple[QueueFault, ...]]:
    """Return the faults of each queue by its name, in the order of ``Rule``; queues without a fault are left out.

    Cost: linear in queues.
    """
    # By name, so that faults do not depend on the order of files or of a list from the server.
    known = {queue.name: queue for queue in sorted(queues, key=lambda queue: queue.name)}
    children: dict[str, list[QueueShape]] = {}
    for queue in known.values():
        if queue.parent:
            children.setdefault(queue.parent, []).append(queue)
    circles = _circles(known)
    depths = _depths(children, [name for name, queue in known.items() if not queue.parent])
    found = {
        name: (
            *_of_place(queue, known, circles.get(name, ()), depths.get(name, 0)),
            *_of_bounds(queue),
            *_overcommitted(queue, children.get(name, ())),
            *_without_compute(queue),
            *_of_models(queue, known),
            *_of_model_quotas(queue, children.get(name, ())),
            *_of_users(queue, known),
            *_of_schedules(queue),
            *_in_windows(queue, children.get(name, ())),
        )
        for name, queue in known.items()
    }
    return {name: faults for name, faults in found.items() if faults}


def excess(quotas: Iterable[float], bound: float) -> float | None:
    """Return the sum of quotas if it exceeds ``bound``, else None. Units: any; infinite is unlimited."""
    # Exact whatever the order: ten times 0.1 is not more than 1.
    total = math.fsum(quotas)
    return total if total > bound else None


def _of_place(
    queue: QueueShape, known: Mapping[str, QueueShape], circle: tuple[str, ...], depth: int
) -> Iterator[QueueFault]:
    """Yield the faults in the position of a queue in the tree."""
    if queue.parent and queue.parent not in known:
        yield QueueFault(rule=Rule.ORPHAN, queue=queue.name)
    if circle:
        yield QueueFault(rule=Rule.CYCLE, queue=queue.name, circle=circle)
    if depth > DEEPEST_QUEUE:
        yield QueueFault(rule=Rule.TOO_DEEP, queue=queue.name, found=depth, bound=DEEPEST_QUEUE)


def _of_bounds(queue: QueueShape) -> Iterator[QueueFault]:
    for resource, own in (queue.bounds or {}).items():
        # An unlimited quota is above every limit, and then the limit simply holds.
        if 0 <= own.limit < own.quota < math.inf:
            yield QueueFault(rule=Rule.LOW_LIMIT, queue=queue.name, resource=resource, found=own.limit, bound=own.quota)


def _overcommitted(queue: QueueShape, children: Sequence[QueueShape]) -> Iterator[QueueFault]:
    for resource, own in (queue.bounds or {}).items():
        total = excess((child.bounds[resource].quota for child in children if child.bounds is not None), own.quota)
        if total is not None:
            yield QueueFault(rule=Rule.OVERCOMMITTED, queue=queue.name, resource=resource, found=total, bound=own.quota)


def _without_compute(queue: QueueShape) -> Iterator[QueueFault]:
    """Yield a fault for CPU or memory if a queue may use GPUs and none of that resource.

    A quota above such a limit is reported already as `LOW_LIMIT`. Pods that request no CPU and no memory still run.
    """
    bounds = queue.bounds or {}
    for resource in ("cpu", "memory"):
        if bounds and bounds["gpu"].limit != 0 and bounds[resource].limit == 0 and bounds[resource].quota <= 0:
            yield QueueFault(rule=Rule.NO_COMPUTE, queue=queue.name, resource=resource)


def _of_models(queue: QueueShape, known: Mapping[str, QueueShape]) -> Iterator[QueueFault]:
    """Yield the models whose names are none, and limits without an effect because a lower one holds."""
    for model, own in queue.models.items():
        if not is_model_name(model):
            yield QueueFault(rule=Rule.BAD_MODEL, queue=queue.name, model=model)
            continue
        over = [(bounds["gpu"].limit, queue.name)] if (bounds := queue.bounds) else []
        over += [(known[at].models.get(model, _UNBOUNDED).limit, at) for at in _parents_of(queue, known)]
        least, owner = min(over, default=(math.inf, ""))
        if least < own.limit < math.inf:
            yield QueueFault(
                rule=Rule.IDLE_MODEL_LIMIT,
                queue=queue.name,
                resource="gpu",
                model=model,
                found=own.limit,
                bound=least,
                owner=owner,
            )


def _of_users(queue: QueueShape, known: Mapping[str, QueueShape]) -> Iterator[QueueFault]:
    """Yield limits of users without an effect: a lower one of the queue, or of a queue above it, always holds.

    A limit of a window is compared with what the queue may use while the window is open.
    """
    # Most queues limit no users, and a walk for each would be quadratic in a deep tree.
    bounded = [each for each in _user_limits(queue) if each[2] < math.inf]
    above = [(at, _limits_of(known[at])) for at in _parents_of(queue, known)] if bounded else []
    for entry, resource, own, allowed in bounded:
        over = [(allowed, queue.name)]
        for at, found in above:
            # Windows of a parent may open together with those of the queue: the highest limit counts.
            over += [(max(limits), at) for limits in zip(*found[resource], strict=True)]
        least, owner = min((each for each in over if each[0] >= 0), default=(math.inf, ""))
        if least < own:
            yield QueueFault(
                rule=Rule.IDLE_USER_LIMIT,
                queue=queue.name,
                resource=resource,
                found=own,
                bound=least,
                owner=owner,
                entry=entry,
            )


def _parents_of(queue: QueueShape, known: Mapping[str, QueueShape]) -> Iterator[str]:
    """Yield the names of the queues above ``queue`` that are known, the nearest first."""
    seen, at = {queue.name}, queue.parent
    # Parents that form a circle are a fault of their own, and must not keep this walk going.
    while at in known and at not in seen:
        yield at
        seen.add(at)
        at = known[at].parent


def _user_limits(queue: QueueShape) -> Iterator[tuple[int, str, float, float]]:
    """Yield each limit of users as the place of its window (-1 outside of them), its resource and its value.

    The last element is the highest limit that the queue itself has where the limit of users holds.
    """
    entries = () if queue.spec is None else queue.spec.schedules
    for resource, ((limit, own), *windows) in _limits_of(queue).items():
        changed = [getattr(entry.resources.per_user, resource).limit is not None for entry in entries]
        kept = [there for (there, _), is_changed in zip(windows, changed, strict=True) if not is_changed]
        yield -1, resource, own, max([limit, *kept])
        for at, (there, users) in enumerate(windows):
            if changed[at]:
                yield at, resource, users, there


def _limits_of(queue: QueueShape) -> dict[str, list[tuple[float, float]]]:
    """Return the limit of a queue and that of its users, by resource: outside of windows, then in each window alone."""
    outside = dict.fromkeys(RESOURCES, _UNBOUNDED) if queue.bounds is None else queue.bounds
    found = {name: [(outside[name].limit, queue.users.get(name, math.inf))] for name in RESOURCES}
    spec = queue.spec or QueueSpec()
    for entry in spec.schedules:
        resources = while_open(spec, entry)
        users = _users_of(resources)
        for name, limits in found.items():
            limits.append((amount(getattr(resources, name).limit), users.get(name, math.inf)))
    return found


def _of_model_quotas(queue: QueueShape, children: Sequence[QueueShape]) -> Iterator[QueueFault]:
    """Yield quotas of models that the queue, its limits or its children cannot all have."""
    fault = partial(QueueFault, queue=queue.name, resource="gpu")
    for model, own in queue.models.items():
        if 0 <= own.limit < own.quota < math.inf:
            yield fault(rule=Rule.MODEL_LOW_LIMIT, model=model, found=own.limit, bound=own.quota)
    quota = (queue.bounds or {}).get("gpu", Bounds()).quota
    if (total := excess((each.quota for each in queue.models.values()), quota)) is not None:
        yield fault(rule=Rule.MODELS_OVERCOMMITTED, found=total, bound=quota)
    for model, own in queue.models.items():
        # Without a quota of its own, a queue is owed what its children are.
        below = excess((each.models.get(model, _UNBOUNDED).quota for each in children), own.quota)
        if own.quota > 0 and below is not None:
            yield fault(rule=Rule.MODEL_OVERCOMMITTED, model=model, found=below, bound=own.quota)


def _of_schedules(queue: QueueShape) -> Iterator[QueueFault]:
    """Yield the faults of schedules, each by itself."""
    if queue.spec is None:
        return
    for bad in bad_entries(queue.spec.schedules):
        yield QueueFault(rule=Rule.BAD_SCHEDULE, queue=queue.name, entry=bad.at, bad=bad)
    for at, entry in enumerate(queue.spec.schedules):
        if never_opens(entry, REFERENCE):
            yield QueueFault(rule=Rule.NEVER_OPENS, queue=queue.name, entry=at)
        if entry.on_close == "evict" and is_usable(entry):
            yield from _starting_again(queue, at)


def _starting_again(queue: QueueShape, at: int) -> Iterator[QueueFault]:
    """Yield a fault if the limit outside of an evicting window leaves room beyond the quota."""
    gpu = (queue.bounds or {}).get("gpu", Bounds())
    if gpu.limit > gpu.quota:
        yield QueueFault(
            rule=Rule.STARTS_AGAIN, queue=queue.name, entry=at, resource="gpu", found=gpu.limit, bound=gpu.quota
        )


REFERENCE: Final = 1_767_571_200.0
"""Monday, 2026-01-05, in UTC. Contradictions of windows are looked for in the week from there on, so that a manifest
has the same faults on every day."""


def _in_windows(queue: QueueShape, children: Sequence[QueueShape]) -> Iterator[QueueFault]:
    """Yield the contradictions that exist in some slice of a week and not outside of all windows, the worst of each.

    Cost: O(children x slices of a week), nothing without schedules.
    """
    if queue.spec is None and all(child.spec is None for child in children):
        return
    own, weeks = _week_of(queue), [_week_of(child) for child in children]
    # What is wrong without windows, too, is reported once, by the rule for that.
    outside = {(Rule.WINDOW_LOW_LIMIT, fault.resource) for fault in _of_bounds(queue)}
    outside |= {(Rule.WINDOW_OVERCOMMITTED, fault.resource) for fault in _overcommitted(queue, children)}
    worst: dict[tuple[Rule, str], QueueFault] = {}
    for instant in sorted({at for week in (own, *weeks) for at in week.begins}):
        now, others = own.at(instant), [week.at(instant) for week in weeks]
        open_now = (*now.windows, *(name for each in others for name in each.windows))
        for resource, bounds in (now.bounds or {}).items() if open_now else ():
            found = [(Rule.WINDOW_LOW_LIMIT, bounds.limit)] if 0 <= bounds.limit < bounds.quota < math.inf else []
            total = excess((each.bounds[resource].quota for each in others if each.bounds is not None), bounds.quota)
            found += [] if total is None else [(Rule.WINDOW_OVERCOMMITTED, total)]
            for rule, amount_there in found:
                known = worst.get((rule, resource))
                if known is None or abs(amount_there - bounds.quota) > abs(known.found - known.bound):
                    worst[rule, resource] = QueueFault(
                        rule=rule,
                        queue=queue.name,
                        resource=resource,
                        found=amount_there,
                        bound=bounds.quota,
                        windows=open_now,
                    )
    yield from (fault for place, fault in worst.items() if place not in outside)


@attrs.frozen
class _Slice:
    """A time in which nothing changes: the windows that are open, and the bounds."""

    windows: tuple[str, ...]
    bounds: Mapping[str, Bounds] | None


@attrs.frozen
class _Week:
    """The bounds of a queue over a week."""

    begins: Sequence[float]
    slices: Sequence[_Slice]

    def at(self, instant: float) -> _Slice:
        """Return what holds at an instant of the week."""
        return self.slices[max(0, bisect_right(self.begins, instant) - 1)]


def _week_of(shape: QueueShape) -> _Week:
    return _Week((REFERENCE,), (_Slice((), shape.bounds),)) if shape.spec is None else _week(shape.name, shape.spec)


@lru_cache(maxsize=1 << 13)
def _week(name: str, spec: QueueSpec) -> _Week:
    found = list(slices(spec, REFERENCE, REFERENCE + AHEAD_SECONDS))
    return _Week(
        [at for at, _ in found],
        [_Slice(tuple([f"{name}/{each}" for each in now.names]), _bounds_of(now.resources)) for _, now in found],
    )


def _limit_in(resources: object, model: str) -> float:
    found = part_of(resources, "models", model, "limit")
    return _number(resources, "models", model, "limit") if is_number(found) else math.inf


def _number(resources: object, *path: str) -> float:
    found = part_of(resources, *path)
    try:
        return amount(float(found)) if is_number(found) else 0.0
    except OverflowError:  # a whole number that no float holds
        return 0.0


def _bounds_of(resources: QueueResources | None) -> dict[str, Bounds] | None:
    if resources is None:
        return None
    each = {"gpu": resources.gpu, "cpu": resources.cpu, "memory": resources.memory}
    return {name: Bounds(quota=amount(own.quota), limit=amount(own.limit)) for name, own in each.items()}


def _users_of(resources: QueueResources | None) -> dict[str, float]:
    if resources is None or resources.per_user is None:
        return {}
    return {name: amount(getattr(resources.per_user, name).limit) for name in RESOURCES}


def _circles(known: Mapping[str, QueueShape]) -> dict[str, tuple[str, ...]]:
    """Return, for each queue whose parents form or lead into a circle, that circle.

    Cost: every queue is visited once.
    """
    circles: dict[str, tuple[str, ...]] = {}
    finished: set[str] = set()
    for start in known:
        path: dict[str, int] = {}
        name = start
        while name in known and name not in finished and name not in path:
            path[name] = len(path)
            name = known[name].parent
        walked = tuple(path)
        if name in path:
            circle = walked[path[name] :]
            first = circle.index(min(circle))
            # From the first name on, so that a circle reads the same wherever the walk entered it.
            circles.update(dict.fromkeys(walked, circle[first:] + circle[:first]))
        elif name in circles:
            circles.update(dict.fromkeys(walked, circles[name]))
        finished.update(walked)
    return circles


def _depths(children: Mapping[str, Sequence[QueueShape]], tops: Iterable[str]) -> dict[str, int]:
    """Return the depth of each queue, 1 at the top; queues that no top leads to are left out."""
    depths: dict[str, int] = {}
    level, depth = list(tops), 0
    while level:
        depth += 1
        depths.update(dict.fromkeys(level, depth))
        level = [child.name for name in level for child in children.get(name, ())]
    return depths
