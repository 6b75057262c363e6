"""Say what a workload is made of: nodes, queues, what runs, what waits, and what must come out.

A workload is data. Everything that can be computed from it (names, timestamps, objects) is made in ``manifests``, so
that two workloads differ exactly where their values here differ.
"""

from attrs import field, frozen
from attrs.validators import ge, gt, min_len

from benchmarks.devices import Devices

RACK_LABEL = "perf/rack"
ZONE_LABEL = "perf/zone"
HOST_LABEL = "kubernetes.io/hostname"
TOPOLOGY = "perf"

UNLIMITED = -1


@frozen
class Nodes:
    """Identical nodes; racks and zones are runs of consecutive nodes, and none where the size is zero.

    ``numa`` is the number of NUMA zones that each node reports under the policy ``single-numa-node``. With any, all
    pods are guaranteed what they ask for, and the plugin `numa` is on.
    """

    count: int = field(validator=gt(0))
    gpus: int = field(default=8, validator=ge(0))
    rack_size: int = field(default=0, validator=ge(0))
    zone_size: int = field(default=0, validator=ge(0))
    numa: int = field(default=0, validator=ge(0))

    @property
    def total_gpus(self) -> int:
        """Count the GPUs of all nodes."""
        return self.count * self.gpus


@frozen
class QueueShape:
    """One queue; CPU and memory are unlimited in every workload, so only GPUs are said."""

    name: str
    parent: str = ""
    gpu_quota: int = UNLIMITED
    weight: int = 1
    gpu_limit: int = UNLIMITED


@frozen
class Running:
    """Groups of one pod that run when the cycle begins, as many on each node as fit ``per_node``.

    Group ``i`` is on node ``i // per_node``, or on node ``i mod nodes`` where ``striped``; it belongs to
    ``queues[i mod len(queues)]``.
    """

    groups: int = field(validator=gt(0))
    queues: tuple[str, ...] = field(validator=min_len(1))
    per_node: int = field(default=8, validator=gt(0))
    gpus: int = field(default=1, validator=ge(0))
    striped: bool = False
    fraction: str = ""
    """The part of a GPU that each has; two in a row share one."""

    def node_of(self, group: int, nodes: Nodes) -> int:
        """Find the node that ``group`` runs on."""
        return group % nodes.count if self.striped else group // self.per_node


@frozen
class Pending:
    """Groups that wait when the cycle begins; every one is a gang of ``pods`` identical pods."""

    groups: int = field(validator=gt(0))
    queues: tuple[str, ...] = field(validator=min_len(1))
    pods: int = field(default=1, validator=gt(0))
    gpus: int = field(default=1, validator=ge(0))
    fraction: str = ""
    mixed: tuple[str, ...] = ()
    """Every second group, from the first on, asks for one of these parts of a GPU, in turn, instead of ``gpus``."""
    differ: bool = False
    """Each group asks for another amount of CPU, so that no two pods of different groups are alike."""
    required_level: str = ""
    preferred_level: str = ""
    subgroups: int = 0
    """The number of sub-groups of a group, of equal size, each within a rack."""
    app: int = 0
    """The number of groups in a row that are one app, in a namespace that few others share."""
    keeps: str = ""
    """How pods of an app keep to each other: ``apart`` (no two on a node) or ``spread`` (evenly over zones)."""

    def share_of(self, group: int) -> str:
        """Return the part of a GPU that each pod of ``group`` asks for; "" if it asks for whole ones or none."""
        if self.mixed and group % 2 == 0:
            return self.mixed[group // 2 % len(self.mixed)]
        return self.fraction

    @property
    def total_pods(self) -> int:
        """Count the pods of all groups."""
        return self.groups * self.pods


@frozen
class Expected:
    """What one cycle must decide, and where the expectation comes from.

    ``pipelined`` are pending pods that are promised a place, ``moved`` are victims that are promised another.
    """

    placed: int = 0
    pipelined: int = 0
    moved: int = 0
    evicted: int = 0
    gang_within: str = ""
    nodes_used: int | None = None
    source: str = "measured on the peer"


@frozen
class Peer:
    """What the same cycle cost another scheduler; two figures are the range over repetitions."""

    cycle_ms: tuple[float, float]
    note: str = ""


@frozen
class Workload:
    """One cluster with its load, what one cycle over it must decide, and what that cost the peer."""

    id: str
    title: str
    nodes: Nodes
    queues: tuple[QueueShape, ...] = field(validator=min_len(1))
    expected: Expected
    running: Running | None = None
    pending: Pending | None = None
    updates: int = 0
    """How many running pods are updated, in a way that changes no decision, before a warm cycle."""
    node_updates: int = 0
    """How many nodes have another amount of memory before a warm cycle; none of them so little that it matters."""
    stays: bool = False
    """Those who wait are known: they do not leave and come back between warm cycles."""
    peer: Peer | None = None
    devices: Devices | None = None
    """What pods ask for beside CPU and memory; without it, GPUs of a device plugin."""
    moves_any: bool = False
    """Whether a consolidation may move any number of groups, instead of 16."""

    @property
    def running_pods(self) -> int:
        """Count the pods that run when the cycle begins."""
        return self.running.groups if self.running else 0

    @property
    def pending_pods(self) -> int:
        """Count the pods that wait when the cycle begins."""
        return self.pending.total_pods if self.pending else 0
