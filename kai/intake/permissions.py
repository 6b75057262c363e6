"""What namespaces may use: queues that admit them, and the priorities that they are bounded to.

Administrators say it on objects that tenants cannot change: a queue allows namespaces
(``kai.api.conventions.queue_access``), and a namespace lists priority classes and preemptibilities. Admission policies
refuse most of what is not allowed; a group that came in all the same is held here, and its pods that wait are not
tried. What runs keeps its place.

Queues are bounded only where ``IntakeSettings.queue_access`` is *required*: without it every namespace may use every
queue, as with KAI-Scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kai.api import names
from kai.api.conventions.queue_access import Admits, listed
from kai.api.kubernetes.core import Namespace
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.framework.verdict import Code
from kai.intake.settings import QueueAccess

Refusal = tuple[Code, str]
"""A code and its text; the text is "" where nothing is refused."""

ALLOWED: Final[Refusal] = (Code.HELD, "")


@attrs.frozen
class Bounds:
    """Which priorities a namespace may use; None: all."""

    classes: tuple[str, ...] | None = None
    preemptibilities: tuple[str, ...] | None = None

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Bounds:
        """Return what the annotations of a namespace say."""
        classes, kinds = annotations.get(names.ALLOWED_PRIORITY_CLASSES), annotations.get(names.ALLOWED_PREEMPTIBILITY)
        return cls(None if classes is None else listed(classes), None if kinds is None else listed(kinds))


_FREE: Final = Bounds()


@attrs.frozen
class Permissions:
    """What all namespaces may use; equal permissions refuse the same groups."""

    queues: Mapping[str, Admits] | None = None
    """By name; None: every namespace may use every queue."""
    labels: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Of namespaces, those at which queues look."""
    bounds: Mapping[str, Bounds] = attrs.field(factory=dict)
    """Of the namespaces that have any."""

    def refusal(self, source: PodGroup, *, preemptible: bool) -> Refusal:
        """Return why no pod of a group may be tried; `ALLOWED` if they may.

        A queue that does not exist is not judged.
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


def read_permissions(queues: Iterable[Queue], spaces: Iterable[Namespace], access: QueueAccess) -> Permissions:
    """Return what namespaces may use. Labels that no queue looks at make no difference."""
    bounds = {each.metadata.name: Bounds.of(each.metadata.annotations) for each in spaces if _is_bounded(each.metadata)}
    if access is QueueAccess.OPEN:
        return Permissions(bounds=bounds)
    admitting = {each.metadata.name: Admits.of(each.metadata.annotations) for each in queues}
    looked_at = {key for queue in admitting.values() for key, _ in queue.terms}
    labels = {each.metadata.name: _among(each.metadata.labels, looked_at) for each in spaces}
    return Permissions(admitting, {name: found for name, found in labels.items() if found}, bounds)


def queue_text(queue: str, namespace: str) -> str:
    """Return that a namespace may not use a queue. The queue's other namespaces are not named: tenants read this."""
    return (
        f"spec.queue: found {queue}, expected a queue that allows namespace {namespace}; the annotations"
        f" {names.ALLOWED_NAMESPACES} and {names.ALLOWED_NAMESPACE_LABELS} of a queue say which it allows"
    )


def _beyond(bounds: Bounds, source: PodGroup, *, preemptible: bool) -> Refusal:
    """Return which bound of its namespace a group does not keep."""
    named, namespace = source.spec.priority_class_name, source.metadata.namespace
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
