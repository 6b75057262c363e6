"""What processes decide, show and say: against what they know, against what they were told, and what needs no saying.

A decision is looked at in the moment in which it is committed, beside what its process knew just then. A statement that
the binder or the server would refuse later is wrong all the same: it costs a pod its turn.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.connect import Connection
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from tests.simulation.world import GROUP, ORDER, POD, QUEUE, World

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Change
    from tests.simulation.replica import Replica

_STALE: Final = 75.0 + 5.0
"""So long a watch may be silent before evictions have to stop; a little more than the setting."""
_TOLERANCE: Final = 0.01
_TIMES: Final = frozenset({"lastTransitionTime", "lastProbeTime", "resourceVersion", "transitionID"})
_FAILED_AGAIN: Final = b"BindingError"
"""In the words of a bind that failed: one that fails the same way later is news all the same."""
_UNREAD: Final = 50.0
"""Longer than the longest pause before a read of what became of a write."""
_BROKEN: Final = 500
_OVERDUE: Final = 75.0
"""Longer than it takes another to lead, and to look."""


@attrs.frozen
class _Known:
    """What a process knows as a cycle ends."""

    connection: Connection
    pods: dict[tuple[str, str], Pod]
    nodes: dict[str, Node]
    ordered: frozenset[Any]
    """Pods with orders that are being written, by namespace and name."""
    age: float

    @classmethod
    def of(cls, connection: Connection) -> _Known:
        """Return what a process knows now."""
        store = connection.store
        pods = {(each.metadata.namespace, each.metadata.name): each for each in store.all(Pod)}
        nodes = {each.metadata.name: each for each in store.all(Node)}
        return cls(connection, pods, nodes, frozenset(store.cache(BindRequest)._assumed), store.age())

    def against(self, order: BindRequest) -> tuple[int, str] | None:
        """Return what is known against an order, with the invariant."""
        pod = self.pods.get((order.metadata.namespace, order.spec.pod_name))
        if pod is None or pod.metadata.uid not in {each.uid for each in order.metadata.owner_references}:
            return 5, "the pod is gone"
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in {"Succeeded", "Failed"}:
            return 5, "the pod is leaving or over"
        if pod.spec.node_name:
            return 1, "the pod is bound"
        node = self.nodes.get(order.spec.selected_node)
        if node is None:
            return 5, "the node is gone"
        if node.spec.unschedulable or "kai.scheduler/node-pool" in node.metadata.labels:
            return 5, "the node is cordoned, or belongs to another scheduler"
        return None


class _Written(msgspec.Struct):
    """An object as it is answered, of which only the version counts."""

    metadata: dict[str, Any]


@attrs.define(eq=False)
class Decisions:
    """Looks at each replica as its cycles begin and end, and at its patches."""

    world: World
    told: dict[tuple[int, str], tuple[str, float]] = attrs.field(factory=dict)
    """Pods that a process was told are bound: the UID, and since when."""
    written: dict[tuple[int, str], tuple[object, str]] = attrs.field(factory=dict)
    """What a process patched last at a path, and which version that made."""
    unread: dict[tuple[int, str], float] = attrs.field(factory=dict)
    """Objects of which a process does not know what became of its last write, by path: since when."""
    failed: dict[str, tuple[tuple[str, str], float]] = attrs.field(factory=dict)
    """Orders that failed, by UID: their namespace and name, and since when."""

    def __attrs_post_init__(self) -> None:
        self.world.server.storage.listeners.append(self.see)
        self.world.on_backup.append(self._forget)

    def see(self, change: Change) -> None:
        """Take a change."""
        if change.served is not ORDER:
            return
        uid = change.present["metadata"]["uid"]
        if change.after is None:
            self.failed.pop(uid, None)
        elif (change.after.get("status") or {}).get("phase") == "Failed":
            self.failed.setdefault(uid, (change.place, self.world.time))

    def _forget(self) -> None:
        for each in (self.told, self.written, self.failed, self.unread):
            each.clear()

    # --- Decisions and what is known then ----------------------------------------------------------------------------

    def follow(self, replica: Replica) -> None:
        """Look at what a replica knows as its cycles begin and end, and at what it decides then."""
        replica.cpu.on_begin.append(lambda: self._check_told(replica))
        replica.cpu.on_end.append(lambda: self._await_decisions(replica))

    def _check_told(self, replica: Replica) -> None:
        """Look whether a process shows what the server told it: a pod that it bound has its node."""
        connection = replica.connection
        if connection is None:
            return
        for (number, target), (uid, since) in tuple(self.told.items()):
            if number != id(connection):
                continue
            namespace, _, name = target.partition("/pods/")
            pod = connection.store.get(Pod, name, namespace)
            if pod is None or pod.metadata.uid != uid:
                del self.told[number, target]
            elif not pod.spec.node_name and self.world.time - since > _TOLERANCE:
                text = f"was told {self.world.time - since:.1f} s ago that it is bound"
                self.world.violate(19, f"{replica.name} decides as if {target} had no node, and {text}")
                del self.told[number, target]

    def _await_decisions(self, replica: Replica) -> None:
        """Remember what a process knows as a cycle ends, and look a moment later at what it made of that."""
        if replica.connection is not None and replica.is_alive:
            known = _Known.of(replica.connection)
            self.world.loop.call_soon(self._judge, replica, known, context=contextvars.Context())

    def _judge(self, replica: Replica, known: _Known) -> None:
        connection = replica.connection
        if connection is not known.connection:
            return
        store = connection.store
        for key in sorted(store.cache(BindRequest)._assumed.keys() - known.ordered):
            order = store.get(BindRequest, key[1], key[0])
            why = None if order is None else known.against(order)
            if order is not None and why is not None:
                node = order.spec.selected_node
                text = f"decides to bind {key[0]}/{key[1]} to {node}, and knows that {why[1]}"
                self.world.violate(why[0], f"{replica.name} {text}")
        for key in sorted(store.cache(Pod)._assumed.keys() & known.pods.keys()):
            before, now = known.pods[key], store.get(Pod, key[1], key[0])
            is_new = before.metadata.deletion_timestamp is None
            if now is None or now.metadata.deletion_timestamp is None or not is_new:
                continue
            text = f"{replica.name} decides to evict {key[0]}/{key[1]}, and knows that"
            if before.status.phase in {"Succeeded", "Failed"}:
                self.world.violate(16, f"{text} it has ended")
            if key in known.ordered:
                self.world.violate(16, f"{text} its bind is being written")
            if known.age > _STALE:
                self.world.violate(16, f"{text} a watch is silent for {known.age:.0f} s")

    # --- What need not be written ------------------------------------------------------------------------------------

    def send(self, process: str, number: int, call: Call) -> None:
        """Look whether a patch says again what the last one about its object did, with nothing written in between."""
        written = self.written.get((number, call.path))
        if written is None or written[0] != _content_of(call) or _FAILED_AGAIN in (call.body or b""):
            return
        now = self._version_at(call.path)
        if now and now == written[1]:
            self.world.violate(21, f"{process} writes {call.path} again as it was told that it is")

    def end(self, number: int, call: Call, outcome: Answer | NoAnswer | None) -> None:
        """Take note of how a patch ended: others may have written since the server did it."""
        self.written.pop((number, call.path), None)
        if isinstance(outcome, Answer) and outcome.is_good:
            version = msgspec.json.decode(outcome.body, type=_Written).metadata["resourceVersion"]
            self.written[number, call.path] = (_content_of(call), version)

    def _version_at(self, path: str) -> str:
        """Return the version of the object at a path, of those kinds that kai writes; "" where there is none."""
        parts = path.strip("/").split("/")
        parts = parts[:-1] if parts[-1] == "status" else parts
        served = next((each for each in (POD, GROUP, ORDER, QUEUE) if each.plural in parts), None)
        if served is None:
            return ""
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        found = self.world.server.storage.get(served, (namespace, parts[-1]))
        return "" if found is None else str(found["metadata"]["resourceVersion"])

    def read(self, number: int, path: str) -> None:
        """Take note that a process reads an object; a list may be as old as the cache that it comes from."""
        self.unread.pop((number, path), None)

    def note_outcome(self, number: int, call: Call, outcome: Answer | NoAnswer | None) -> None:
        """Take note of how a write ended."""
        path = _object_of(call)
        if not path or "/events" in path:
            return
        self.unread.pop((number, path), None)
        is_lost = isinstance(outcome, NoAnswer) and outcome.was_sent
        if is_lost or (isinstance(outcome, Answer) and outcome.status >= _BROKEN):
            self.unread[number, path] = self.world.time

    # --- What is overdue ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look whether something is left undone that nothing keeps kai from, once all is calm."""
        alive = {id(each.connection): each.name for each in self.world.replicas if each.is_alive}
        for key, since in tuple(self.unread.items()):
            if key[0] not in alive:
                del self.unread[key]
            elif self.world.time - max(since, self.world.calm_since) > _UNREAD:
                del self.unread[key]
                text = f"what became of its write of {key[1]} at {since:.1f} s"
                self.world.violate(21, f"{alive[key[0]]} has not read {text}")
        for uid, (place, since) in tuple(self.failed.items()):
            if self.world.time - max(since, self.world.calm_since) > _OVERDUE:
                del self.failed[uid]
                self.world.violate(21, f"bind request {'/'.join(place)} failed at {since:.1f} s, and is still there")


def _object_of(call: Call) -> str:
    """Return the path of the object that a write is about; "" where the server names it."""
    path = call.path
    for subresource in ("/status", "/binding", "/eviction"):
        path = path.removesuffix(subresource)
    if call.method != "POST" or path != call.path:
        return path
    name = (msgspec.json.decode(call.body or b"{}").get("metadata") or {}).get("name", "")
    return f"{path}/{name}" if name else ""


def _content_of(call: Call) -> object:
    """Return what a patch says, without the times at which it says so, and the version that it is for."""
    return _timeless(msgspec.json.decode(call.body) if call.body else {})


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in _TIMES}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
