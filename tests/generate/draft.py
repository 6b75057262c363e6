"""A cluster while it is drawn: nodes with what is left of them, queues, groups and pods.

Amounts are whole numbers in base units: millicores, bytes, and single pieces of everything else; shared GPU memory is
in MiB. Nothing here draws anything.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeAlias

from attrs import Factory, define, field, frozen

Manifest: TypeAlias = dict[str, object]
Amounts: TypeAlias = dict[str, int]

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"
ZONE_LABEL = "topology.kubernetes.io/zone"
RACK_LABEL = "example.com/rack"
HOST_LABEL = "kubernetes.io/hostname"
LEVELS = (ZONE_LABEL, RACK_LABEL, HOST_LABEL)
GPU_DRIVER = "gpu.example.com"
NIC_DRIVER = "nic.example.com"
UNKNOWN_GPU_MEMORY = 100

Gi = 2**30


def stamp(age: timedelta = timedelta()) -> str:
    """Write the moment that was ``age`` ago."""
    return (NOW - age).strftime("%Y-%m-%dT%H:%M:%SZ")


@define(eq=False)
class Device:
    """A device of a resource slice; ``claim`` is whoever has it."""

    name: str
    driver: str
    model: str
    memory_gi: int
    claim: str = ""


@define(eq=False)
class Zone:
    """A NUMA zone of a node."""

    name: str
    capacity: Amounts
    free: Amounts


@define(eq=False)
class Node:
    """A node and what active pods have left of it."""

    name: str
    labels: dict[str, str]
    capacity: Amounts
    free: Amounts
    gpu_memory: int = UNKNOWN_GPU_MEMORY
    mig: str = ""
    taints: list[dict[str, str]] = Factory(list)
    unschedulable: bool = False
    conditions: dict[str, str] = Factory(lambda: {"Ready": "True"})
    shared: dict[str, int] = Factory(dict)
    devices: list[Device] = Factory(list)
    zones: list[Zone] = Factory(list)
    numa_policy: str = "none"
    numa_scope: str = "pod"
    ports: dict[tuple[int, str], str] = Factory(dict)
    pods: "list[Pod]" = Factory(list)

    @property
    def gpus(self) -> int:
        """Count the GPUs that the device plugin offers."""
        return self.capacity.get(GPU, 0)


@define(eq=False)
class Queue:
    """A queue, by resource: quota, limit and weight."""

    name: str
    parent: str
    shares: dict[str, dict[str, float]]
    priority: int | None = None
    runtimes: dict[str, str] = Factory(dict)


@frozen
class ClaimShape:
    """What a claim asks of one device class; ``condition`` is a CEL expression with its plain meaning."""

    device_class: str
    count: int = 1
    every: bool = False
    model: str = ""
    least_memory_gi: int = 0
    shared: bool = False


@frozen
class Demand:
    """What each pod of a kind asks for; at most one of the GPU forms is set."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    percent: int = 0
    gpu_memory: int = 0
    devices: int = 1
    mig: tuple[tuple[str, int], ...] = ()
    legacy_mig: bool = False
    claim: ClaimShape | None = None
    guaranteed: bool = False
    second: tuple[int, int] | None = None
    initial: tuple[int, int] | None = None
    sidecar: tuple[int, int] | None = None
    overhead: tuple[int, int] | None = None

    @property
    def shares_gpu(self) -> bool:
        """Tell whether the pod takes a part of a GPU."""
        return bool(self.percent or self.gpu_memory)

    def amounts(self) -> Amounts:
        """Add up what the pod takes of a node, parts of GPUs apart."""
        running = [(self.cpu, self.memory), self.second or (0, 0), self.sidecar or (0, 0)]
        first = [self.initial or (0, 0), self.sidecar or (0, 0)]
        over = self.overhead or (0, 0)
        cpu, memory = (max(sum(p[i] for p in running), sum(p[i] for p in first)) + over[i] for i in (0, 1))
        wanted = {"cpu": cpu, "memory": memory, "pods": 1, GPU: self.gpus, **dict(self.mig)}
        return {name: amount for name, amount in wanted.items() if amount}

    def memory_on(self, node: Node) -> int:
        """Find how much memory of each device the pod takes on ``node``."""
        return self.gpu_memory or self.percent * node.gpu_memory // 100


