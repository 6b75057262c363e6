"""Settings of the scheduler that no plugin owns. The defaults are the peer's."""

from collections.abc import Mapping
from typing import Final, Literal

import attrs
from attrs.validators import ge, in_, instance_of

UNBOUNDED = -1
LEAST_HARM: Final = "least-harm"
AS_PEER: Final = "as-peer"


@attrs.frozen(kw_only=True)
class SearchBudgets:
    """How long searches for victims may take, in seconds; 0 is unlimited.

    The core has no clock: a budget is asked through ``Budget`` and its answers are data, so that a replay repeats them.
    The peer's defaults are 300 s, 240 s, 120 s and 30 s. No other pod is scheduled meanwhile, and a search that tries
    thousands of scenarios in vain takes as long as it may: one hundred pods that wait for whole nodes, in a queue that
    may hold more, are enough for that. A cycle of kai's takes about a ninetieth of the peer's time.
    """

    action: Mapping[str, float] = attrs.field(factory=lambda: {"default": 20.0})
    group: float = 8.0
    group_minimum: float = 0.0
    generator: Mapping[str, float] = attrs.field(
        factory=lambda: {"default": 4.0, "NodeLocalGreedy": 1.0, "MultiNodeGang": 4.0}
    )


@attrs.frozen(kw_only=True)
class Parameters:
    """Settings of one scheduler."""

    scheduler_name: str = "kai-scheduler"
    """Which pods are scheduled, by their ``schedulerName``."""
    max_consolidation_preemptees: int = attrs.field(default=16, validator=[instance_of(int), ge(UNBOUNDED)])
    """Victim groups that a consolidation may consider; 0 switches it off, -1 lifts the bound."""
    allow_consolidating_reclaim: bool = True
    """Whether victims that find another place count as not reclaimed."""
    victims: Literal["least-harm", "as-peer"] = attrs.field(default=LEAST_HARM, validator=in_((LEAST_HARM, AS_PEER)))
    """Which victims are chosen: the least loss (least-harm), or the first found, as in KAI-Scheduler (as-peer)."""
    use_scheduling_signatures: bool = True
    """Whether a group is skipped when one that is no harder failed in the same action."""
    default_staleness_grace_seconds: float = 60.0
    """How long a gang below its minimum may keep running; negative: for ever."""
    restrict_node_scheduling: bool = False
    """Whether GPU pods and CPU pods go only to nodes labelled for their kind; GPUs on other nodes do not count."""
    cpu_worker_label: str = "node-role.kubernetes.io/cpu-worker"
    """The label of nodes for pods without GPUs, where node scheduling is restricted."""
    gpu_worker_label: str = "node-role.kubernetes.io/gpu-worker"
    """The label of nodes for pods with GPUs, where node scheduling is restricted."""
    detailed_fit_errors: bool = False
    """Whether the message on a pod has a line for each node."""
    schedule_csi_storage: bool = False
    """Whether the capacities that storage drivers report are shared out; if not, each claim must fit by itself."""
    queue_depth: Mapping[str, int] = attrs.field(factory=dict)
    """Groups of one queue that an action looks at; absent: all."""
    budgets: SearchBudgets = SearchBudgets()
    """How long searches for victims may take, in seconds; 0 is unlimited."""
    evicted_gpus_per_gpu: float = attrs.field(default=0.0, validator=ge(0.0))
    """GPUs that pods may lose for each GPU that a group gains by it, moved pods included; 0 is no bound."""
    evicted_gpus_per_cycle: float = attrs.field(default=0.0, validator=ge(0.0))
    """GPUs that pods may lose in one cycle; 0 is no bound."""
    evicted_gpus_per_hour: float = attrs.field(default=0.0, validator=ge(0.0))
    """GPUs that pods may lose in one hour; 0 is no bound."""
    queue_evicted_gpus_per_cycle: float = attrs.field(default=0.0, validator=ge(0.0))
    """GPUs that pods of one queue may lose in one cycle; 0 is no bound."""
    queue_evicted_gpus_per_hour: float = attrs.field(default=0.0, validator=ge(0.0))
    """GPUs that pods of one queue may lose in one hour; 0 is no bound."""
    shortcuts: bool = True
    """Whether kernels decide whole phases in one loop; without them decisions are the same and take longer."""
    without: tuple[str, ...] = ()
    """Shortcuts that are left out one by one, by the names in ``docs/design/0013-shortcuts.md``."""

    @property
    def caps_evictions(self) -> bool:
        """Whether any cap on evictions is set."""
        # Asked once for each cycle: without a cap no evictions are counted at all.
        return bool(
            self.evicted_gpus_per_gpu
            or self.evicted_gpus_per_cycle
            or self.queue_evicted_gpus_per_cycle
            or self.caps_evictions_by_the_hour
        )

    @property
    def caps_evictions_by_the_hour(self) -> bool:
        """Whether a cap counts what was evicted within the last hour."""
        return bool(self.evicted_gpus_per_hour or self.queue_evicted_gpus_per_hour)
