"""What an administrator decides about the scheduler, with the defaults of the peer's flags."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from kai.api import names
from kai.configuration.reading import Configuration, default_configuration
from kai.intake import IntakeSettings


class EvictBy(StrEnum):
    """How a pod is made to go."""

    EVICTION = "eviction"
    """Through the eviction API, always: disruption budgets hold, and a write can be fenced by its annotations."""
    BUDGET = "budget"
    """Through the eviction API where a disruption budget covers the pod, else by deleting it."""
    DELETE = "delete"
    """By deleting it, as the peer does: no disruption budget counts."""


@attrs.frozen(kw_only=True)
class SchedulerSettings:
    """How the scheduler runs.

    Source: the flags of the peer's scheduler (cmd/scheduler/app/options).
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
    """How long to gather more changes once one was seen, which a pod that starts without others does not wait for."""
    status_writers: int = 5
    """Conditions, annotations and events under way at once."""
    evict_by: EvictBy = EvictBy.EVICTION
    names_others: bool = False
    """Whether events on victims name pod groups of other namespaces."""
    mark_victims: bool = False
    """Whether a victim first gets the condition DisruptionTarget."""
    announce_binds: bool = True
    """Whether a pod gets the event Scheduled once it is bound."""
    direct_binds: bool = False
    """Whether the binder of this process carries out binds that need no preparation without a bind request."""
    quiet_seconds: float = 10.0
    """How long an explanation stands before another that says nothing new in kind may replace it."""
    stale_store_seconds: float = 75.0
    """After so long without a word from some watch no pod is evicted, and the process is not ready.

    A watch of a kind that does not change is silent but for bookmarks, and the API server sends one every minute or so:
    anything shorter would take a healthy watch for a dead one most of the time.
    """
    usage_address: str = ""
    """Where past usage is read from, if the configuration asks for it and an environment variable has the address."""
    decision_log: str = ""
    """The file to which every decision is appended; "" for none."""
    decision_log_megabytes: int = 64
    decision_log_files: int = 4
    shadow: bool = False
    """Whether to write nothing, and compare what is decided with what another scheduler does."""
    shadow_patience_seconds: float = 60.0
    """For how long the other may leave undone what was decided here, before that is a difference."""
    dump_folder: str = ""
    """Where to put the snapshot of a cycle that failed; the system's folder for temporary files if empty."""

    @property
    def pool(self) -> str:
        """The name of this scheduler's node pool in messages and conditions."""
        return self.intake.node_pool or names.DEFAULT_NODE_POOL

    @property
    def lease_name(self) -> str:
        """The name of the lease that one scheduler of this node pool holds.

        Source: the peer names it after the scheduler and, if it has one, the shard.
        """
        scheduler = self.configuration.parameters.scheduler_name
        return f"{scheduler}-{self.intake.node_pool}" if self.intake.node_pool else scheduler
