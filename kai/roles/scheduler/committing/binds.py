"""A bind in flight: a bind request that is written, or a bind that the binder of this process carries out directly.

`BindOperation` is the state machine of one bind.

`BindTemplates` renders bind requests as JSON from memoized parts. Thousands of bind requests of a cycle differ only in
a name, a UID and a node. The text for each node, each namespace and each amount of devices is kept, so a bind request
costs a few look-ups and one joining of strings.
"""

from __future__ import annotations

from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import attrs

from kai.api import names, plans
from kai.api.codec.structuring import Printed, unstructure
from kai.api.kinds import BY_CLASS, ApiObject, Key, key_of, title
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Create, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.requests import NamespaceEnding, Request
from kai.cluster.transport.encoding import to_json
from kai.intake.bind_requests import has_failed
from kai.roles.scheduler.committing import orders
from kai.roles.scheduler.committing.operations import Ask, End, HandOver, Moment, Pause, Step, title_of
from kai.roles.scheduler.committing.orders import BLANK, Stamp
from kai.roles.scheduler.effects import Carried, Reader
from kai.roles.scheduler.reporting.signals import BindDropped, BindOrdered, BindRefused
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.framework.decisions import Bind

_KIND: Final = BY_CLASS[BindRequest]
_HEAD: Final = f'{{"apiVersion":"{_KIND.api_version}","kind":"{_KIND.kind}","metadata":{{"name":'
_OWNER: Final = ',"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":'
_UID: Final = ',"uid":'
_SPEC: Final = '}]},"spec":{"podName":'
_MOST_PARTS: Final = 1 << 17
"""Limit of memoized parts: more than the nodes of a large cluster, times the kinds of amounts that pods receive."""


@attrs.define
class BindTemplates:
    """Writes bind requests of one scheduler."""

    settings: SchedulerSettings
    _places: dict[str, str] = attrs.field(factory=dict)
    """Text by namespace."""
    _nodes: dict[tuple[str, str, int, float], tuple[str, str]] = attrs.field(factory=dict)
    """Labels and the end of the spec, by node and by what a pod receives there."""

    def create(
        self, decision: Bind, pod: Pod, node: str, devices: tuple[str, ...] = (), stamp: Stamp = BLANK
    ) -> Create:
        """Return the write of the bind request that ``orders.bind_request`` returns."""
        text = self.text(decision, pod, node, devices, stamp)
        if text is None:
            return orders.create_bind_request(orders.bind_request(decision, pod, node, devices, self.settings, stamp))
        ref = Ref(BindRequest, pod.metadata.name, pod.metadata.namespace)
        return Create(ref=ref, manifest=Printed(text, _KIND.api_version))

    def text(
        self, decision: Bind, pod: Pod, node: str, devices: tuple[str, ...] = (), stamp: Stamp = BLANK
    ) -> bytes | None:
        """Return the bind request as JSON; None for one with fields that the templates do not cover.

        Cost: about a microsecond, a tenth of the time of serializing the object.
        """
        metadata = pod.metadata
        namespace, uid = metadata.namespace, metadata.uid
        if decision.request or not (decision.received and namespace and uid):
            return None
        place = self._places.get(namespace) or self._place(namespace)
        kind = (node, decision.received, decision.gpu_count, decision.gpu_portion)
        labels, end = self._nodes.get(kind) or self._node(*kind)
        if stamp is not BLANK:
            labels += _notes(stamp)
        if devices:
            end += f',"selectedGPUGroups":[{",".join(map(quoted, devices))}]'
        name = quoted(metadata.name)
        return f"{_HEAD}{name}{place}{labels}{_OWNER}{name}{_UID}{quoted(uid)}{_SPEC}{name}{end}}}}}".encode()

    def _place(self, namespace: str) -> str:
        if len(self._places) >= _MOST_PARTS:
            self._places.clear()
        text = self._places[namespace] = f',"namespace":{quoted(namespace)},"labels":'
        return text

    def _node(self, node: str, received: str, count: int, portion: float) -> tuple[str, str]:
        if len(self._nodes) >= _MOST_PARTS:
            self._nodes.clear()
        labels = to_json({names.SELECTED_NODE: node, **orders.pool_label(self.settings)}).decode()
        spec = {
            "selectedNode": node,
            "receivedResourceType": received,
            "receivedGPU": unstructure(orders.received_gpu(count, portion)),
        }
        parts = self._nodes[node, received, count, portion] = labels, f",{to_json(spec).decode()[1:-1]}"
        return parts


def _notes(stamp: Stamp) -> str:
    annotations = stamp.annotations()
    return f',"annotations":{to_json(annotations).decode()}' if annotations else ""


_PATIENCE: Final = 3
"""How often a bind waits for the deletion of an old request before it fails with an event on its pod."""


