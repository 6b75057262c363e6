"""What pods hold at present, kept from the changes of objects, as values for `kai.history.database.Writer`.

A machine: objects go in (`see`), and what changed since the last time comes out (`taken`); at the begin of a term
`everything` is what the first record is compared with. It has neither clock nor I/O.

A pod holds from its binding to its end, as for the scheduler. It counts for the queue on whose account it was bound.
A pod without a queue counts only where it holds GPUs, on no queue: what a device plugin gave to others is not idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from kai.api import names
from kai.api.conventions.binding import bound_at, group_of, held_under
from kai.api.conventions.gpu_sharing import weighed_model
from kai.api.conventions.pod_amounts import Surroundings, count
from kai.api.conventions.runtime_limits import ended_at
from kai.api.kinds import ApiObject, key_of
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.api.values import BadValue
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.basics.trees import ancestry
from kai.facts.model.units import GPU_UNIT, amounts, gpus_among
from kai.history.facts import NO_QUEUE, NOTHING, Amounts, Ended, Held, JobFacts, Key, NodeState, QueueFacts

if TYPE_CHECKING:
    from kai.api.conventions.amounts import Amount

WATCHED: Final[tuple[type[ApiObject], ...]] = (Queue, PodGroup, Pod, Node, ResourceClaim)
"""The kinds whose changes are recorded."""
_MEGABYTE: Final = 10**6
_MOST_EVICTED: Final = 1 << 16
_BY_API: Final = "EvictionByEvictionAPI"

K = TypeVar("K")
V = TypeVar("V")
GroupKey = tuple[str, str]
"""Namespace and name of a group; of a pod without one, its namespace and UID."""


@attrs.frozen
class _PodHolds:
    group: GroupKey
    node: str
    amounts: Amounts
    queue: str
    """The queue on whose account the pod was bound; "" if it says none."""
    bound: float
    pod: Pod = attrs.field(eq=False)


@attrs.define
class _Holding:
    """What one job holds on one node."""

    amounts: Amounts = NOTHING
    pods: dict[str, _PodHolds] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Recording:
    """The present holdings of all jobs, and the states of all nodes."""

    scheduler_name: str = names.SCHEDULER_NAME
    owns: Callable[[Mapping[str, str]], bool] = lambda _: True
    """Returns whether a node with these labels is in this scheduler's part of the cluster."""
    kubernetes: Callable[[], KubernetesVersion] = lambda: NEWEST
    evicted: dict[str, Ended] = attrs.field(factory=dict)
    """Why pods are evicted, by UID; see `note_end`."""
    _queues: dict[str, Queue] = attrs.field(factory=dict)
    _groups: dict[GroupKey, PodGroup] = attrs.field(factory=dict)
    _nodes: dict[str, Node] = attrs.field(factory=dict)
    _claims: dict[GroupKey, ResourceClaim] = attrs.field(factory=dict)
    _devices: Mapping[str, int] = attrs.field(factory=dict)
    """GPUs that DRA drivers offer, by node."""
    _pods: dict[str, _PodHolds] = attrs.field(factory=dict)
    _holdings: dict[tuple[GroupKey, str], _Holding] = attrs.field(factory=dict)
    _on_node: dict[str, dict[GroupKey, None]] = attrs.field(factory=dict)
    _of_group: dict[GroupKey, dict[str, None]] = attrs.field(factory=dict)
    _leaving: set[GroupKey] = attrs.field(factory=set)
    """Groups that were deleted, and are known until their last pod is gone."""
    _places: dict[str, QueueFacts] = attrs.field(factory=dict)
    """Queues in their present places, as far as they were asked for."""
    _changed: dict[tuple[GroupKey, str], Ended] = attrs.field(factory=dict)
    _changed_nodes: dict[str, None] = attrs.field(factory=dict)
    _recorded: dict[tuple[GroupKey, str], str] = attrs.field(factory=dict)
    """The UID under which each holding was recorded last."""

    # --- What happens ------------------------------------------------------------------------------------------------

    def see(self, before: Any, after: Any) -> None:  # noqa: ANN401 - objects of the watched kinds
        """Take in the change of one object; a side is None where it did not exist."""
        present = before if after is None else after
        if isinstance(present, Pod):
            if isinstance(before, Pod) and after is not None and before.metadata.uid != after.metadata.uid:
                # Another pod of that name: a StatefulSet made it while the watch was away, or within one instant.
                self._see_pod(before, is_gone=True)
            self._see_pod(present, is_gone=after is None)
        elif isinstance(present, Node):
            self._see_node(present, is_gone=after is None)
        elif isinstance(present, PodGroup):
            self._see_group(before, after)
        elif isinstance(present, Queue):
            self._see_queue(before, after)
        elif isinstance(present, ResourceClaim):
            if after is None:
                self._claims.pop(key_of(present), None)
            else:
                self._claims[key_of(present)] = present

    def note_end(self, pod: Pod, why: Ended) -> None:
        """Note why a pod will be gone, such as that kai evicts it: nothing in the pod says it."""
        # A pod whose end is never seen would stay for good; the oldest notes go first.
        while len(self.evicted) >= _MOST_EVICTED:
            del self.evicted[next(iter(self.evicted))]
        self.evicted[_uid_of(pod)] = why

    def note_devices(self, offered: Mapping[str, int]) -> None:
        """Note how many GPUs DRA drivers offer on each node."""
        if offered != self._devices:
            changed = {*self._devices, *offered}
            self._changed_nodes |= dict.fromkeys(n for n in changed if self._devices.get(n) != offered.get(n))
            self._devices = dict(offered)

    def _see_pod(self, pod: Pod, *, is_gone: bool) -> None:
        uid = _uid_of(pod)
        before = self._pods.get(uid)
        now = None if is_gone else self._holds(pod, uid, before)
        # Most changes of pods are of conditions, which the comparison leaves out, and change no amount.
        if now == before:
            return
        if before is not None:
            self._move(uid, before, -1)
            self._changed[before.group, before.node] = self._why(pod, uid, is_gone=is_gone)
            del self._pods[uid]
        if now is not None:
            self._pods[uid] = now
            self._move(uid, now, 1)
            self._changed[now.group, now.node] = Ended.CHANGED

    def _holds(self, pod: Pod, uid: str, before: _PodHolds | None) -> _PodHolds | None:
        # As the scheduler counts: a pod that is being deleted still holds its devices.
        if not pod.spec.node_name or pod.status.phase in ENDED:
            return None
        grant, group = held_under(pod), group_of(pod)
        around = Surroundings(
            node=self._nodes.get,
            claim=lambda namespace, name: self._claims.get((namespace, name)),
            scheduler_name=self.scheduler_name,
            kubernetes=self.kubernetes(),
        )
        found = _amounts_of(pod, around)
        if not group and not found.gpu:
            return None
        return _PodHolds(
            group=(pod.metadata.namespace, group or uid),
            node=pod.spec.node_name,
            amounts=found,
            queue="" if grant is None else grant.queue,
            bound=bound_at(pod) if before is None else before.bound,
            pod=pod,
        )

    def _move(self, uid: str, pod: _PodHolds, sign: int) -> None:
        place = (pod.group, pod.node)
        holding = self._holdings.setdefault(place, _Holding())
        holding.amounts = holding.amounts.plus(pod.amounts, sign)
        if sign > 0:
            holding.pods[uid] = pod
            self._on_node.setdefault(pod.node, {})[pod.group] = None
            self._of_group.setdefault(pod.group, {})[pod.node] = None
        else:
            del holding.pods[uid]
        if not holding.pods:
            del self._holdings[place]
            _leave(self._on_node, pod.node, pod.group)
            _leave(self._of_group, pod.group, pod.node)
            if pod.group in self._leaving and pod.group not in self._of_group:
                self._leaving.discard(pod.group)
                self._groups.pop(pod.group, None)
        self._changed_nodes[pod.node] = None

    def _why(self, pod: Pod, uid: str, *, is_gone: bool) -> Ended:
        # Taken at the end alone: between an eviction and the end other changes of the pod come by.
        noted = self.evicted.pop(uid, None) if is_gone or pod.status.phase in ENDED else None
        if noted is not None:
            return noted
        key = (pod.metadata.namespace, group_of(pod))
        group = self._groups.get(key)
        # A pod that succeeded at the last moment is done, although its group was ended at the limit.
        if pod.status.phase != "Succeeded" and group is not None and ended_at(group) is not None:
            return Ended.TIME_LIMIT
        if pod.status.phase not in ENDED and pod.spec.node_name not in self._nodes:
            # Its node went first, and perhaps since the last record: the pod must not hide that.
            return Ended.NODE
        for each in pod.status.conditions:
            if each.type == names.DISRUPTION_TARGET_CONDITION and each.status == "True":
                node = self._nodes.get(pod.spec.node_name)
                drains = each.reason == _BY_API and node is not None and node.spec.unschedulable
                return Ended.DRAINED if drains else Ended.EVICTED
        if pod.status.phase == "Succeeded":
            return Ended.DONE
        return Ended.FAILED if pod.status.phase == "Failed" else Ended.DELETED

    def _see_node(self, node: Node, *, is_gone: bool) -> None:
        name = node.metadata.name
        was = name in self._nodes
        if is_gone or not self.owns(node.metadata.labels):
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        self._changed_nodes[name] = None
        # What is held there ends with the node: there would be no capacity beside it.
        if was != (name in self._nodes):
            why = Ended.NODE if was else Ended.CHANGED
            self._changed |= dict.fromkeys(((group, name) for group in self._on_node.get(name, ())), why)

    def _see_group(self, before: PodGroup | None, after: PodGroup | None) -> None:
        present = before if after is None else after
        if present is None:
            return
        key = key_of(present)
        if after is None:
            # A group may go before its pods, and still says which queue they count for.
            if key in self._of_group:
                self._leaving.add(key)
            else:
                self._groups.pop(key, None)
            return
        self._leaving.discard(key)
        known = self._groups.get(key)
        self._groups[key] = after
        # Only its UID and its queue are recorded; its status changes in many cycles.
        if known is None or known.metadata.uid != after.metadata.uid or known.spec.queue != after.spec.queue:
            self._touch((key, node) for node in self._of_group.get(key, ()))

    def _see_queue(self, before: Queue | None, after: Queue | None) -> None:
        known = before if after is None else after
        if known is None:
            return
        name = known.metadata.name
        was = self._queues.get(name)
        if after is None:
            self._queues.pop(name, None)
            return  # what is held goes on to count for it, in the place that is remembered
        self._queues[name] = after
        if was is None or _place_in_tree(was) != _place_in_tree(after):
            # All of them, since a queue is in the path of each queue below it.
            self._places.clear()
            self._touch(self._holdings)

    def _touch(self, places: Iterable[tuple[GroupKey, str]]) -> None:
        for place in tuple(places):
            # An ending that is known already says more.
            self._changed.setdefault(place, Ended.CHANGED)

    # --- What is to be recorded --------------------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._changed or self._changed_nodes)

    def taken(self) -> tuple[dict[Key, Held | Ended], dict[str, NodeState | None]]:
        """Return what changed since the last call: holdings, or why they ended, and nodes, None if gone."""
        changed, self._changed = self._changed, {}
        held: dict[Key, Held | Ended] = {}
        for place, why in changed.items():
            # By place and not by job: a group made anew under its name has another UID, and the old row must end.
            uid = self._recorded.pop(place, "")
            now = self._held(place)
            if now is None:
                if uid:
                    held[uid, place[1]] = why
                continue
            if uid and uid != now.job.uid:
                held[uid, place[1]] = Ended.CHANGED
            held[now.job.uid, place[1]] = now if why is Ended.CHANGED else attrs.evolve(now, left=why)
            self._recorded[place] = now.job.uid
        nodes, self._changed_nodes = self._changed_nodes, {}
        return held, {name: self._state(name) for name in nodes}

    def everything(self) -> tuple[dict[Key, Held], dict[str, NodeState]]:
        """Return all holdings and nodes; nothing is left to be taken."""
        # The first record of a term is compared with the database, which knows what the term before it recorded.
        self._recorded.clear()
        self._changed, self._changed_nodes = dict.fromkeys(self._holdings, Ended.CHANGED), dict.fromkeys(self._nodes)
        held, nodes = self.taken()
        return (
            {key: each for key, each in held.items() if isinstance(each, Held)},
            {name: state for name, state in nodes.items() if state is not None},
        )

    def _held(self, place: tuple[GroupKey, str]) -> Held | None:
        key, node_name = place
        holding, node = self._holdings.get(place), self._nodes.get(node_name)
        if holding is None or node is None or holding.amounts == NOTHING:
            return None
        bounds = [each.bound for each in holding.pods.values()]
        # The oldest pod stands for the job, by name among those bound at once: the same one after a restart.
        first = min(holding.pods.values(), key=lambda each: (each.bound, each.pod.metadata.name))
        group = self._groups.get(key)
        # That on whose account the pod was bound: a group that is moved later does not move what it holds.
        queue = first.queue or ("" if group is None else group.spec.queue)
        return Held(
            job=self._job(key, first.pod, group),
            queue=self._queue(queue),
            model=weighed_model(node.metadata.labels),
            amounts=holding.amounts,
            first_bound=_milliseconds(min(bounds)),
            last_bound=_milliseconds(max(bounds)),
        )

    def _job(self, key: GroupKey, pod: Pod, group: PodGroup | None) -> JobFacts:
        """Return the job of a group; one whose group is gone is named after its group."""
        metadata = pod.metadata if group is None else group.metadata
        owner = next(iter(metadata.owner_references), None)
        named = key[1] if group is None and group_of(pod) else metadata.name
        labels = {**pod.metadata.labels, **metadata.labels}
        return JobFacts(
            uid=(metadata.uid if group is not None or not group_of(pod) else "") or "/".join(key),
            namespace=key[0],
            name=owner.name if owner is not None else named,
            kind=owner.kind if owner is not None else "" if group_of(pod) else "Pod",
            user=metadata.annotations.get(names.NOTED_USER) or labels.get(names.USER, ""),
            created=_milliseconds(metadata.creation_timestamp or 0.0) or 0,
        )

    def _queue(self, name: str) -> QueueFacts:
        if not name:
            return NO_QUEUE
        known = self._places.get(name)
        if known is None:
            known = self._places[name] = self._placed(name)
        return known

    def _placed(self, name: str) -> QueueFacts:
        parents = {each: queue.spec.parent_queue for each, queue in self._queues.items()}
        found: QueueFacts | None = None
        for each in reversed(dict.fromkeys(ancestry(name, parents))):
            queue = self._queues.get(each)
            found = QueueFacts(
                uid=(queue.metadata.uid if queue is not None else "") or each,  # in files queues have no UID
                name=each,
                display_name="" if queue is None else queue.spec.display_name,
                parent=found,
            )
        return NO_QUEUE if found is None else found

    def _state(self, name: str) -> NodeState | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        more = self._devices.get(name, 0) * GPU_UNIT
        whole, usable = (_of_node(part, more) for part in (node.status.capacity, node.status.allocatable))
        held = NOTHING
        for group in self._on_node.get(name, ()):
            held = held.plus(self._holdings[group, name].amounts)
        unheld = Amounts(*(max(0, own - taken) for own, taken in zip(whole, held, strict=True)))
        over = Amounts(*(max(0, taken - own) for own, taken in zip(whole, held, strict=True)))
        # The kubelet reserves CPU and memory, so less of them is allocatable without a fault; it reserves no GPUs.
        failing = Amounts(gpu=min(unheld.gpu, max(0, whole.gpu - usable.gpu)))
        down = unheld if _is_closed(node) else failing
        return NodeState(model=weighed_model(node.metadata.labels), capacity=whole, down=down, over=over)


