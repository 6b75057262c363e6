"""The invariants that are checked after each write of a schedule; numbers are those of `docs/reliability.md`.

A check looks at the server's own state, which is true, and never at what kai believes. Where others change the ground
under a decision (a node shrinks, a quota is cut), kai is given the time that the faults of the schedule may keep it
from knowing; what kai does against its own earlier writes is never excused. A binding that lands late is judged by what
was so when it was sent, and numbers of a queue by when the order was given: an order that stands holds its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec

from tests.simulation.disorder import POOL
from tests.simulation.users import Life
from tests.simulation.world import (
    EPOCH,
    GPU,
    GROUP,
    HOMES,
    LEASE,
    NODE,
    ORDER,
    POD,
    QUEUE,
    RESERVED,
    World,
    cpus_of,
    fraction_of,
    gpus_of,
    is_leaving,
    is_over,
    key_of,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.cluster.transport.calls import Answer, Call
    from tests.doubles.rest_server.storage import Change, Manifest

_ROUNDING = 0.02
_GROUP_LABEL = "runai-gpu-group"
_BINDING = "/binding"
_EVICTION = "/eviction"


@attrs.define(eq=False)
class Checks:
    """Looks at every change and every answer."""

    world: World
    life: Life
    partial_since: dict[str, float] = attrs.field(factory=dict)
    granted: dict[str, float] = attrs.field(factory=dict)
    """What part of a GPU each pod was bound with, by UID: what its owner writes later changes nothing."""
    foreign: dict[str, float] = attrs.field(factory=dict)
    """When an earlier version ordered each pod, by UID; none that kai ordered after all."""
    ordered: dict[str, float] = attrs.field(factory=dict)
    """When kai gave the last order for each pod, by UID; of a pod that is bound without an order nothing is here."""
    unheld: dict[str, float] = attrs.field(factory=dict)
    """When the last pod that held each shared GPU went."""
    binds: int = 0
    evictions: int = 0

    def __attrs_post_init__(self) -> None:
        self.world.server.storage.listeners.append(self.see)
        self.world.wire.on_answer = self.hear

    # --- Writes as they are asked for --------------------------------------------------------------------------------

    def hear(self, process: str, call: Call, answer: Answer) -> None:
        """Look at what kai asked for, and what it was answered with."""
        if call.method == "GET" or not answer.is_good:
            return
        body = msgspec.json.decode(call.body) if call.body else {}
        if call.path.endswith(_EVICTION) or (call.method == "DELETE" and "/pods/" in call.path):
            options = body.get("deleteOptions") or body
            if not (options.get("preconditions") or {}).get("uid"):
                self.world.violate(17, f"{process} ends {call.path} without naming its UID")
        if call.path.endswith(_BINDING):
            metadata = body.get("metadata") or {}
            if not metadata.get("uid"):
                self.world.violate(5, f"{process} binds {call.path} without naming its UID")
            if not metadata.get("resourceVersion"):
                self.world.violate(5, f"{process} binds {call.path} without naming its version")
            if EPOCH not in (metadata.get("annotations") or {}):
                self.world.violate(24, f"{process} binds {call.path} without its epoch")
        if LEASE.plural not in call.path:
            self._look_for_two_leaders()

    def _look_for_two_leaders(self) -> None:
        leading = [
            each.name
            for each in self.world.replicas
            if each.is_alive
            and each.connection is not None
            and each.connection.leadership is not None
            and each.connection.leadership.term is not None
        ]
        if len(leading) > 1:
            self.world.violate(24, f"{' and '.join(leading)} lead at the same time")

    # --- Changes -----------------------------------------------------------------------------------------------------

    def see(self, change: Change) -> None:
        """Look at a change."""
        if change.served is ORDER and change.before is None:
            owners = change.present["metadata"].get("ownerReferences") or ()
            orders = self.ordered if change.by.startswith("kai") else self.foreign
            orders.update((each["uid"], self.world.time) for each in owners)
        if change.served is POD and change.place[0] == RESERVED and (change.after is None or is_over(change.after)):
            self.unheld[_group_of(change.present)] = self.world.time
        if change.served is not POD or change.after is None:
            return
        pod, before, by = change.after, change.before, change.by
        if not by.startswith("kai"):
            return
        if node_of(pod) and (before is None or not node_of(before)):
            self.binds += 1
            self.world.say(f"{by} binds {key_of(pod)} to {node_of(pod)}")
            self._check_node(pod)
            if pod["metadata"]["namespace"] in HOMES:
                self.granted[pod["metadata"]["uid"]] = fraction_of(pod)
                self._check_right_pod(pod)
                self._check_devices(pod)
                self._check_queue(pod)
        elif is_leaving(pod) and before is not None and not is_leaving(before):
            self.evictions += 1
            self.world.say(f"{by} evicts {key_of(pod)}")
            self._check_victim(pod)

    def _is_excused(self, name: str) -> bool:
        """Return whether kai may not know yet how a node or a queue is."""
        return self.world.time - self.life.changed_at.get(name, float("-inf")) < self.world.blind

    def _check_node(self, pod: Manifest) -> None:
        world, name = self.world, node_of(pod)
        node = world.server.storage.get(NODE, ("", name))
        if self._is_excused(name):
            return
        if node is None:
            world.violate(5, f"{key_of(pod)} is bound to {name}, which is gone")
            return
        spec = node.get("spec") or {}
        if spec.get("unschedulable"):
            world.violate(5, f"{key_of(pod)} is bound to {name}, which is cordoned")
        if POOL in (node["metadata"].get("labels") or {}):
            world.violate(5, f"{key_of(pod)} is bound to {name}, which belongs to another scheduler")
        for taint in spec.get("taints") or ():
            world.violate(4, f"{key_of(pod)} is bound to {name}, whose taint {taint['key']} it does not tolerate")
        on_it = [each for each in world.all(POD) if node_of(each) == name and not is_over(each)]
        size = node["status"]["allocatable"]
        # What others over-filled is no concern of a pod that asks for none of it.
        for what, own, used, most in (
            ("GPUs", gpus_of(pod), sum(map(gpus_of, on_it)), int(size.get(GPU, 0))),
            ("CPUs", cpus_of(pod), sum(map(cpus_of, on_it)), int(size["cpu"])),
            ("pods", 1, len(on_it), int(size["pods"])),
        ):
            if own and used > most:
                names = ", ".join(key_of(each) for each in on_it)
                world.violate(2, f"{key_of(pod)} fills {name} with {used} {what} of {most}: {names}")

    def _check_right_pod(self, pod: Manifest) -> None:
        wanted = (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname")
        if wanted not in {None, node_of(pod)}:
            self.world.violate(4, f"{key_of(pod)} is bound to {node_of(pod)}, and wants {wanted}")
        if is_leaving(pod) or is_over(pod):
            self.world.violate(5, f"{key_of(pod)} is bound, but it is leaving or over")

    def _check_devices(self, pod: Manifest) -> None:
        """Look at the GPU that a pod shares, with the portions that were granted."""
        device = (pod["metadata"].get("labels") or {}).get(_GROUP_LABEL)
        if not fraction_of(pod):
            return
        if not device:
            self.world.violate(3, f"{key_of(pod)} is bound without a GPU to share")
            return
        sharers = [
            each
            for each in self.world.workers()
            if node_of(each) and not is_over(each) and each["metadata"].get("labels", {}).get(_GROUP_LABEL) == device
        ]
        total = sum(map(self._granted_to, sharers))
        edited = any(self._granted_to(each) != fraction_of(each) for each in sharers)
        if total > 1 + _ROUNDING and edited:
            self.world.violate(12, f"{key_of(pod)} is given a part of GPU {device} that was granted to others")
        elif total > 1 + _ROUNDING:
            names = ", ".join(key_of(each) for each in sharers)
            self.world.violate(3, f"{key_of(pod)} fills GPU {device} with {total:.2f}: {names}")
        if len({node_of(each) for each in sharers}) > 1:
            self.world.violate(3, f"GPU {device} is on several nodes")
        holders = [each for each in self.world.all(POD, RESERVED) if _group_of(each) == device and not is_over(each)]
        if not holders and self.world.sent >= self.unheld.get(device, float("-inf")):
            self.world.violate(8, f"{key_of(pod)} is bound to GPU {device}, which no pod holds")

    def _granted_to(self, pod: Manifest) -> float:
        return self.granted.get(pod["metadata"]["uid"], fraction_of(pod))

    def _check_queue(self, pod: Manifest) -> None:
        queues = {each["metadata"]["name"]: each for each in self.world.all(QUEUE)}
        chain = list(_chain(queues, queue_of(pod)))
        if not chain and not self._is_excused(queue_of(pod)):
            self.world.violate(11, f"{key_of(pod)} is bound, and its queue {queue_of(pod)} does not exist")
        if chain and chain[-1] != "top" and not any(map(self._is_excused, chain)):
            self.world.violate(11, f"{key_of(pod)} is bound, and nothing is above queue {chain[-1]}")
        if not self._is_foreign(pod):
            self.foreign.pop(pod["metadata"]["uid"], None)
        else:
            return
        if any(self._is_excused(name) or self._is_cut_since(name, pod) for name in chain) or not _gpus(pod):
            return
        beside = [name for name in queues if self._is_excused(name)]
        for name in chain:
            if any(name in _chain(queues, each) for each in beside):
                continue  # of a queue that was gone until now nothing was counted here
            resources = queues[name]["spec"]["resources"]["gpu"]
            below = [
                each
                for each in self.world.workers()
                if node_of(each)
                and not is_over(each)
                and not is_leaving(each)
                and key_of(each) not in self.world.evicting
                and not self._may_be_unknown(each)
                and name in _chain(queues, queue_of(each))
            ]
            used = sum(gpus_of(each) + self._granted_to(each) for each in below)
            if 0 <= resources["limit"] < used - _ROUNDING:
                self.world.violate(9, f"{key_of(pod)} brings queue {name} to {used:g} GPUs of {resources['limit']}")
            firm = sum(_gpus(each) for each in below if is_firm(each) and self._is_grouped(each))
            if is_firm(pod) and 0 <= resources["quota"] < firm - _ROUNDING:
                text = f"{firm:g} GPUs that cannot be taken back, of {resources['quota']}"
                self.world.violate(10, f"{key_of(pod)} brings queue {name} to {text}")

    def _is_cut_since(self, name: str, pod: Manifest) -> bool:
        """Return whether a queue was changed after a pod was ordered.

        An order that could not be carried out for long keeps its place, as a lower limit takes none from pods that run.
        """
        decided = self.ordered.get(pod["metadata"]["uid"], self.world.sent)
        return self.life.changed_at.get(name, float("-inf")) > decided

    def _is_foreign(self, pod: Manifest) -> bool:
        """Return whether a pod is bound by the order of an earlier version, which names no term.

        What its queue may hold was that version's to judge, as it is the leader's in each term. The binder judges room;
        an order that stands may be carried out at any moment, so the leader of today counts on it and takes none back.
        """
        metadata = pod["metadata"]
        order = self.world.server.storage.get(ORDER, (metadata["namespace"], metadata["name"]))
        if metadata["uid"] not in self.foreign or order is None:
            return False
        return EPOCH not in (order["metadata"].get("annotations") or {})

    def _may_be_unknown(self, pod: Manifest) -> bool:
        """Return whether an earlier version ordered a pod so lately that kai may have decided without it."""
        return self.world.time - self.foreign.get(pod["metadata"]["uid"], float("-inf")) < self.world.blind

    def _is_grouped(self, pod: Manifest) -> bool:
        """Return whether the group of a pod is there; without it all that a pod holds can be taken back."""
        name = (pod["metadata"].get("annotations") or {}).get("pod-group-name", "")
        return not name or self.world.server.storage.get(GROUP, (pod["metadata"]["namespace"], name)) is not None

    def _check_victim(self, pod: Manifest) -> None:
        is_ours = pod["metadata"]["namespace"] in HOMES
        if is_ours and is_firm(pod) and not self._is_partial(pod) and not is_unheld(self.world, pod):
            self.world.violate(14, f"{key_of(pod)} is evicted, and must not be")

    def _is_partial(self, pod: Manifest) -> bool:
        """Return whether the gang of a pod has too few members, so that it may be ended."""
        name = (pod["metadata"].get("annotations") or {}).get("pod-group-name")
        group = self.world.server.storage.get(GROUP, (pod["metadata"]["namespace"], name or ""))
        if group is None:
            return True
        return len(bound_members(self.world, group)) <= int(group["spec"].get("minMember") or 1)


def is_unheld(world: World, pod: Manifest) -> bool:
    """Return whether no pod holds the GPU that a pod shares: another may be given it, so the pod has to go."""
    device = _group_of(pod)
    return bool(device) and not any(
        _group_of(each) == device and not is_over(each) for each in world.all(POD, RESERVED)
    )


def bound_members(world: World, group: Manifest) -> list[Manifest]:
    """Return the pods of a gang that hold a place."""
    return [each for each in members(world, group) if node_of(each) and not is_leaving(each)]


def members(world: World, group: Manifest) -> list[Manifest]:
    """Return the pods of a gang that are not over."""
    name = group["metadata"]["name"]
    return [
        each
        for each in world.all(POD, group["metadata"]["namespace"])
        if not is_over(each) and (each["metadata"].get("annotations") or {}).get("pod-group-name") == name
    ]


def succeeded_members(world: World, group: Manifest) -> list[Manifest]:
    """Return the pods of a gang that have succeeded."""
    name = group["metadata"]["name"]
    return [
        each
        for each in world.all(POD, group["metadata"]["namespace"])
        if (each.get("status") or {}).get("phase") == "Succeeded"
        and (each["metadata"].get("annotations") or {}).get("pod-group-name") == name
    ]


def queue_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get("kai.scheduler/queue", ""))


def is_firm(pod: Manifest) -> bool:
    """Return whether a pod may not be taken back."""
    return (pod["metadata"].get("labels") or {}).get("priorityClassName") in {"build", "inference"}


def _gpus(pod: Manifest) -> float:
    return gpus_of(pod) + fraction_of(pod)


def _chain(queues: dict[str, Manifest], name: str) -> Iterable[str]:
    """Yield a queue and those above it, each once: some are their own parents."""
    seen = set()
    while name in queues and name not in seen:
        yield name
        seen.add(name)
        name = queues[name]["spec"].get("parentQueue", "")


def _group_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_GROUP_LABEL, ""))
