"""Queues whose limit is below their quota: the rest of such a quota can never be used."""

from collections.abc import Iterator

from kai.api.objects import ClusterObjects

_RESOURCES = ("gpu", "cpu", "memory")


def low_limits(objects: ClusterObjects) -> tuple[tuple[str, str], ...]:
    """Return for each queue whose limit is below its quota its name, and a sentence without it."""
    return tuple(_low(objects))


def _low(objects: ClusterObjects) -> Iterator[tuple[str, str]]:
    for queue in objects.queues:
        if queue.spec.resources is None:
            continue
        for resource in _RESOURCES:
            amounts = getattr(queue.spec.resources, resource)
            if 0 <= amounts.limit < amounts.quota:
                text = f"its limit of {resource}, {amounts.limit:.15g}, is below its quota, {amounts.quota:.15g}"
                yield queue.metadata.name, text


__all__ = ["low_limits"]