def _leave(table: dict[K, dict[V, None]], key: K, value: V) -> None:
    del table[key][value]
    if not table[key]:
        del table[key]


def _uid_of(pod: Pod) -> str:
    # By UID, since a pod made anew under the same name is another one; objects of files have none.
    return pod.metadata.uid or "/".join(key_of(pod))


def _amounts_of(pod: Pod, around: Surroundings) -> Amounts:
    """Return what a placed pod holds; of a pod that cannot be counted, what its containers request."""
    pod = _completed(pod)
    try:
        _, held = count(pod, around)
    except BadValue:
        held = {}
    if not held:  # bound, but no controller said so yet
        try:
            held, _ = count(pod, around)
        except BadValue:
            return NOTHING
    gpus = sum(each.billionths for name, each in held.items() if name.endswith("gpu"))
    more = gpus_among({name: each.billionths // 10**9 for name, each in held.items() if not name.endswith("gpu")})
    return Amounts(
        # Rounded up, as Kubernetes rounds quantities to thousandths.
        gpu=-(-gpus // 10**6) + more,
        cpu=-(-_billionths(held, names.CPU) // 10**6),
        memory=-(-_billionths(held, names.MEMORY) // (10**9 * _MEGABYTE)),
    )


def _completed(pod: Pod) -> Pod:
    """Return a pod that requests what it is limited to where it says nothing, as API servers see to."""
    asked = [each.resources for each in pod.spec.containers]
    if all(each.limits.keys() <= each.requests.keys() for each in asked):
        return pod
    whole = [attrs.evolve(each, requests={**each.limits, **each.requests}) for each in asked]
    pairs = zip(pod.spec.containers, whole, strict=True)
    containers = tuple(attrs.evolve(each, resources=resources) for each, resources in pairs)
    return attrs.evolve(pod, spec=attrs.evolve(pod.spec, containers=containers))


def _billionths(held: Mapping[str, Amount], name: str) -> int:
    found = held.get(name)
    return 0 if found is None else found.billionths


def _of_node(texts: Mapping[str, str], more: int) -> Amounts:
    found = amounts(tuple(sorted(texts.items())))
    return Amounts(
        gpu=gpus_among(found) + more, cpu=found.get(names.CPU, 0), memory=found.get(names.MEMORY, 0) // _MEGABYTE
    )


def _is_closed(node: Node) -> bool:
    """Return whether a node takes no pods: it is not ready, or an administrator closed it."""
    ready = all(each.status == "True" for each in node.status.conditions if each.type == "Ready")
    return node.spec.unschedulable or not ready


def _place_in_tree(queue: Queue) -> tuple[str, str, str]:
    return queue.metadata.uid, queue.spec.parent_queue, queue.spec.display_name


def _milliseconds(seconds: float) -> int | None:
    return None if seconds == inf else round(seconds * 1000)
