"""The two queues of a fresh installation, so that a workload that names no queue has one.

They cannot be part of what is applied at installation: a client that applies a kind and an object of it at once does
not know the kind yet. So the queue controller makes them, once its list of queues is complete and if it is empty. Where
there is a single queue, its author decides which there are, also that there is no default queue; unless it is the
first of ours, alone, since then we were cut off between the two.

Source: names and values of the peer's chart, which makes them at installation and never again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling.queue import Queue, QueueResource, QueueResources, QueueSpec

# Nothing is guaranteed, everything that is idle may be used.
_SHARE: Final = QueueResource(quota=0.0, limit=names.UNLIMITED, over_quota_weight=1.0)
_SHARES: Final = QueueResources(gpu=_SHARE, cpu=_SHARE, memory=_SHARE)
_OURS: Final = {"app.kubernetes.io/part-of": "kai"}
_PARTS: Final = ("cpu", "gpu", "memory")


def first_queues(existing: Iterable[Queue]) -> tuple[dict[str, Any], ...]:
    """Return the manifests of the queues to create, the parent first; none if there is any queue of another author."""
    first = _manifest(names.DEFAULT_PARENT_QUEUE, "")
    second = _manifest(names.DEFAULT_QUEUE, names.DEFAULT_PARENT_QUEUE)
    known = tuple(existing)
    if not known:
        return (first, second)
    return (second,) if len(known) == 1 and _is_our_first(known[0]) else ()


def _is_our_first(queue: Queue) -> bool:
    labels = queue.metadata.labels
    return queue.metadata.name == names.DEFAULT_PARENT_QUEUE and _OURS.items() <= labels.items()


def _manifest(name: str, parent: str) -> dict[str, Any]:
    metadata = ObjectMeta(name=name, labels=_OURS)
    manifest = unstructure(Queue(metadata=metadata, spec=QueueSpec(parent_queue=parent, resources=_SHARES)))
    # A quota of 0 is a default and therefore left out; here it is the point.
    return {
        **manifest,
        "spec": {
            **manifest["spec"],
            "resources": {part: {"quota": 0, **manifest["spec"]["resources"][part]} for part in _PARTS},
        },
    }
