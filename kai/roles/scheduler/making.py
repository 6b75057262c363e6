"""Builds the scheduler service from settings and a cluster."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import attrs
from prometheus_client import CollectorRegistry

from kai.cluster.process.tracing import Tracing, no_tracing
from kai.cluster.requesting.refused_writes import ReadOnlyApi
from kai.deciding.configuration.profiles import make_profile
from kai.roles.scheduler.committing.committer import Committer
from kai.roles.scheduler.committing.outbox import CarryOut, HandOver, Outbox
from kai.roles.scheduler.cycle.cycling import Cycles
from kai.roles.scheduler.cycle.past_usage import past_usage
from kai.roles.scheduler.kernel_warmup import Warming
from kai.roles.scheduler.publishing.publisher import Publisher
from kai.roles.scheduler.reporting.cycle_recorder import Hourly, Shadowing
from kai.roles.scheduler.reporting.decision_log import DecisionLog
from kai.roles.scheduler.reporting.history import HistoryRecorder, Spending, spending
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.reporting.shadow import Shadow
from kai.roles.scheduler.service import Scheduler
from kai.roles.scheduler.wakeups import IndependentPods, OtherPools, Rests, Rhythm

if TYPE_CHECKING:
    from collections.abc import Callable

    from kai.cluster.port import Cluster, Leadership
    from kai.roles.scheduler.settings import SchedulerSettings


def make_scheduler(
    cluster: Cluster,
    settings: SchedulerSettings,
    leadership: Leadership,
    *,
    registry: CollectorRegistry | None = None,
    tracing: Tracing | None = None,
    hand_over: HandOver | None = None,
    carry_out: CarryOut | None = None,
    fresh_name: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> Scheduler:
    """Return the scheduler of an opened cluster; `Scheduler.run` runs it.

    Raises: ConfigError for plugins, actions, options, a usage database or a decision log that cannot be used.
    """
    profile = make_profile(settings.configuration)
    if settings.shadow:
        # Around the API and not in the outbox: a shadow must not write, whichever part tries to.
        cluster = attrs.evolve(cluster, api=ReadOnlyApi(cluster.api))
    spans = no_tracing() if tracing is None else tracing
    metrics = SchedulerMetrics(
        CollectorRegistry() if registry is None else registry,
        settings.metrics_namespace,
        settings.pool,
        cluster.clock.monotonic,
        shadow=settings.shadow,
    )
    _show_budgets(metrics, settings)
    meter = spending(settings.configuration.usage, settings.usage_address, cluster.clock)
    committer = Committer(settings, cluster.store, fresh_name, cluster.clock.now)
    publisher = Publisher(settings, cluster.store, cluster.clock.now)
    hourly = Hourly(cluster.clock)
    name = settings.configuration.parameters.scheduler_name
    independent_pods = IndependentPods(cluster.store, name, settings.intake.owns)
    if settings.intake.node_pool_label:
        cluster.store.pass_over(OtherPools(cluster.store, settings.intake).hold)
    return Scheduler(
        cluster=cluster,
        settings=settings,
        leadership=leadership,
        metrics=metrics,
        tracing=spans,
        outbox=Outbox(cluster, settings, committer, publisher, metrics, hand_over, carry_out, hourly),
        kernels=Warming(profile),
        rests=Rests(independent_pods, Rhythm.of_service(settings).haste(), cluster.clock),
        cycles=Cycles(settings, profile, cluster.clock.monotonic),
        hourly=hourly,
        usage=past_usage(settings.configuration.usage, settings.usage_address, cluster.clock, metrics),
        spending=meter,
        history=_history(settings, cluster, leadership, metrics, meter),
        decisions=_decision_log(settings, metrics),
        shadowing=_shadowing(cluster, settings, metrics) if settings.shadow else None,
    )


def _shadowing(cluster: Cluster, settings: SchedulerSettings, metrics: SchedulerMetrics) -> Shadowing:
    name, patience = settings.configuration.parameters.scheduler_name, settings.shadow_patience_seconds
    return Shadowing(cluster, metrics, Shadow(scheduler_name=name, patience=patience))


def _history(
    settings: SchedulerSettings,
    cluster: Cluster,
    leadership: Leadership,
    metrics: SchedulerMetrics,
    meter: Spending | None,
) -> HistoryRecorder | None:
    """Return what records the history; None where past usage comes from elsewhere. A shadow writes none."""
    usage = settings.configuration.usage
    if usage is None or not usage.is_recorded or settings.shadow:
        return None
    return HistoryRecorder(
        path=settings.usage_address or usage.address,
        retention_seconds=usage.retention_seconds,
        half_life_seconds=usage.half_life_seconds,
        cluster=cluster,
        leadership=leadership,
        scheduler_name=settings.configuration.parameters.scheduler_name,
        owns=settings.intake.owns,
        metrics=metrics,
        client=usage.client,
        spending=meter,
    )


def _decision_log(settings: SchedulerSettings, metrics: SchedulerMetrics) -> DecisionLog | None:
    """Return the log of decisions; None without one.

    Raises: ConfigError for a file that cannot be written.
    """
    if not settings.decision_log:
        return None
    megabytes, files = settings.decision_log_megabytes, settings.decision_log_files
    return DecisionLog.to(settings.decision_log, megabytes, files, metrics.not_logged)


def _show_budgets(metrics: SchedulerMetrics, settings: SchedulerSettings) -> None:
    budgets = settings.configuration.parameters.budgets
    for action, seconds in budgets.action.items():
        metrics.budget_action.labels(action).set(seconds)
    for generator, seconds in budgets.generator.items():
        metrics.budget_generator.labels(generator).set(seconds)
    metrics.budget_job.set(budgets.group)
