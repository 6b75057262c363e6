"""Settings of the administrator for the scheduler, with the defaults of KAI-Scheduler's flags."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from kai.api import names
from kai.deciding.configuration.profile_reading import Configuration, default_configuration
from kai.intake import IntakeSettings


class BindEventsOf(StrEnum):
    """On which object the event says that a pod is bound."""

    POD = "pod"
    """Each pod has an event of its own, as KAI-Scheduler writes it."""
    GANG = "gang"
    """The pods of a gang share one event on their pod group, and only a pod that is alone has its own."""
    NONE = "none"
    """No event is written."""


class EvictBy(StrEnum):
    """How a pod is evicted."""

    EVICTION = "eviction"
    """Always through the eviction API: disruption budgets hold, and annotations on the eviction can fence the write."""
    BUDGET = "budget"
    """Through the eviction API if a disruption budget covers the pod, else by deletion."""
    DELETE = "delete"
    """By deletion, as KAI-Scheduler does: disruption budgets are ignored."""


@attrs.frozen(kw_only=True)
class SchedulerSettings:
    """How the scheduler runs.

    Source: the flags of KAI-Scheduler's scheduler (cmd/scheduler/app/options).
    """

    configuration: Configuration = attrs.field(factory=default_configuration)
    document: Mapping[str, object] | None = None
    """The configuration as it was written, for dumps; None for the built-in one."""
    intake: IntakeSettings = attrs.field(factory=IntakeSettings)
    metrics_namespace: str = "kai"
    leader_elect: bool = False
    period_seconds: float = 1.0
    """The longest pause between two cycles while something waits."""
    coalescing_seconds: float = 0.05
    """Debounce after a change; a pod that starts alone does not wait for it."""
    status_writers: int = 5
    """Count of concurrent writes of conditions, annotations and events."""
    evict_by: EvictBy = EvictBy.EVICTION
    names_others: bool = False
    """Whether events on victims name pod groups of other namespaces."""
    mark_victims: bool = False
    """Whether a victim gets the condition DisruptionTarget before its eviction."""
    bind_events: BindEventsOf = BindEventsOf.POD
    """The object with the event Scheduled, which is written once a pod is bound."""
    direct_binds: bool = False
    """Whether the binder of this process carries out binds without preparation directly, without a bind request."""
    quiet_seconds: float = 10.0
    """Quiet period: how long an explanation stays before one that differs in figures only replaces it."""
    stale_store_seconds: float = 75.0
    """After this time without a message from some watch no pod is evicted, and the process is not ready.

    A watch of a kind that does not change brings only bookmarks, which the API server sends about once a minute: with a
    shorter limit a healthy watch would count as dead most of the time.
    """
    usage_address: str = ""
    """Address of the usage database, if the configuration takes it from an environment variable."""
    decision_log: str = ""
    """The file to which every decision is appended; "" for none."""
    decision_log_megabytes: int = 64
    decision_log_files: int = 4
    shadow: bool = False
    """Whether to write nothing, and compare the decisions with those of another scheduler."""
    shadow_patience_seconds: float = 60.0
    """How long the other scheduler may take for a decision that was made here, before that is a difference."""
    dump_folder: str = ""
    """Folder for the snapshots of failed cycles; "" for the system's temporary folder."""

    @property
    def pool(self) -> str:
        """The name of this scheduler's node pool in messages and conditions."""
        return self.intake.node_pool or names.DEFAULT_NODE_POOL

    @property
    def lease_name(self) -> str:
        """The name of the lease that the leading scheduler of this node pool holds.

        Source: KAI-Scheduler names it after the scheduler and, if it has one, the shard.
        """
        scheduler = self.configuration.parameters.scheduler_name
        return f"{scheduler}-{self.intake.node_pool}" if self.intake.node_pool else scheduler
