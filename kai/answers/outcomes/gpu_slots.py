"""The GPUs and MIG slices of each node after the last cycle, and the pods that hold them.

GPUs are `Slot`s. Kubernetes does not reveal which whole GPU of a device plugin a pod has, so these are numbered in the
order of jobs. Shared GPUs are the devices that the scheduler opened. GPUs behind claims come last, in the order of
their driver.

A `Holder` is a pod with its job and its state on the node, for whole GPUs, shared GPUs and MIG slices alike.

MIG slices are counted by profile. Slices of one profile are alike, and Kubernetes does not reveal which one a pod has.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from kai.answers.offline.run import Cycle, Outcome
from kai.answers.outcomes.states import placed_devices
from kai.api import names
from kai.api.names import NVIDIA_GPU
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.claim import AllocatedDevice
from kai.facts.model.partitions import Gpu, Gpus
from kai.facts.model.pod import ACTIVE_ALLOCATED, STAND_IN, TERMINATING, GpuKind, GpuRequest, Node, Status, within

USED: Final = "used"
HELD: Final = "held"
LEAVING: Final = "leaving"


@attrs.frozen(kw_only=True)
class Holder:
    """A pod that holds something of its node; subclasses say what."""

    job: str
    namespace: str
    queue: str
    pod: str
    state: str
    """One of used, held, leaving."""


def holder_of(cycle: Cycle, pod: int) -> dict[str, str] | None:
    """Return the `Holder` fields of the pod in a row; None for a pod that has ended."""
    snapshot = cycle.snapshot
    group, facts = int(snapshot.pod_group[pod]), snapshot.pods[pod]
    # A stand-in runs as far as the engine knows, so that its place is charged; for people the place is promised.
    state = HELD if facts.is_stand_in else _state(int(cycle.report.status[pod]))
    if not state:
        return None
    return {
        "job": snapshot.groups[group].name if group >= 0 else facts.name,
        "namespace": facts.namespace,
        "queue": snapshot.groups[group].queue if group >= 0 else "",
        "pod": facts.name.removesuffix(STAND_IN),
        "state": state,
    }


def is_leaving(cycle: Cycle, pod: int) -> bool:
    """Return whether a pod is terminating and still on its node."""
    return within(int(cycle.report.status[pod]), TERMINATING)


def _state(status: int) -> str:
    if within(status, TERMINATING):
        return LEAVING
    if status == Status.PIPELINED:
        return HELD
    return USED if within(status, ACTIVE_ALLOCATED) else ""


@attrs.frozen(kw_only=True)
class SliceUser(Holder):
    """A pod's slices of one profile."""

    count: int


@attrs.frozen(kw_only=True)
class Slices:
    """The slices of one profile on one node."""

    resource: str
    total: int
    users: tuple[SliceUser, ...] = ()

    @property
    def profile(self) -> str:
        """The profile without the common resource prefix: ``1g.10gb``."""
        return self.resource.removeprefix(names.MIG_PREFIX)

    def count(self, state: str) -> int:
        """Return the number of slices in ``state``."""
        return sum(user.count for user in self.users if user.state == state)

    @property
    def in_use(self) -> int:
        """Slices that are used, or still held by terminating pods."""
        return self.count(USED) + self.count(LEAVING)

    @property
    def free(self) -> int:
        """Slices that pods can have now. As with GPUs, promises are deducted from the free ones first."""
        return max(0, self.total - self.in_use - self.count(HELD))


def slices_of(cycle: Cycle, row: int, pods: Sequence[int]) -> tuple[Slices, ...]:
    """Return the slices of the node in ``row``, which has ``pods``, by profile name."""
    snapshot = cycle.snapshot
    offered: Mapping[str, int] = snapshot.nodes[row].allocatable
    # Profiles of the axis: after a change of the MIG layout, pods may hold profiles that the node no longer offers.
    columns = [(name, at) for at, name in enumerate(snapshot.axis.names) if name.startswith(names.MIG_PREFIX)]
    found = []
    for name, at in columns:
        users = [user for pod in pods if (user := _user(cycle, pod, at)) is not None]
        if users or offered.get(name, 0):
            users.sort(key=lambda user: (user.state, user.queue, user.namespace, user.job, user.pod))
            found.append(Slices(resource=name, total=offered.get(name, 0), users=tuple(users)))
    return tuple(found)


