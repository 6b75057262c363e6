"""When a case happens that does not say so: at the newest time that its objects know of.

It is not the time of the clock, because the same files must always give the same decisions.
"""

from collections.abc import Iterable, Iterator

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.values import times
from kai.api.values.bad_value import BadValue

_STAMPS = (names.STALE_SINCE, names.PARTIAL_SINCE, names.LAST_START, names.LAST_EVICTION)


def newest_time(objects: ClusterObjects) -> float:
    """Return the newest instant in ``objects``, in seconds since the epoch; 0 if they hold none."""
    return max(_instants(objects), default=0.0)


def _instants(objects: ClusterObjects) -> Iterator[float]:
    for members in (objects.pods, objects.pod_groups, objects.nodes, objects.queues, objects.bind_requests):
        yield from _births_and_deaths(obj.metadata for obj in members)
    for pod in objects.pods:
        if pod.status.start_time is not None:
            yield pod.status.start_time
        yield from (c.last_transition_time for c in pod.status.conditions if c.last_transition_time is not None)
    for group in objects.pod_groups:
        conditions = group.status.scheduling_conditions
        yield from (c.last_transition_time for c in conditions if c.last_transition_time is not None)
        yield from _stamps(group.metadata.annotations.get(key) for key in _STAMPS)


def _births_and_deaths(all_metadata: Iterable[ObjectMeta]) -> Iterator[float]:
    for metadata in all_metadata:
        for instant in (metadata.creation_timestamp, metadata.deletion_timestamp):
            if instant is not None:
                yield instant


def _stamps(texts: Iterator[str | None]) -> Iterator[float]:
    for text in texts:
        try:
            if text:
                yield times.instant(text)
        except BadValue:
            continue
