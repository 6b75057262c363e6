"""Binds: the check before a statement is carried out, and a bind in flight.

`verify` asks whether the newest store still agrees with the snapshot behind a statement. A statement is carried out
whole or not at all. A rejected statement is decided anew in the next cycle. `LatestBudgets` holds the disruption
budgets of the store; `kai.intake.disruption_budgets` applies them to pods.

`BindOperation` is the state machine of one bind: a bind request that is written, or a bind that the binder of this
process carries out directly.

`BindTemplates` renders bind requests as JSON from memoized parts. Thousands of bind requests of a cycle differ only in
a name, a UID and a node. The text for each node, each namespace and each amount of devices is kept, so a bind request
costs a few look-ups and one joining of strings.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import attrs

from kai.api import names, plans
from kai.api.codec.structuring import Printed, structure_as, unstructure
from kai.api.kinds import BY_CLASS, ApiObject, Key, key_of, title
from kai.api.kubernetes.meta import PodDisruptionBudget
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import Create, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest, BindRequestSpec, is_for
from kai.cluster.requests import NamespaceEnding, Request
from kai.cluster.transport.encoding import to_json
from kai.facts.model.placement import Quantities
from kai.framework.decisions import Bind, Decision, Evict
from kai.intake.bind_requests import fields, has_failed
from kai.intake.disruption_budgets import Budgets
from kai.intake.nodes import is_wanted
from kai.roles.scheduler.committing import orders
from kai.roles.scheduler.committing.operations import (
    Ask,
    BindEvent,
    End,
    Gang,
    HandOver,
    Moment,
    Pause,
    Step,
    title_of,
)
from kai.roles.scheduler.committing.orders import BLANK, Stamp
from kai.roles.scheduler.effects import BindDropped, BindOrdered, BindRefused, Carried, Reader
from kai.roles.scheduler.settings import BindEventsOf, EvictBy, SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.facts.state.snapshot import Snapshot


@attrs.define
class LatestBudgets:
    """The disruption budgets of a store, indexed again only when one changes, not for each evicted pod."""

    _listing: tuple[PodDisruptionBudget, ...] = ()
    _sorted: Budgets = attrs.field(factory=lambda: Budgets(()))

    def of(self, reader: Reader) -> Budgets:
        """Return all budgets in ``reader``."""
        listing = reader.all(PodDisruptionBudget)
        if listing is not self._listing:
            self._listing, self._sorted = listing, Budgets(listing)
        return self._sorted


def verify(
    reader: Reader,
    settings: SchedulerSettings,
    snapshot: Snapshot,
    decisions: Iterable[Decision],
    budgets: LatestBudgets,
) -> tuple[Pod, ...] | str:
    """Return the present pods of a statement, or a text that says why it must not be carried out.

    Holds: decisions name rows; a row matches only an object with its name and its UID.
    """
    pods: list[Pod] = []
    victims: list[Pod] = []
    for decision in decisions:
        pod = pod_of(reader, snapshot, decision.pod)
        if pod is None:
            return f"pod {snapshot.pods[decision.pod].key}: is gone"
        match decision:
            case Bind():
                found = _against_bind(reader, settings, pod, snapshot.nodes[decision.node].name)
            case Evict():
                found = _against_eviction(reader, settings, pod)
                # A pod that is leaving takes nothing more from a disruption budget, and the API server does not ask the
                # budget either.
                if pod.metadata.deletion_timestamp is None:
                    victims.append(pod)
            case _:
                found = _against_promise(pod)
        if found:
            return f"pod {snapshot.pods[decision.pod].key}: {found}"
        pods.append(pod)
    if victims and settings.evict_by is not EvictBy.DELETE:
        return budgets.of(reader).obstacle(victims)[0] or tuple(pods)
    return tuple(pods)


def pod_of(reader: Reader, snapshot: Snapshot, row: int) -> Pod | None:
    """Return the present pod of a row; None if it is gone, or a new pod has its name."""
    facts = snapshot.pods[row]
    pod = reader.get(Pod, facts.name, facts.namespace)
    return pod if pod is not None and pod.metadata.uid == facts.uid else None


def _against_bind(reader: Reader, settings: SchedulerSettings, pod: Pod, node_name: str) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if pod.spec.node_name:
        return f"is bound to node {pod.spec.node_name} already"
    if pod.status.phase not in {"", "Pending"}:
        return f"is {pod.status.phase}"
    if pod.spec.scheduling_gates:
        return "has scheduling gates"
    node = reader.get(Node, node_name)
    if node is None or node.metadata.deletion_timestamp is not None:
        return f"node {node_name} is gone"
    if node.spec.unschedulable:
        return f"node {node_name} is cordoned"
    if not is_wanted(node, settings.intake):
        return f"node {node_name} belongs to another scheduler now"
    return _existing_order(reader, pod)


def _existing_order(reader: Reader, pod: Pod) -> str:
    request = reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace)
    if request is None or has_failed(request):
        return ""
    owners = {owner.uid for owner in request.metadata.owner_references}
    if owners and pod.metadata.uid not in owners:
        return ""  # it belongs to a deleted pod of the same name: garbage collection or `BindOperation` removes it
    # A request for a node that is gone cannot be carried out, and is deleted (`RemovalOperation`).
    if reader.get(Node, request.spec.selected_node) is None:
        return ""
    return f"is being bound to node {request.spec.selected_node} already"


def _against_eviction(reader: Reader, settings: SchedulerSettings, pod: Pod) -> str:
    # An eviction cannot be taken back. A bind needs no such check, because the binder checks it again.
    if reader.age() > settings.stale_store_seconds:
        return "may not be evicted on old knowledge: a watch is silent"
    if pod.status.phase in ENDED:
        return "has ended by itself"
    if reader.is_assumed(BindRequest, key_of(pod)):
        return "may not be evicted while its bind is being written"
    return ""


def is_being_bound(reader: Reader, pod: Pod) -> bool:
    """Return whether the bind of a pod is ordered, and the binder has neither done nor failed it."""
    request = reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace)
    if pod.spec.node_name or request is None or has_failed(request):
        return False
    return is_for(request, pod.metadata.uid)


def _against_promise(pod: Pod) -> str:
    return "has ended by itself" if pod.status.phase in ENDED else ""


_KIND: Final = BY_CLASS[BindRequest]
_HEAD: Final = f'{{"apiVersion":"{_KIND.api_version}","kind":"{_KIND.kind}","metadata":{{"name":'
_OWNER: Final = ',"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":'
_UID: Final = ',"uid":'
_SPEC: Final = '}]},"spec":{"podName":'
_OF_PODS: Final = frozenset({"resourceClaimAllocations", "extendedResourceClaimAllocation"})
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
    _records: dict[Hashable, str] = attrs.field(factory=dict)
    """Text of what plugins record, by content."""

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
        record = self._record(decision.request) if decision.request else ""
        if record is None or not (decision.received and namespace and uid):
            return None
        place = self._places.get(namespace) or self._place(namespace)
        kind = (node, decision.received, decision.gpu_count, decision.gpu_portion)
        labels, end = self._nodes.get(kind) or self._node(*kind)
        if stamp is not BLANK:
            labels += _notes(stamp)
        if devices:
            end += f',"selectedGPUGroups":[{",".join(map(quoted, devices))}]'
        name = quoted(metadata.name)
        return f"{_HEAD}{name}{place}{labels}{_OWNER}{name}{_UID}{quoted(uid)}{_SPEC}{name}{end}{record}}}}}".encode()

    def _record(self, request: Mapping[str, object]) -> str | None:
        """Return the text of what plugins record in the spec; None where it names something of the pod alone."""
        # Claims and their devices differ from pod to pod.
        if not _OF_PODS.isdisjoint(request):
            return None
        try:
            content = _content(request)
        except TypeError:
            return None
        found = self._records.get(content)
        if found is None:
            if len(self._records) >= _MOST_PARTS:
                self._records.clear()
            # What a bind request says anyway is the engine's to say.
            spec = attrs.evolve(
                structure_as(BindRequestSpec, fields(request)),
                pod_name="",
                selected_node="",
                received_resource_type="",
                received_gpu=None,
                selected_gpu_groups=(),
            )
            printed = to_json(unstructure(spec)).decode()[1:-1]
            found = self._records[content] = f",{printed}" if printed else ""
        return found

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


def _content(value: object) -> Hashable:
    """Return what equal records have in common. Raises: TypeError for devices and containers, which differ by pod."""
    match value:
        case str() | Quantities():
            return value
        case int() if not isinstance(value, bool):
            return value
        case Mapping():
            return tuple([(name, _content(each)) for name, each in value.items()])
        case list() | tuple():
            return tuple([_content(each) for each in value])
    raise TypeError(f"record: found {type(value).__name__}, expected a name, a number or amounts")


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
    gang: Gang | None = None
    """The gang of the pod, if the event of the bind is on the pod group."""
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
            # The name alone shows nothing: the request is named after its pod, and an earlier pod may have had the
            # name.
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
        if self.settings.bind_events is BindEventsOf.NONE:
            return End(signal=ordered)
        event = BindEvent(orders.scheduled_event(self.pod, node, self.settings), node, self.gang)
        return End(signal=ordered, bound=event) if is_bound else End(signal=ordered, ordered=event)

    def _refused(self, why: str, said: tuple[Request, ...] = ()) -> Step:
        refused = BindRefused(pod=title_of(self.pod), why=why)
        refusal = orders.lack_of_room(self.request, self.pod.metadata.uid, why)
        return End(signal=refused, then=said, backs_off=self.pod.metadata.uid, why=why, refusal=refusal)

    def _dropped(self, why: str) -> Step:
        return End(signal=BindDropped(pod=title_of(self.pod), why=why))