def _user(cycle: Cycle, pod: int, column: int) -> SliceUser | None:
    """Return a pod's slices of one profile; None where it has none, or has ended."""
    snapshot = cycle.snapshot
    count = int(snapshot.requests[int(snapshot.pod_shape[pod]), column])
    holder = holder_of(cycle, pod) if count else None
    return None if holder is None else SliceUser(**holder, count=count)


FREE, SHARED, UNHEALTHY = "free", "shared", "unhealthy"
_STATES = (USED, LEAVING, HELD)


@attrs.frozen(kw_only=True)
class User(Holder):
    """A pod's part of one GPU. ``share`` is in thousandths of it."""

    share: int


@attrs.frozen(kw_only=True)
class Slot:
    """One GPU."""

    state: str
    users: tuple[User, ...] = ()

    @property
    def granted(self) -> int:
        """Thousandths that are used, or still held by terminating pods."""
        return min(GPU_UNIT, sum(user.share for user in self.users if user.state != HELD))

    @property
    def left(self) -> int:
        """Thousandths that are neither used nor promised."""
        return 0 if self.state == UNHEALTHY else GPU_UNIT - min(GPU_UNIT, sum(user.share for user in self.users))


@attrs.frozen(kw_only=True)
class NodeSlots:
    """The GPUs of one node."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    gpus: int
    """GPUs that the node offers, and unhealthy ones that it does not offer."""
    slots: tuple[Slot, ...]
    """One for each GPU; more where pods hold more than the node offers."""
    domains: Mapping[str, str]
    """Its domain at each level of the topologies."""
    slices: tuple[Slices, ...] = ()
    """Its MIG slices, by profile. They are not counted in ``gpus``."""

    @property
    def product(self) -> str:
        """The product name of its GPUs; "" if unknown."""
        return self.labels.get(names.NODE_GPU_PRODUCT, "")

    # Cached: every table and page adds these up for all nodes.
    @cached_property
    def free(self) -> int:
        """Whole GPUs that pods can have now."""
        return [slot.state for slot in self.slots].count(FREE) if self.ready else 0

    @cached_property
    def left(self) -> int:
        """Whole GPUs that terminating pods will release and that are promised to no job."""
        if not self.ready:
            return 0
        return sum(slot.state == LEAVING and not any(user.state == HELD for user in slot.users) for slot in self.slots)

    @cached_property
    def unhealthy(self) -> int:
        """GPUs that the node has and does not offer."""
        return [slot.state for slot in self.slots].count(UNHEALTHY)

    @cached_property
    def taken(self) -> Mapping[str, int]:
        """Thousandths of GPUs that pods hold, by queue."""
        found: dict[str, int] = {}
        for slot in self.slots:
            for user in slot.users:
                if user.state != HELD:
                    found[user.queue] = found.get(user.queue, 0) + user.share
        return found

    @property
    def over(self) -> int:
        """GPUs that pods hold beyond the node's allocatable ones."""
        return max(0, len(self.slots) - self.gpus)

    @property
    def fractions(self) -> float:
        """Free parts of shared GPUs, in GPUs."""
        left = sum(GPU_UNIT - slot.granted for slot in self.slots if slot.state == SHARED)
        return left / GPU_UNIT if self.ready else 0.0


