"""How processes of kai conduct themselves: what they knew, and in which term, when they sent what they sent.

The state of the server is not enough to judge that: a binding that lands late is right if nothing was known against it
when it left. So each call is looked at in the moment of sending, beside the store of the process that sends it.
What the store knows is compared by UID with the manifests that the server had, so nothing of kai judges itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from tests.doubles.rest_server.storage import Change, Manifest
from tests.simulation.decisions import Decisions
from tests.simulation.world import (
    EPOCH,
    GPU,
    LEASE,
    NODE,
    ORDER,
    POD,
    RESERVED,
    World,
    cpus_of,
    gpus_of,
)

if TYPE_CHECKING:
    from kai.cluster.connect import Connection

_BINDING: Final = "/binding"
_EVICTION: Final = "/eviction"
_MEMORY: Final = 60.0
_STALE: Final = 75.0 + 5.0
"""So long a watch may be silent before evictions have to stop; a little more than the setting."""
_MOST_REFUSALS: Final = 12
"""So often a pod may be refused within a minute: after each refusal it rests for twice as long."""
_WARMING: Final = 1.0
_TOLERANCE: Final = 0.01
_UNTOLD: Final = frozenset({"removal", "reservation"})
"""What carries out no decision about a pod."""
_SECONDS_APART: Final = 2.0
"""Times of creation are whole seconds, so what came within them cannot be told apart."""
_OVERFULL: Final = 2
_TERM: Final = 10.0
"""So long a term lasts after the last renewal was sent."""


@attrs.define
class _Sent:
    """A call that is on its way."""

    verb: str
    time: float


@attrs.define(eq=False)
class Conduct:
    """Looks at each call in the moment of sending, and at how it ended."""

    world: World
    manifests: dict[str, Manifest] = attrs.field(factory=dict)
    """Pods as they were last, by UID."""
    created: dict[str, float] = attrs.field(factory=dict)
    """When each pod was there first, by UID."""
    first_sent: dict[tuple[int, str, str], float] = attrs.field(factory=dict)
    looked_at: set[tuple[int, str, str, str]] = attrs.field(factory=set)
    """Bindings by process, pod, UID and version, whose pod was looked at."""
    under_way: dict[tuple[int, str], _Sent] = attrs.field(factory=dict)
    unknown: dict[tuple[int, str], float] = attrs.field(factory=dict)
    """Writes of which nothing was heard, and that were not read since: when they ended."""
    lease_sent: dict[int, float] = attrs.field(factory=dict)
    renewed: dict[int, float] = attrs.field(factory=dict)
    """When each process sent the last write of the lease that the server did."""
    resting: dict[tuple[int, str, str], float] = attrs.field(factory=dict)
    refused: dict[tuple[int, str], deque[float]] = attrs.field(factory=dict)
    leases: dict[int, int] = attrs.field(factory=dict)
    """The version of the cluster at which each epoch began."""
    decisions: Decisions = attrs.field(init=False)
    begun: set[tuple[int, int]] = attrs.field(factory=set)
    """Epochs in which a process has written already."""
    ordered: dict[int, tuple[int, float]] = attrs.field(factory=dict)
    """The last epoch in which each process gave an order, and when it gave the first one."""
    came: dict[str, float] = attrs.field(factory=dict)
    """When each order was there first, by UID."""
    patched: dict[tuple[int, str], float] = attrs.field(factory=dict)
    """When each patch of a process at a path ended: a write about the same object waits for that."""
    throttled: dict[int, float] = attrs.field(factory=dict)
    """When each process was asked for patience last."""
    unanswered: dict[int, float] = attrs.field(factory=dict)
    """When each process went without an answer last: for a moment it sends less, and what it has waits."""

    def __attrs_post_init__(self) -> None:
        self.decisions = Decisions(self.world)
        self.world.on_backup.append(self._forget_versions)
        self.world.server.storage.listeners.append(self.see)
        self.world.wire.on_send = self.send
        self.world.wire.on_outcome = self.end

    def _forget_versions(self) -> None:
        """Ask nothing of terms that began before a backup was put back: objects of then are there again, or gone."""
        self.leases = dict.fromkeys(self.leases, 0)

    def see(self, change: Change) -> None:
        """Take a change."""
        if change.served is POD:
            self.manifests[change.present["metadata"]["uid"]] = change.present
            self.created.setdefault(change.present["metadata"]["uid"], self.world.loop.time())
        elif change.served is ORDER and change.before is None and change.after is not None:
            self._note_order(change)
        elif change.served is LEASE and change.after is not None and change.by.startswith("kai"):
            self.leases.setdefault(int(change.after["spec"].get("leaseTransitions") or 0), change.version)
            number = id(self._connection_of(change.by))
            if number in self.lease_sent:
                self.renewed[number] = self.lease_sent[number]

    def send(self, process: str, call: Call) -> None:
        """Look at a call that leaves a process."""
        connection = self._connection_of(process)
        if connection is None:
            return
        number = id(connection)
        if call.method == "GET":
            self._note_read(number, call.path)
            self.decisions.read(number, call.path)
            return
        if "/leases" in call.path:
            self.lease_sent[number] = self.world.time
            return
        due = self.resting.get((number, call.method, call.path), 0.0)
        if self.world.time < due - 0.01:
            self.world.violate(22, f"{process} asks for {call.path} {due - self.world.time:.1f} s before it may")
        verb = _verb_of(call)
        if call.method == "PATCH":
            self.decisions.send(process, number, call)
        if call.method == "POST" and call.path.endswith("/events") and b'"FailedBinding"' in (call.body or b""):
            name = msgspec.json.decode(call.body or b"{}")["metadata"]["name"]
            self.world.failures_said[name] = self.world.time
        if not verb:
            return
        body = msgspec.json.decode(call.body) if call.body else {}
        target = _target_of(call.path, body)
        if verb in _UNTOLD:
            self._check_quiet_verb(process, connection, verb, target, body)
            return
        self._check_term(process, connection, verb, target, body)
        self._check_repetition(process, number, verb, target)
        if verb == "eviction":
            self.world.evicting.add(target.replace("/pods/", "/"))
        if verb == "eviction" and connection.store.age() > _STALE:
            self.world.violate(
                16, f"{process} evicts {target}, and a watch is silent for {connection.store.age():.0f} s"
            )
        if verb == "binding":
            self._check_binding(process, connection, target, body)
            self._check_epoch_of_order(process, number, target)

    def end(self, process: str, call: Call, outcome: Answer | NoAnswer | None) -> None:
        """Look at how a call ended for the process that sent it."""
        connection = self._connection_of(process)
        if connection is None or call.method == "GET" or "/leases" in call.path:
            return
        number = id(connection)
        if isinstance(outcome, Answer) and outcome.status == 429 and outcome.retry_after:
            self.resting[number, call.method, call.path] = self.world.time + float(outcome.retry_after)
            self.throttled[number] = self.world.time
        if not isinstance(outcome, Answer):
            self.unanswered[number] = self.world.time
        self.decisions.note_outcome(number, call, outcome)
        is_good = isinstance(outcome, Answer) and outcome.is_good
        if call.method == "PATCH":
            self.decisions.end(number, call, outcome)
            self.patched[number, call.path.removesuffix("/status")] = self.world.time
        verb = _verb_of(call)
        if not verb:
            return
        body = msgspec.json.decode(call.body) if call.body else {}
        target = _target_of(call.path, body)
        self.under_way.pop((number, target), None)
        if verb == "order" and isinstance(outcome, Answer) and not is_good:
            self.world.orders_refused[target.replace("/bindrequests/", "/")] = self.world.time
        if verb in _UNTOLD:
            return
        if verb == "eviction" and isinstance(outcome, Answer):
            self.world.evicting.discard(target.replace("/pods/", "/"))
        if is_good and verb == "binding":
            self.decisions.told[number, target] = ((body.get("metadata") or {}).get("uid", ""), self.world.time)
        if isinstance(outcome, NoAnswer) and outcome.was_sent:
            self.unknown[number, target] = self.world.time
        if isinstance(outcome, Answer) and b"quota.others" in outcome.body:
            self._count_refusal(process, number, target)

    # --- Orders of earlier terms, removals, reservations -------------------------------------------------------------

    def _check_epoch_of_order(self, process: str, number: int, target: str) -> None:
        """Look whether a binding carries out an order of a term that was over when the order came."""
        namespace, _, name = target.partition("/pods/")
        order = self.world.server.storage.get(ORDER, (namespace, name))
        epoch, since = self.ordered.get(number, (0, 0.0))
        if order is None or (order.get("status") or {}).get("phase") == "Failed":
            return
        of = int((order["metadata"].get("annotations") or {}).get(EPOCH) or epoch)
        came = self.came.get(order["metadata"]["uid"], 0.0)
        if of < epoch and came > since + _SECONDS_APART:
            text = f"by an order of epoch {of} that came {came - since:.1f} s after its own first in epoch {epoch}"
            self.world.violate(24, f"{process} binds {target} {text}")

    def _note_order(self, change: Change) -> None:
        assert change.after is not None
        metadata = change.after["metadata"]
        self.came[metadata["uid"]] = self.world.time
        connection = self._connection_of(change.by)
        epoch = int((metadata.get("annotations") or {}).get(EPOCH) or 0)
        if connection is None or connection.leadership is None or connection.leadership.term is None:
            return
        if epoch == connection.leadership.term.epoch and self.ordered.get(id(connection), (0, 0.0))[0] < epoch:
            self.ordered[id(connection)] = (epoch, self.world.time)

    def _check_quiet_verb(
        self, process: str, connection: Connection, verb: str, target: str, body: dict[str, Any]
    ) -> None:
        """Look at a removal of an order, and at a pod that is to hold a GPU."""
        number = id(connection)
        if verb == "removal":
            other = self.under_way.get((number, target))
            if other is not None and other.verb != verb:
                self.world.violate(24, f"{process} removes {target}, and {other.verb} of it is under way")
            self.under_way[number, target] = _Sent(verb, self.world.time)
            return
        if self._may_have_waited(process, number):
            return  # it was judged when it was offered
        node = body["spec"]["nodeName"]
        why = self._against_node_for(connection, node, "", body)
        if why is not None and why[0] == _OVERFULL:  # a node that takes no pods gets its GPU back once the bind fails
            self.world.violate(_OVERFULL, f"{process} reserves a GPU of {node}, and knows that {why[1]}")

    def _may_have_waited(self, process: str, number: int) -> bool:
        """Return whether a write may have waited for its turn since it was judged: news may have come meanwhile."""
        moment = self.world.loop.time() - self.world.loop.thawed.get(process, float("-inf"))
        unanswered = self.world.time - self.unanswered.get(number, float("-inf"))
        throttled = self.world.time - self.throttled.get(number, float("-inf"))
        return min(moment, unanswered) < _WARMING or throttled < _MEMORY

    # --- Terms -------------------------------------------------------------------------------------------------------

    def _check_term(self, process: str, connection: Connection, verb: str, target: str, body: dict[str, Any]) -> None:
        leadership = connection.leadership
        term = None if leadership is None else leadership.term
        if term is None:
            self.world.violate(24, f"{process} sends {verb} of {target}, and does not lead")
            return
        alone_since = self.world.time - self.renewed.get(id(connection), self.world.time)
        if alone_since > _TERM + _TOLERANCE:
            text = f"wrote its lease {alone_since:.1f} s ago"
            self.world.violate(24, f"{process} sends {verb} of {target}, and {text}")
        stamped = ((body.get("metadata") or {}).get("annotations") or {}).get(EPOCH)
        if stamped is not None and int(stamped) != term.epoch:
            self.world.violate(24, f"{process} sends {verb} of {target} for epoch {stamped} in epoch {term.epoch}")
        if (id(connection), term.epoch) not in self.begun:
            self.begun.add((id(connection), term.epoch))
            self._check_barrier(process, connection, term.epoch)

    def _check_barrier(self, process: str, connection: Connection, epoch: int) -> None:
        """Look whether a new leader has seen all that there was when its term began."""
        began = self.leases.get(epoch, 0)
        for served, cls in ((POD, Pod), (NODE, Node), (ORDER, BindRequest)):
            if served.plural == self.world.wire.unserved:
                continue  # no list can show it
            known: dict[Any, tuple[str, int]] = connection.store.cache(cls).versions()
            for obj in self.world.all(served):
                metadata = obj["metadata"]
                version = int(metadata["resourceVersion"])
                seen = known.get((metadata.get("namespace", ""), metadata["name"]), ("", 0))[1]
                if version <= began and 0 <= seen < version:
                    text = f"{served.plural} {metadata['name']} at {version}, knows {seen}"
                    self.world.violate(24, f"{process} decides in epoch {epoch} without having seen {text}")
                    return

    # --- Unknown outcomes --------------------------------------------------------------------------------------------

    def _note_read(self, number: int, path: str) -> None:
        for key in [each for each in self.unknown if each[0] == number and path.endswith((each[1], _plural(each[1])))]:
            del self.unknown[key]

    def _check_repetition(self, process: str, number: int, verb: str, target: str) -> None:
        """Look whether the last write about an object has ended, and is known to have ended."""
        other = self.under_way.get((number, target))
        if other is not None:
            self.world.violate(24, f"{process} sends {verb} of {target}, and {other.verb} of it is under way")
        self.under_way[number, target] = _Sent(verb, self.world.time)
        if self.unknown.pop((number, target), None) is not None:
            self.world.violate(21, f"{process} sends {verb} of {target} without having read what became of the last")

    def _count_refusal(self, process: str, number: int, target: str) -> None:
        times = self.refused.setdefault((number, target), deque())
        times.append(self.world.time)
        while times[0] < self.world.time - _MEMORY:
            times.popleft()
        if len(times) == _MOST_REFUSALS:
            self.world.violate(20, f"{process} has {target} refused {len(times)} times within a minute")

    # --- What is known at the binding --------------------------------------------------------------------------------

    def _check_binding(self, process: str, connection: Connection, target: str, body: dict[str, Any]) -> None:
        uid, name = (body.get("metadata") or {}).get("uid", ""), body["target"]["name"]
        key = (id(connection), target, uid)
        before = self.first_sent.get(key, float("-inf"))
        stood_still = self.world.loop.time() - self.world.loop.thawed.get(process, float("-inf")) < _WARMING
        look = (*key, (body.get("metadata") or {}).get("resourceVersion", ""))
        if look not in self.looked_at and not stood_still:  # another version was read since, and is to be looked at
            is_first = not any(each[:3] == key for each in self.looked_at)
            self.looked_at.add(look)
            against = self._against_pod(process, connection, target, uid, is_first=is_first)
            if against:
                self.world.violate(5, f"{process} binds {target} to {name}, and knows that {against}")
        patched = self.patched.get((key[0], f"/api/v1/namespaces/{target}"), float("-inf"))
        has_waited = self._may_have_waited(process, key[0]) or self.world.time - patched < _WARMING
        if self.world.time - before < _MEMORY or has_waited:
            return  # it was judged when it was sent for the first time, or waited for its turn after the last look
        self.first_sent[key] = self.world.time
        why = self._against_node(connection, uid, name)
        if why is not None:
            self.world.violate(why[0], f"{process} binds {target} to {name}, and knows that {why[1]}")

    def _against_pod(self, process: str, connection: Connection, target: str, uid: str, *, is_first: bool) -> str:
        """Return what the store of a process says against binding a pod to whatever node.

        A pod that was read again may have gone while the second binding of it waited for its turn.
        """
        namespace, _, name = target.partition("/pods/")
        pod = connection.store.get(Pod, name, namespace)
        if pod is None or uid not in self.manifests:
            return "the pod is gone" if is_first else ""
        if pod.metadata.uid != uid:
            return "another has its name"
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in {"Succeeded", "Failed"}:
            return "the pod is leaving or over"
        if self.world.server.storage.get(ORDER, (namespace, name)) is not None:
            return ""  # another process may have ordered it
        given_at = next(each.cpu.given_at for each in self.world.replicas if each.name == process)
        return "it came after the cluster was as it was decided on" if self.created.get(uid, 0.0) > given_at else ""

    def _against_node(self, connection: Connection, uid: str, name: str) -> tuple[int, str] | None:
        """Return what the store of a process says against binding to a node, with the invariant."""
        manifest = self.manifests.get(uid)
        return None if manifest is None else self._against_node_for(connection, name, uid, manifest)

    def _against_node_for(
        self, connection: Connection, name: str, uid: str, manifest: Manifest
    ) -> tuple[int, str] | None:
        store = connection.store
        node = store.get(Node, name)
        if node is None:
            return 5, "the node is gone"
        if node.spec.unschedulable or "kai.scheduler/node-pool" in node.metadata.labels:
            return 5, "the node is cordoned, or belongs to another scheduler"
        if any(each.effect in {"NoSchedule", "NoExecute"} for each in node.spec.taints):
            return 4, "the node has a taint"
        held = [
            self.manifests[each.metadata.uid]
            for each in store.all(Pod)
            if each.spec.node_name == name
            and each.status.phase not in {"Succeeded", "Failed"}
            and each.metadata.uid != uid
            and each.metadata.uid in self.manifests
        ]
        for what, own, used, size in (
            (GPU, gpus_of(manifest), sum(map(gpus_of, held)), node.status.allocatable.get(GPU, "0")),
            ("cpu", cpus_of(manifest), sum(map(cpus_of, held)), node.status.allocatable.get("cpu", "0")),
        ):
            if own and own + used > int(str(size)):
                return 2, f"{used} of {size} {what} are in use, and the pod asks for {own}"
        return None

    def _connection_of(self, process: str) -> Connection | None:
        for each in self.world.replicas:
            if each.name == process:
                return each.connection
        return None


def _verb_of(call: Call) -> str:
    """Return what a call does, of those that carry out a decision; "" for others."""
    if call.method == "DELETE" and "/bindrequests/" in call.path:
        return "removal"
    if call.method != "POST":
        return ""
    if call.path.endswith(f"/{RESERVED}/pods"):
        return "reservation"
    if call.path.endswith((_BINDING, _EVICTION)):
        return call.path.rpartition("/")[2]
    return "order" if call.path.endswith("/bindrequests") else ""


def _target_of(path: str, body: dict[str, Any]) -> str:
    """Return the pod that a call is about, or the order: namespace, plural and name."""
    parts = path.strip("/").split("/")
    namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
    if path.endswith(("/bindrequests", "/pods")):
        return f"{namespace}/{parts[-1]}/{(body.get('metadata') or {}).get('name', '')}"
    if "/bindrequests/" in path:
        return f"{namespace}/bindrequests/{parts[-1]}"
    return f"{namespace}/pods/{parts[-2]}"


def _plural(target: str) -> str:
    """Return how the path of a list ends that shows a target."""
    return f"/{target.split('/')[1]}"