@frozen
class Rules:
    """Where the pods of a group may go, as their specs say it."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[tuple[str, str, tuple[str, ...]], ...], ...] = ()
    preferred: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    tolerations: tuple[tuple[tuple[str, str], ...], ...] = ()
    near: tuple[str, str] | None = None
    apart: tuple[str, str] | None = None
    near_softly: tuple[str, str] | None = None
    ports: tuple[tuple[int, str], ...] = ()


@define(eq=False)
class SubGroup:
    """A node of the tree of a pod group; leaves have pods."""

    name: str
    parent: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    constraint: dict[str, str] | None = None
    size: int = 0


@define(eq=False)
class Claim:
    """A resource claim: of one pod, or by name of several."""

    name: str
    shape: ClaimShape
    owner: "Pod | None" = None
    queue: str = ""
    node: Node | None = None
    devices: list[Device] = Factory(list)
    users: "list[Pod]" = Factory(list)


@define(eq=False)
class Volume:
    """A claim of storage, and the volume where it has one; ``reach`` are labels of the nodes that reach it."""

    claim: str
    storage_class: str
    size_gi: int
    bound: bool
    reach: dict[str, str] = Factory(dict)
    owner: "Pod | None" = None


@define(eq=False)
class Pod:
    """A pod: what it asks for, and where it stands."""

    name: str
    group: "Group | None"
    demand: Demand
    rules: Rules = field(factory=Rules)
    labels: dict[str, str] = Factory(dict)
    sub_group: str = ""
    state: str = "pending"
    node: Node | None = None
    nominated: str = ""
    shared: list[str] = Factory(list)
    claims: list[Claim] = Factory(list)
    volumes: list[Volume] = Factory(list)
    zones: dict[str, Amounts] = Factory(dict)
    zones_recorded: str = ""
    bind_failed_once: bool = False
    created: str = ""
    scheduler: str = "kai-scheduler"


@define(eq=False)
class Group:
    """A pod group with its pods."""

    name: str
    queue: str
    priority_class: str
    min_member: int | None = 1
    min_sub_group: int | None = None
    sub_groups: list[SubGroup] = Factory(list)
    constraint: dict[str, str] | None = None
    fields: Manifest = Factory(dict)
    annotations: dict[str, str] = Factory(dict)
    created: str = ""
    pods: list[Pod] = Factory(list)

    def leaves(self) -> list[SubGroup]:
        """List the sub-groups that have pods."""
        parents = {sub_group.parent for sub_group in self.sub_groups}
        return [sub_group for sub_group in self.sub_groups if sub_group.name not in parents]


@define(eq=False)
class Draft:
    """Everything drawn so far, and the source of chance."""

    random: Random
    features: frozenset[str]
    nodes: list[Node] = Factory(list)
    queues: list[Queue] = Factory(list)
    groups: list[Group] = Factory(list)
    foreign: list[Pod] = Factory(list)
    claims: list[Claim] = Factory(list)
    volumes: list[Volume] = Factory(list)
    levels: tuple[str, ...] = LEVELS
    capacity_label: str = HOST_LABEL
    capacities: dict[str, int] = Factory(dict)

    def has(self, feature: str) -> bool:
        """Tell whether the scenario has ``feature``."""
        return feature in self.features

    def sometimes(self, feature: str, chance: float) -> bool:
        """Draw whether ``feature`` shows in this place; never where the scenario does not have it."""
        return feature in self.features and self.random.random() < chance

    def all_pods(self) -> Iterator[Pod]:
        """Go through the pods of every group, then the foreign ones."""
        for group in self.groups:
            yield from group.pods
        yield from self.foreign

    def leaf_queues(self) -> list[str]:
        """Name the queues without children."""
        parents = {queue.parent for queue in self.queues}
        return [queue.name for queue in self.queues if queue.name not in parents]