def node_slots(outcome: Outcome) -> tuple[NodeSlots, ...]:
    """Return the nodes by name, with their GPUs after the last cycle."""
    cycle = outcome.last
    levels = [level.node_label for each in outcome.case.objects.topologies for level in each.spec.levels]
    broken = {
        each.metadata.name: _broken(each.status.capacity, each.status.allocatable)
        for each in outcome.case.objects.nodes
    }
    pods: list[list[int]] = [[] for _ in cycle.snapshot.nodes]
    for pod, node in enumerate(cycle.places.tolist()):
        # A reservation pod holds a whole GPU for the pods that share it;
        # counted with them, it would be a second GPU in use.
        if node >= 0 and not cycle.snapshot.pod_reservation[pod]:
            pods[node].append(pod)
    return tuple(
        NodeSlots(
            name=node.name,
            labels=node.labels,
            ready=node.ready,
            gpus=node.allocatable.get("gpu", 0) // GPU_UNIT + broken.get(node.name, 0),
            slots=_slots(cycle, node, pods[row], broken.get(node.name, 0)),
            domains={level: node.labels[level] for level in levels if level in node.labels},
            slices=slices_of(cycle, row, pods[row]),
        )
        for row, node in enumerate(cycle.snapshot.nodes)
    )


def slots_on(cycle: Cycle, row: int) -> tuple[Slot, ...]:
    """Return the GPUs that one node offers, after the cycle."""
    snapshot = cycle.snapshot
    pods = [pod for pod in np.flatnonzero(cycle.places == row).tolist() if not snapshot.pod_reservation[pod]]
    # Broken GPUs are left out: here the question is which ones a pod can have.
    return _slots(cycle, snapshot.nodes[row], pods, 0)


def share_of(gpu: GpuRequest, node: Node) -> int:
    """Return the part of one GPU of a node that a pod requests, in thousandths."""
    part = gpu.memory / node.gpu_memory if gpu.kind is GpuKind.MEMORY else gpu.portion
    return round(part * GPU_UNIT)


def _broken(capacity: Mapping[str, object], allocatable: Mapping[str, object]) -> int:
    """Return the number of GPUs that a node has and does not offer."""
    # Plain counts of a device plugin. Another form is a mistake of the manifest, and then no GPU is called broken.
    try:
        return max(0, int(str(capacity.get(NVIDIA_GPU, 0))) - int(str(allocatable.get(NVIDIA_GPU, 0))))
    except ValueError:
        return 0


def _slots(cycle: Cycle, node: Node, pods: Sequence[int], broken: int) -> tuple[Slot, ...]:
    whole: list[Slot] = []
    promised: list[User] = []
    devices: dict[str, list[User]] = {}
    for pod in sorted(pods, key=lambda pod: _order(cycle, pod)):
        gpu = cycle.snapshot.shapes[int(cycle.snapshot.pod_shape[pod])].gpu
        if gpu.shared:
            share = min(GPU_UNIT, share_of(gpu, node))
            for user in _users(cycle, pod, share):
                for device in cycle.report.devices.get(pod) or cycle.snapshot.pod_devices.get(pod, ()):
                    devices.setdefault(device, []).append(user)
            continue
        count = int(cycle.snapshot.requests[int(cycle.snapshot.pod_shape[pod]), GPU]) // GPU_UNIT
        # GPUs of drivers are in the same column, so that quotas count them once, but they are slots of their own below.
        count = max(0, count - _asked_of_drivers(cycle, node, pod))
        for user in _users(cycle, pod, GPU_UNIT):
            if user.state == HELD:
                promised += [user] * count
            else:
                whole += [Slot(state=user.state, users=(user,))] * count
    shared = [_shared(users) for users in devices.values()]
    behind = _slots_behind_claims(cycle, node, pods) if node.dra_gpus else ()
    total = node.allocatable.get("gpu", 0) // GPU_UNIT - len(behind)
    found = [*whole, *shared]
    # More may be held than the node offers, as after a GPU failed; then nothing is free, and all that is held is shown.
    found += [Slot(state=FREE)] * (total - len(found))
    return (*_with_promises(found, promised), *behind, *[Slot(state=UNHEALTHY)] * broken)


def _asked_of_drivers(cycle: Cycle, node: Node, pod: int) -> int:
    """Return how many of the GPUs that a pod requests are devices of claims on its node."""
    placed = placed_devices(cycle.report.details, pod)
    if not (node.dra_gpus and placed.devices()):
        return 0
    gpus = cycle.snapshot.catalog.gpus.devices
    gpu = cycle.snapshot.shapes[int(cycle.snapshot.pod_shape[pod])].gpu
    return gpu.claimed if gpu.named else gpu.claimed + sum(each.key in gpus for each in placed.for_resources())