@attrs.define
class BindOperation:
    """A bind in flight, with or without a written bind request.

    Stages: create, look (read the existing request), clear (delete it).
    """

    name: ClassVar[str] = "bind"
    pod: Pod
    request: BindRequest
    write: plans.Create | None
    """The write of the request; None for a direct bind without one."""
    settings: SchedulerSettings
    since: float
    attempts: int = 0
    _stage: Literal["create", "look", "clear"] = "create"

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The bind request."""
        return BindRequest, key_of(self.request)

    @property
    def is_open(self) -> bool:
        """Whether the outcome of a write is unknown and has to be read."""
        return self._stage == "look"

    def begin(self) -> Step:
        """Write the bind request, or hand the bind to the binder."""
        return HandOver(self.request) if self.write is None else self._create()

    def answered(self, reply: object, at: Moment) -> Step:
        """Return the step after a reply."""
        if isinstance(reply, Carried):
            return self._carried(reply, at)
        if self._stage == "look":
            return self._looked(reply, at)
        refusal = reply if isinstance(reply, Refusal) else None
        if self._stage == "clear":
            # Gone, or a new one has its name, because the deletion names a UID: in both cases the next create shows it.
            if refusal is None or refusal.reason in {Reason.NOT_FOUND, Reason.CONFLICT}:
                return self._create()
            self._stage = "look"
            return Pause()
        if refusal is None:
            return self._done(at)
        return self._not_created(refusal, at)

    def _carried(self, reply: Carried, at: Moment) -> Step:
        if not reply.failure:
            return self._done(at, is_bound=True)
        return self._dropped(reply.failure) if reply.is_gone else self._refused(reply.failure)

    def _not_created(self, refusal: Refusal, at: Moment) -> Step:
        # It may be our own request, from a write whose answer was lost.
        if refusal.reason is Reason.ALREADY_EXISTS:
            return self._look()
        # A second write could collide with the first, which may still take effect: read first.
        if refusal.reason is Reason.UNKNOWN:
            self._stage = "look"
            return Pause()
        if isinstance(refusal, NamespaceEnding):
            return self._dropped(refusal.message)
        node, why = self.request.spec.selected_node, refusal.why
        return self._refused(refusal.message, orders.failed_binding(self.pod, node, why))

    def resumed(self, reader: Reader) -> Step:
        """Look again, or write the request again unless the pod is gone or has a node."""
        if self._stage == "look":
            return self._look()
        pod = reader.get(Pod, self.pod.metadata.name, self.pod.metadata.namespace)
        if pod is None or pod.metadata.uid != self.pod.metadata.uid or pod.metadata.deletion_timestamp is not None:
            return self._dropped("the pod is gone")
        if pod.spec.node_name:
            return self._dropped("the pod has a node")
        return self._create()

    def _create(self) -> Step:
        self._stage = "create"
        return Ask(self.write or orders.create_bind_request(self.request))

    def _look(self) -> Step:
        self._stage = "look"
        return Ask(plans.Get(ref=Ref.to(self.request), fresh=True))

    def _looked(self, found: object, at: Moment) -> Step:
        if isinstance(found, BindRequest):
            if orders.is_same_order(found, self.request) and not has_failed(found):
                return self._done(at)
            owners = {owner.uid for owner in found.metadata.owner_references}
            if has_failed(found) or self.pod.metadata.uid not in owners:
                # It belongs to a deleted pod of the same name, or to a failed attempt: it only blocks the name.
                if found.metadata.deletion_timestamp is not None:
                    return self._blocked(found)
                self._stage = "clear"
                return Ask(plans.Delete(ref=Ref.to(found), uid=found.metadata.uid))
            return self._dropped("another bind request for the pod is there")
        if isinstance(found, Refusal) and found.reason is Reason.NOT_FOUND:
            self._stage = "create"
        return Pause()

    def _blocked(self, found: BindRequest) -> Step:
        """Wait for a request that is being deleted; after some attempts report its finalizers, and back off."""
        if self.attempts < _PATIENCE:
            return Pause()
        held = ", ".join(found.metadata.finalizers) or "none"
        why = f"{title(found)} of an earlier bind is being deleted, but is still there (finalizers: {held})"
        return self._refused(why, orders.failed_binding(self.pod, self.request.spec.selected_node, why))

    def _done(self, at: Moment, *, is_bound: bool = False) -> Step:
        created, node = self.pod.metadata.creation_timestamp, self.request.spec.selected_node
        waited = 0.0 if created is None else max(0.0, at.wall - created)
        ordered = BindOrdered(pod=title_of(self.pod), node=node, seconds=at.now - self.since, waited=waited)
        if not self.settings.announce_binds:
            return End(signal=ordered)
        said = orders.scheduled_event(self.pod, node, self.settings)
        return End(signal=ordered, then=(said,)) if is_bound else End(signal=ordered, ordered=said)

    def _refused(self, why: str, said: tuple[Request, ...] = ()) -> Step:
        refused = BindRefused(pod=title_of(self.pod), why=why)
        refusal = orders.lack_of_room(self.request, self.pod.metadata.uid, why)
        return End(signal=refused, then=said, backs_off=self.pod.metadata.uid, why=why, refusal=refusal)

    def _dropped(self, why: str) -> Step:
        return End(signal=BindDropped(pod=title_of(self.pod), why=why))
