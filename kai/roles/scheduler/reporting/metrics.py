"""Prometheus metrics of the scheduler: those of KAI-Scheduler under its names, and our own.

Where KAI-Scheduler keeps only the last value, kai adds a histogram in seconds. The count of series is bounded: series
by pod group exist only for present groups (`kai.cluster.process.exposition`).

Source: names, labels and buckets are those of KAI-Scheduler's pkg/scheduler/metrics.
"""

from __future__ import annotations

import math
import time
from collections import Counter as Tally
from itertools import product
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from prometheus_client.core import Metric

from kai.basics.errors import ActionError, ConfigError, InputError, InvariantError, PluginError
from kai.basics.parsing import GPU_HOUR
from kai.cluster.process.exposition import ChangingSeries, EvictedGroups, Maker
from kai.deciding.engine.host import Phase
from kai.facts.model.axis import GPU, GPU_UNIT, LEADING
from kai.facts.model.pod import Status
from kai.facts.state.budgets import users_of
from kai.facts.state.facts import named_models
from kai.framework.decisions import BUILT_IN, Cause
from kai.framework.verdict import Code
from kai.roles.scheduler.effects import (
    BindDropped,
    BindOrdered,
    BindRefused,
    Evicted,
    EvictionRefused,
    Signal,
    StatementRejected,
    VictimGone,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry

    from kai.cluster.process.tracing import Taken
    from kai.deciding.engine.cycle import CycleReport
    from kai.facts.state.snapshot import Snapshot
    from kai.roles.scheduler.cycle.cycle_input import Spent

_MILLISECONDS: Final = tuple(5.0 * 2**power for power in range(10))
_SEARCH: Final = tuple(0.001 * 2**power for power in range(16))
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_WAITS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_SHARE_UNITS: Final = np.array([1000.0, 1e9, float(GPU_UNIT)])
"""Axis units per core, per GB and per device."""
_MOMENTS: Final[Mapping[str, str]] = {Phase.OPEN: "OnSessionOpen", Phase.CLOSE: "OnSessionClose"}
_QUEUE: Final = ("queue_name", "queue_metadata_name", "queue_display_name")
_USER_UNITS: Final = (1000.0, 1.0, float(GPU_UNIT))
"""Axis units in a unit of the metrics of users: cores, bytes, GPUs."""
_GROUP: Final = ("podgroup", "namespace", "uid", "nodepool", "action")

_BINDS: Final = ("ordered", "refused", "dropped")
_EVICTIONS: Final = ("done", "refused", "dropped")
ERRORS: Final = frozenset(
    each.__name__
    for each in (
        *(ActionError, ConfigError, InputError, InvariantError, PluginError),
        *(ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, LookupError, MemoryError, NameError),
        *(NotImplementedError, OSError, OverflowError, RecursionError, RuntimeError, SystemError, TypeError),
        *(UnboundLocalError, ValueError, ZeroDivisionError),
    )
)
"""Types of errors that get a series of their own; the others share one, so that all series exist before they count."""
_OTHER: Final = "other"

BARE: Final = (
    ("podgroups_scheduled_by_action", "Pod groups that an action bound."),
    ("podgroups_acted_on_by_action", "Pod groups for which an action decided something."),
    ("scenarios_simulation_by_action", "Sets of victims that an action tried."),
    ("scenarios_filtered_by_action", "Sets of victims that an action passed over."),
)
"""Counters whose names do not end in ``_total``."""


def _known(error: str) -> str:
    return error if error in ERRORS else _OTHER


@attrs.define(eq=False)
class BareCounters:
    """Counters by action, under names that the client library would change."""

    prefix: str
    values: dict[str, Tally[str]] = attrs.field(factory=lambda: {name: Tally() for name, _ in BARE})
    preemptions: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The full names."""
        return (*(self.prefix + name for name, _ in BARE), f"{self.prefix}total_preemption_attempts")

    def collect(self) -> Iterable[Metric]:
        """Yield the counters. Called by the registry."""
        for name, text in BARE:
            metric = Metric(self.prefix + name, text, "counter")
            for action, count in sorted(self.values[name].items()):
                metric.add_sample(self.prefix + name, {"action": action}, count)
            yield metric
        name = f"{self.prefix}total_preemption_attempts"
        metric = Metric(name, "Pod groups for which victims of lower priority were looked for.", "counter")
        metric.add_sample(name, {}, self.preemptions)
        yield metric


class SchedulerMetrics:
    """All metrics of one scheduler. Not thread-safe."""

    def __init__(
        self,
        registry: CollectorRegistry,
        namespace: str = "kai",
        pool: str = "default",
        clock: Callable[[], float] = time.monotonic,
        *,
        shadow: bool = False,
    ) -> None:
        """Create the metrics; ``clock`` is monotonic.

        A ``shadow`` reports what it would do, beside a scheduler that acts. Its series have names of their
        own, so that a sum over a name never counts a pod twice.
        """
        prefix = f"{namespace}_" if namespace else ""
        text = "Decisions that were compared with those of another scheduler, by pods."
        self._shadowed = Maker(registry, prefix).counter("shadow_decisions_total", text, "decision", "outcome")
        if shadow:
            prefix += "shadow_"
        self._pool = pool
        self._clock = clock
        self.waiting: Mapping[str, int] = {}
        """Count of waiting pods after the last cycle, by reason."""
        self.bare = BareCounters(prefix)
        registry.register(self.bare)
        self._cycle_since: float | None = None

        make = Maker(registry, prefix)
        self._add_cycles(make)
        self._add_models(make)
        self._add_searches(make)
        self._add_ours(make)

    def _add_cycles(self, make: Maker) -> None:
        gauge, counter, histogram = make.gauge, make.counter, make.histogram
        self._cycle = gauge("e2e_scheduling_latency_milliseconds", "How long the last cycle took.")
        self._open = gauge("open_session_latency_milliseconds", "How long the last session took to open.")
        self._close = gauge("close_session_latency_milliseconds", "How long the last session took to close.")
        self._plugin = gauge(
            "plugin_scheduling_latency_milliseconds", "How long a plugin took last.", "plugin", "OnSession"
        )
        self._action = gauge("action_scheduling_latency_milliseconds", "How long an action took last.", "action")
        self._task = histogram("task_scheduling_latency_milliseconds", "From pod to bind request.", _MILLISECONDS)
        self._bind = histogram("task_bind_latency_milliseconds", "From decision to bind request.", _MILLISECONDS)
        share, usage = "The fair share of a queue.", "The past usage of a queue, as a fraction of the cluster."
        self._of_queues = make.table(
            (
                ("queue_fair_share_cpu_cores", share),
                ("queue_fair_share_memory_gb", share),
                ("queue_fair_share_gpu", share),
                ("queue_cpu_usage", usage),
                ("queue_memory_usage", usage),
                ("queue_gpu_usage", usage),
            ),
            *_QUEUE,
        )
        self._of_budgets = make.table(
            (
                ("queue_budget_amount_gpu_hours", "What a budget of a queue has in its period, with what was carried."),
                ("queue_budget_spent_gpu_hours", "What was used of a budget; NaN where it is not known."),
                ("queue_budget_committed_gpu_hours", "What running work may still use of a budget."),
            ),
            *_QUEUE,
            "budget",
            "enforce",
        )
        self._usage_query = histogram(
            "usage_query_latency_milliseconds", "How long reading past usage took.", _MILLISECONDS
        )
        evicted = counter(
            "pod_group_evicted_pods_total",
            "Pods that were evicted, by pod group; of the newest groups.",
            *_GROUP,
        )
        self._evicted = EvictedGroups(evicted, _GROUP.index("uid"), self._clock)

    def _add_models(self, make: Maker) -> None:
        self._of_models = make.table(
            (
                ("queue_gpu_model_quota", "The quota of a queue of a GPU model, in GPUs; -1 is unlimited."),
                ("queue_gpu_model_deserved", "The part of it that the queue is owed now, in GPUs."),
                ("queue_gpu_model_used", "What a queue uses of a GPU model that it bounds, in GPUs."),
            ),
            *_QUEUE,
            "model",
        )

        self._of_users = make.table(
            (
                ("queue_user_limit", "What a queue lets a user hold of a resource, in GPUs, cores or bytes."),
                ("queue_user_used", "What a user holds of it in the queue and in those below, likewise."),
            ),
            *_QUEUE,
            "user",
            "resource",
        )

    def _add_searches(self, make: Maker) -> None:
        gauge, counter, histogram = make.gauge, make.counter, make.histogram
        self._search_jobs = counter(
            "scenario_search_jobs_total", "Searches for victims.", "action", "result", "reduced_budget"
        )
        self._search_exhausted = counter(
            "scenario_search_action_budget_exhausted_total", "How often an action ran out of time.", "action"
        )
        self._search_seconds = histogram(
            "scenario_search_duration_seconds", "How long searches took.", _SEARCH, "action", "generator", "result"
        )
        self._scenarios = counter("scenario_search_scenarios_total", "Sets of victims.", "action", "generator", "state")
        self.budget_action = gauge(
            "scenario_search_action_budget_configured_seconds", "How long an action may search.", "action"
        )
        self.budget_job = gauge("scenario_search_job_budget_configured_seconds", "How long a search may take.")
        self.budget_generator = gauge(
            "scenario_search_generator_budget_configured_seconds", "How long a generator may search.", "generator"
        )

    def _add_ours(self, make: Maker) -> None:
        """Add the metrics that KAI-Scheduler lacks."""
        gauge, counter, histogram = make.gauge, make.counter, make.histogram
        self._cycle_seconds = histogram("cycle_duration_seconds", "How long cycles take.", _SECONDS)
        under_way = gauge("cycle_under_way_seconds", "How long the cycle that has not ended lasts; 0 between cycles.")
        under_way.set_function(self.cycle_lasts)
        self._phase_seconds = histogram("phase_duration_seconds", "How long parts of cycles take.", _SECONDS, "phase")
        namespace = "of a namespace with more shapes than a cycle considers"
        self._plugin_seconds = counter("plugin_seconds_total", "How long plugins took.", "plugin", "hook")
        self._plugin_calls = counter("plugin_calls_total", "How often plugins were asked.", "plugin", "hook")
        text = f"Distinct shapes of pending pods {namespace}."
        self._shapes = ChangingSeries(gauge("namespace_pending_shapes", text, "namespace"))
        text = f"Pod groups that wait for their turn {namespace}."
        self._later = ChangingSeries(gauge("namespace_deferred_groups", text, "namespace"))
        self._queueing = histogram("pod_queueing_seconds", "From pod to bind request.", _WAITS)
        self._pending = ChangingSeries(gauge("pending_pods", "Pods that wait, by reason.", "reason"))
        self._capped = gauge("capped_groups", "Pod groups that wait because a cap held evictions back.")
        self._binds = counter("binds_total", "What became of binds.", "result", begins=zip(_BINDS, strict=True))
        self._evictions = counter(
            "evictions_total", "What became of evictions.", "result", "cause", begins=product(_EVICTIONS, BUILT_IN)
        )
        text = "GPUs of pods that were evicted or moved."
        self._evicted_gpus = counter("evicted_gpus_total", text, "cause", begins=zip(BUILT_IN, strict=True))
        self._rejected = counter("statements_rejected_total", "Decisions that the newest state of things forbade.")
        errors = [(name,) for name in sorted({*ERRORS, _OTHER})]
        self._failed = counter("cycles_failed_total", "Cycles that were abandoned.", "error", begins=errors)
        text = "Cycles that failed and were repeated at once, without what they failed at."
        self._repeated = counter("cycles_repeated_total", text, "error", begins=errors)
        self._aside = gauge("groups_set_aside", "Objects that are left out because cycles failed at them.")
        self._failing = gauge(
            "plugin_failing", "1 while a plugin is known to fail; then: what follows.", "plugin", "hook", "then"
        )
        self._known_failing: frozenset[tuple[str, str, str]] = frozenset()
        self._plugin_failures = counter(
            "plugin_failures_total", "Answers that plugins known to fail did not give.", "plugin", "hook"
        )
        self._fragmentation = gauge(
            "gpu_fragmentation_ratio", "The part of idle GPUs that are on nodes where other GPUs are in use."
        )
        self._idle = gauge("gpu_idle", "Idle GPUs.")
        self._under_way = gauge("writes_under_way", "Binds, evictions and deletions that have not ended.")
        self._leads = gauge("is_leader", "1 while this process decides for its node pool.", "nodepool")
        self._unlogged = counter("decisions_dropped_total", "Decisions that the decision log lacks.")
        self._usage_reads = counter("usage_reads_total", "Readings of the past usage of queues.", "result")
        # The label keeps the metric absent without past usage, so an alert fires only where it is configured.
        self._usage_known = gauge("usage_is_known", "1 while the past usage of queues counts.", "client")
        self._history_writes = counter("history_writes_total", "Transactions of the history of usage.", "result")
        self._history_recorded = gauge("history_is_recorded", "1 while the history of usage is recorded.", "client")

    def leads(self, *, now: bool) -> None:
        """Show whether this process decides for its node pool. A process that never tries has no such series."""
        self._leads.labels(self._pool).set(int(now))

    def no_more_decided(self) -> None:
        """Clear the metrics that describe the cluster: the term is over, and the next leader reports them."""
        for show in (self._pending, self._shapes, self._later):
            show.show({})
        for gauge in (self._capped, self._aside, self._idle, self._fragmentation):
            gauge.set(0)
        self._failing.clear()
        self._known_failing = frozenset()
        self._of_queues.show({})
        self._of_budgets.show({})
        self._of_models.show({})
        self._of_users.show({})

    # --- Cycles --------------------------------------------------------------------------------------------------

    def phase(self, name: str, seconds: float) -> None:
        """Record the duration of a phase of a cycle."""
        self._phase_seconds.labels(name).observe(seconds)
        match name:
            case Phase.OPEN:
                self._open.set(seconds * 1000)
            case Phase.CLOSE:
                self._close.set(seconds * 1000)
            case Phase.SNAPSHOT | Phase.EXPLAIN:
                pass
            case _:
                self._action.labels(name).set(seconds * 1000)

    def plugin(self, name: str, phase: str, seconds: float) -> None:
        """Record how long a plugin took to open or to close."""
        self._plugin.labels(name, _MOMENTS[phase]).set(seconds * 1000)

    def plugin_asked(self, name: str, hook: str, taken: Taken) -> None:
        """Count the calls of one plugin function in a cycle, and their duration."""
        self._plugin_seconds.labels(name, hook).inc(taken.seconds)
        self._plugin_calls.labels(name, hook).inc(taken.calls)

    def cycle_is_under_way(self, *, now: bool) -> None:
        """Record that a cycle begins, or has ended."""
        self._cycle_since = self._clock() if now else None

    def cycle_lasts(self) -> float:
        """Return how long the present cycle has been running, 0 without one; callable in any thread."""
        since = self._cycle_since
        return 0.0 if since is None else self._clock() - since

    def cycle(self, seconds: float) -> None:
        """Record the duration of a whole cycle."""
        self._cycle.set(seconds * 1000)
        self._cycle_seconds.observe(seconds)

    def cycle_failed(self, error: str) -> None:
        """Count a failed cycle."""
        self._failed.labels(_known(error)).inc()

    def cycle_repeated(self, error: str) -> None:
        """Count a failed cycle that is repeated without the suspected objects."""
        self._repeated.labels(_known(error)).inc()

    def plugins_failing(self, failing: frozenset[tuple[str, str, str]]) -> None:
        """Show the hooks that are known to fail, and the reaction; a fault that ended shows 0."""
        for labels in self._known_failing | failing:
            self._failing.labels(*labels).set(int(labels in failing))
        self._known_failing = failing

    def plugin_failed(self, plugin: str, hook: str, times: int) -> None:
        """Count calls that a plugin known to fail did not answer."""
        self._plugin_failures.labels(plugin, hook).inc(times)

    def set_aside(self, count: int) -> None:
        """Show the count of objects that are set aside."""
        self._aside.set(count)

    def searches(self, spent: Mapping[str, Spent]) -> None:
        """Count the cost of the searches of a cycle."""
        for action, each in spent.items():
            self.bare.values["scenarios_simulation_by_action"][action] += sum(each.scenarios.values())
            self.bare.preemptions += each.groups if action == Cause.PREEMPT.name else 0
            done = each.groups - each.stopped
            for result, reduced, count in (
                ("completed", "false", max(0, done - each.reduced_groups)),
                ("completed", "true", each.reduced_groups),
                ("budget_exhausted", "false", each.stopped),
                ("skipped", "false", each.refused_groups),
            ):
                if count:
                    self._search_jobs.labels(action, result, reduced).inc(count)
            if each.refused_groups:
                self._search_exhausted.labels(action).inc()
            for generator, count in each.scenarios.items():
                self._scenarios.labels(action, generator, "simulated").inc(count)
            for generator, seconds in each.seconds.items():
                self._search_seconds.labels(action, generator, "completed").observe(seconds)

    def state(self, snapshot: Snapshot, report: CycleReport, waiting: Mapping[str, int]) -> None:
        """Show the state after a cycle; ``waiting`` counts pods by reason code."""
        self._queues(snapshot, report)
        self._budgets(snapshot, report)
        self._models(snapshot, report)
        self._users(snapshot, report)
        self._reasons(snapshot, report, waiting)
        self._crowds(snapshot)
        self._evicted.keep(lambda: (group.uid for group in snapshot.groups))
        idle = np.maximum(report.idle[:, GPU], 0) if len(snapshot.nodes) else np.zeros(0)
        capacity = np.array([node.allocatable.get("gpu", 0) for node in snapshot.nodes])
        total = float(idle.sum())
        self._idle.set(total / GPU_UNIT)
        partly = float(idle[idle < capacity].sum()) if len(idle) else 0.0
        self._fragmentation.set(partly / total if total else 0.0)

    def _queues(self, snapshot: Snapshot, report: CycleReport) -> None:
        shares = (report.fair_share[:, :3] / _SHARE_UNITS).tolist()
        self._of_queues.show(
            {
                (queue.title, queue.name, queue.display_name): (
                    *share,
                    float(queue.usage.cpu),
                    float(queue.usage.memory),
                    float(queue.usage.gpu),
                )
                for queue, share in zip(snapshot.queues, shares, strict=True)
            }
        )

    def _budgets(self, snapshot: Snapshot, report: CycleReport) -> None:
        table = snapshot.budgets
        if table is None:
            self._of_budgets.show({})
            return
        held, shown = table.held(report.budget_used, report.budget_left), dict[tuple[str, ...], tuple[float, ...]]()
        for each in table.budgets:
            queue = snapshot.queues[each.queue]
            parts = (each.amount, math.nan if each.spent is None else each.spent, held.get((each.queue, each.name), 0))
            labels = (queue.title, queue.name, queue.display_name, each.name, each.enforce)
            shown[labels] = tuple([float(part / GPU_HOUR) for part in parts])
        self._of_budgets.show(shown)

    def _models(self, snapshot: Snapshot, report: CycleReport) -> None:
        named, deserved = named_models(snapshot), report.models_deserved
        if not named:
            self._of_models.show({})
            return
        shown = dict[tuple[str, ...], tuple[float, ...]]()
        for row, queue in enumerate(snapshot.queues):
            for model, each in queue.models.items():
                at = named.index(model)
                owed = 0 if deserved is None else deserved[row, at]
                parts = (each.quota if each.quota < 0 else each.quota / GPU_UNIT, owed / GPU_UNIT)
                labels = (queue.title, queue.name, queue.display_name, model)
                shown[labels] = (*map(float, parts), float(report.queue_models[row, at] / GPU_UNIT))
        self._of_models.show(shown)

    def _users(self, snapshot: Snapshot, report: CycleReport) -> None:
        accounts, shown = report.accounts, dict[tuple[str, ...], tuple[float, ...]]()
        for account, user in enumerate(users_of(snapshot, accounts)):
            queue = snapshot.queues[accounts.queue[account]]
            for at, unit in enumerate(_USER_UNITS):
                limit = float(accounts.limit[account, at])
                if limit >= 0:
                    labels = (queue.title, queue.name, queue.display_name, user, LEADING[at])
                    shown[labels] = (limit / unit, float(report.user_used[account, at] / unit))
        self._of_users.show(shown)

    def _reasons(self, snapshot: Snapshot, report: CycleReport, waiting: Mapping[str, int]) -> None:
        rows = np.unique(snapshot.pod_group[np.flatnonzero(report.status == Status.PENDING)]).tolist()
        records = [report.records[row] for row in rows if row in report.records]
        self._capped.set(sum(any(each.code is Code.EVICTIONS_CAPPED for each in one.reasons) for one in records))
        self._pending.show(waiting)
        self.waiting = dict(waiting)

    def _crowds(self, snapshot: Snapshot) -> None:
        crowds = snapshot.crowds.by_namespace
        self._shapes.show({name: crowd.shapes for name, crowd in crowds.items()})
        self._later.show({name: len(crowd.groups) for name, crowd in crowds.items()})

    # --- Past usage ----------------------------------------------------------------------------------------------

    def usage_read(self, seconds: float) -> None:
        """Count a reading of past usage."""
        self._usage_query.observe(seconds * 1000)
        self._usage_reads.labels("done").inc()

    def usage_failed(self) -> None:
        """Count a reading of past usage that failed."""
        self._usage_reads.labels("failed").inc()

    def usage_known(self, *, known: bool, client: str = "prometheus") -> None:
        """Show whether past usage counts."""
        for result in ("done", "failed"):
            self._usage_reads.labels(result)
        self._usage_known.labels(client).set(float(known))

    def history_written(self) -> None:
        """Count a transaction of the history of usage."""
        self._history_writes.labels("done").inc()

    def history_recorded(self, *, recorded: bool, client: str) -> None:
        """Show whether this process records the history of usage, and count a failure where it does not."""
        if not recorded:
            self._history_writes.labels("failed").inc()
        self._history_recorded.labels(client).set(float(recorded))

    # --- Decisions and writes ------------------------------------------------------------------------------------

    def decided(self, action: str, *, bound: int, acted_on: int) -> None:
        """Count the groups of a statement."""
        self.bare.values["podgroups_scheduled_by_action"][action] += bound
        self.bare.values["podgroups_acted_on_by_action"][action] += acted_on

    def take(self, signal: Signal) -> None:
        """Count the outcome of a decision or a write."""
        match signal:
            case BindOrdered():
                self._binds.labels("ordered").inc()
                self._bind.observe(signal.seconds * 1000)
                self._queueing.observe(signal.waited)
                self._task.observe(signal.waited * 1000)
            case BindRefused():
                self._binds.labels("refused").inc()
            case BindDropped():
                self._binds.labels("dropped").inc()
            case Evicted():
                self._evictions.labels("done", signal.cause).inc()
                self._evicted_gpus.labels(signal.cause).inc(signal.gpus / GPU_UNIT)
                if signal.group is not None:
                    self._evicted.count((*signal.group, self._pool, signal.cause))
            case EvictionRefused():
                self._evictions.labels("refused", signal.cause).inc()
            case VictimGone():
                self._evictions.labels("dropped", signal.cause).inc()
            case StatementRejected():
                self._rejected.inc()
            case _:
                pass

    def shadowed(self, decision: str, outcome: str, count: int) -> None:
        """Count decisions that were compared with those of another scheduler."""
        self._shadowed.labels(decision, outcome).inc(count)

    def not_logged(self, count: int) -> None:
        """Count decisions missing in the decision log. Callable from other threads."""
        self._unlogged.inc(count)

    def under_way(self, count: int) -> None:
        """Show the count of writes that have not ended."""
        self._under_way.set(count)