def _slots_behind_claims(cycle: Cycle, node: Node, pods: Sequence[int]) -> Sequence[Slot]:
    """Return the GPUs of a node that DRA drivers offer; a partition takes a part of its GPU.

    Of the pods that share a claim, the first one holds its devices, and the others hold nothing more.
    """
    gpus = cycle.snapshot.catalog.gpus
    holders: dict[tuple[str, str, str], list[tuple[User, AllocatedDevice, object]]] = {}
    for pod in sorted(pods, key=lambda pod: _order(cycle, pod)):
        placed = placed_devices(cycle.report.details, pod)
        held: list[tuple[AllocatedDevice, object]] = []
        held += [(device, each.claim) for each in placed.claims for device in each.devices]
        held += [(device, pod) for device in placed.extended.devices] if placed.extended else []
        for user in _users(cycle, pod, 0):
            for device, claim in held:
                # Kubernetes lets administrators look at devices that others have: they take nothing.
                if not device.admin_access:
                    holders.setdefault(device.key, []).append((user, device, claim))
    here = [gpu for gpu in gpus.all if gpu.node == node.name]
    return [_slot_of(gpu, [each for key in gpu.devices for each in holders.get(key, ())], gpus) for gpu in here]


def _slot_of(gpu: Gpu, holders: Sequence[tuple[User, AllocatedDevice, object]], gpus: Gpus) -> Slot:
    if not holders:
        return Slot(state=FREE)
    users: list[User] = []
    seen: set[object] = set()
    taken: dict[str, set[tuple[str, str, str]]] = {state: set() for state in _STATES}
    for user, device, claim in sorted(holders, key=lambda each: _STATES.index(each[0].state)):
        # A promised place overlaps with pods that are leaving, but never with pods that stay.
        beside, share = taken[USED] | taken[user.state], 0
        if (device.key, claim) not in seen:
            share = gpus.part_had(device) if device.shared else gpu.taken({*beside, device.key}) - gpu.taken(beside)
        seen.add((device.key, claim))
        taken[user.state].add(device.key)
        users.append(attrs.evolve(user, share=share))
    states = [each for each in _STATES if any(user.state == each for user in users)]
    # Partitions of one GPU may be two devices of one pod; only a single device of the full size is the whole GPU.
    has_all = len(seen) == 1 and users[0].share == GPU_UNIT
    return Slot(
        state=SHARED if USED in states and not (has_all and len(states) == 1) else states[0], users=tuple(users)
    )


def _with_promises(slots: Sequence[Slot], promised: Sequence[User]) -> Iterator[Slot]:
    """Yield the slots with the promises added: first on free slots, then on slots that are being released."""
    left = list(promised)
    # A promise beyond what is free waits for pods that leave.
    ahead = max(0, len(left) - sum(slot.state == FREE for slot in slots))
    for slot in slots:
        if slot.state == FREE and len(left) > ahead:
            yield Slot(state=HELD, users=(left.pop(),))
        elif slot.state == LEAVING and ahead:
            ahead -= 1
            yield attrs.evolve(slot, users=(*slot.users, left.pop()))
        else:
            yield slot


def _shared(users: Sequence[User]) -> Slot:
    states = {user.state for user in users}
    state = next(iter(states)) if len(states) == 1 and USED not in states else SHARED
    return Slot(state=state, users=tuple(users))


def _users(cycle: Cycle, pod: int, share: int) -> Iterator[User]:
    """Yield the user for a pod and its share; nothing for a pod that has ended."""
    holder = holder_of(cycle, pod)
    if holder is not None:
        yield User(**holder, share=share)


def _order(cycle: Cycle, pod: int) -> tuple[bool, str, str, int]:
    group = int(cycle.snapshot.pod_group[pod])
    leaving = is_leaving(cycle, pod)
    if group < 0:
        return leaving, "", cycle.snapshot.pods[pod].name, pod
    facts = cycle.snapshot.groups[group]
    return leaving, facts.queue, facts.name, pod
