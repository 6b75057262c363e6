"""The roles: their settings from flags, and their coroutines for an open cluster. Each is imported when it starts."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import attrs

from kai.api.cluster_objects import FIELD_OF
from kai.api.kinds import ApiObject
from kai.api.kubernetes.meta import Namespace
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.errors import CommandLineError
from kai.basics.wording import shown
from kai.cli.running.flags import (
    BINDER,
    PARAMETER_OF,
    POD_GROUPS,
    PODGROUPER,
    QUEUES,
    SCALE,
    SCHEDULER,
    SETTING_OF,
    TOGETHER,
)
from kai.cli.running.identity import END_AT_ONCE, HOLD_GPU, own_image
from kai.cluster.port import Cluster

if TYPE_CHECKING:  # OpenTelemetry takes a quarter of a second, which not every role needs
    from kai.cli.running.flags import Given
    from kai.cluster.process.tracing import Tracing
    from kai.cluster.signals import Observe
    from kai.roles.binder.sharers import BinderSettings

Work: TypeAlias = Callable[[Cluster], Coroutine[Any, Any, None]]
"""Works on a cluster until cancelled."""


@attrs.frozen(kw_only=True)
class Role:
    """A role, ready to start."""

    name: str
    watched: tuple[type[ApiObject], ...]
    work: Work


def controller(name: str, given: Given, observe: Observe) -> Role:
    """Return a role other than the scheduler, the binder and the pod grouper.

    Raises: ConfigError for invalid settings.
    """
    make = {POD_GROUPS: _pod_groups, QUEUES: _queues, SCALE: _scale}
    return make[name](given, observe)


_NEEDED: Final = ("needed", "always")
_LINK_DELAY: Final = 10.0
_MOST_LOOKS: Final = 64


@attrs.frozen(kw_only=True)
class HandOver:
    """The binder, for a scheduler in the same process."""

    offer: Callable[[BindRequest], None]
    """Takes a bind request that is already written."""
    carry_out: Callable[[BindRequest, Callable[[str, bool], None]], bool]
    """Binds without writing the request; see `kai.roles.scheduler.committing.outbox.CarryOut`."""


# --- Scheduler -----------------------------------------------------------------------------------------------------


def scheduler_settings(given: Given) -> Any:  # noqa: ANN401 - SchedulerSettings, whose import costs numpy
    """Return the settings of the scheduler.

    Raises: ConfigError.
    """
    from kai.framework.parameters import AS_PEER
    from kai.roles.scheduler.cycle.past_usage import usage_address
    from kai.roles.scheduler.settings import BindEventsOf, EvictBy, SchedulerSettings

    words: dict[str, Iterable[str]] = {"evict-by": EvictBy, "bind-events": BindEventsOf, "bind-requests": _NEEDED}
    for flag, choices in words.items():
        if (found := given.text(flag)) not in set(choices):
            raise CommandLineError(f"--{flag}: found {shown(found)}, expected one of {', '.join(choices)}")
    _check_shadow(given)
    configuration, document = configuration_of(given)
    if given.truth("shadow"):  # compared with the other scheduler, so it must choose victims as that one does
        parameters = attrs.evolve(configuration.parameters, victims=AS_PEER)
        configuration = attrs.evolve(configuration, parameters=parameters)
    usage = configuration.usage
    return SchedulerSettings(
        usage_address="" if usage is None else usage_address(usage, os.environ, given.text("partition-label-value")),
        configuration=configuration,
        document=document,
        intake=intake_of(given),
        metrics_namespace=given.text("metrics-namespace"),
        leader_elect=competes(given),
        period_seconds=max(0.01, given.number("schedule-period")),
        status_writers=max(1, given.whole("num-of-status-recording-workers")),
        evict_by=EvictBy(given.text("evict-by")),
        names_others=given.truth("name-aggressors"),
        mark_victims=given.truth("update-pod-eviction-condition"),
        bind_events=BindEventsOf(given.text("bind-events")),
        direct_binds=given.text("bind-requests") == "needed",
        decision_log=given.text("decision-log"),
        decision_log_megabytes=given.whole("decision-log-megabytes"),
        decision_log_files=given.whole("decision-log-files"),
        shadow=given.truth("shadow"),
        shadow_patience_seconds=max(0.0, given.number("shadow-patience")),
    )


def competes(given: Given) -> bool:
    """Return whether to compete for a lease. A shadow never does, even where the flags of its shard ask for one."""
    return given.truth("leader-elect") and not given.truth("shadow")


def _check_shadow(given: Given) -> None:
    """Refuse a shadow beside roles that write.

    Raises: CommandLineError.
    """
    if not given.truth("shadow"):
        return
    others = [name for name in given.roles or TOGETHER if name != SCHEDULER]
    if others:
        found = f"the roles {', '.join(others)}, which write"
        raise CommandLineError(f"--shadow: found {found}, expected {SCHEDULER} alone")


def configuration_path(given: Given) -> str:
    """Return the file with the scheduler's configuration; "" without one.

    Raises: CommandLineError for two different files.
    """
    ours, theirs = given.text("config"), given.text("scheduler-conf")
    if ours and theirs and ours != theirs:
        raise CommandLineError(f"--config: found {shown(ours)} beside --scheduler-conf={theirs}, expected one of them")
    return ours or theirs


def configuration_of(given: Given) -> tuple[Any, Mapping[str, object] | None]:
    """Return the configuration, with the parameters that flags set, and the document that it was read from.

    Raises: ConfigError.
    """
    from kai.cli.running.configuring import load_setup
    from kai.deciding.configuration.profile_reading import default_configuration

    path = configuration_path(given)
    setup = load_setup(path) if path else None
    configuration = default_configuration() if setup is None else setup.configuration
    said = {name: given.values[flag] for flag, name in PARAMETER_OF.items()}
    said["max_consolidation_preemptees"] = max(-1, given.whole("max-consolidation-preemptees"))
    parameters = attrs.evolve(configuration.parameters, **said)
    return attrs.evolve(configuration, parameters=parameters), None if setup is None else setup.document


def intake_of(given: Given) -> Any:  # noqa: ANN401 - as above
    """Return the settings by which a cluster becomes a snapshot.

    Raises: ConfigError.
    """
    from kai.intake import IntakeSettings, QueueAccess

    access = given.text("queue-access")
    if access not in set(QueueAccess):
        raise CommandLineError(f"--queue-access: found {shown(access)}, expected {' or '.join(QueueAccess)}")
    said = {name: given.values[flag] for flag, name in SETTING_OF.items()}
    said["queue_access"] = QueueAccess(access)
    for name in ("namespace_shapes", "namespace_pods"):
        said[name] = max(0, said[name])
    return IntakeSettings(**said)


SCHEDULER_WATCHES: tuple[type[ApiObject], ...] = tuple(FIELD_OF)


def watches_of_plugins(configuration: Any) -> tuple[type[ApiObject], ...]:  # noqa: ANN401 - as above
    """Return the kinds that the configured plugins read besides those of kai.

    Raises: ConfigError for a kind that kai reads itself.
    """
    from kai.api.kinds import declare_all
    from kai.deciding.configuration.registry import Registry

    found = Registry.installed().objects(entry.name for entry in configuration.plugins)
    return tuple(cls for cls in declare_all(found.items()) if cls not in SCHEDULER_WATCHES)


# --- The others ----------------------------------------------------------------------------------------------------


def binder(given: Given, observe: Observe, tracing: Tracing) -> tuple[Role, HandOver]:
    """Return the binder, and the functions that hand it a request within this process.

    Raises: ConfigError.
    """
    from kai.api.codec.structuring import structure_as
    from kai.roles.binder.service import WATCHED, BinderService, make_binder
    from kai.roles.binder.steps import StepOptions

    settings = _binder_settings(given)
    steps = {name: structure_as(StepOptions, options) for name, options in given.mapping("plugins").items()}
    running: list[BinderService] = []

    async def work(cluster: Cluster) -> None:
        chosen = settings
        if not settings.reservation.image:
            ours = attrs.evolve(settings.reservation, image=await own_image(cluster, os.environ), args=HOLD_GPU)
            chosen = attrs.evolve(settings, reservation=ours)
        service = make_binder(cluster, chosen, steps, observe=observe, traced=tracing.continued)
        running.append(service)
        try:
            await service.run()
        finally:
            running.clear()

    def offer(request: BindRequest) -> None:
        for service in running:
            service.offer(request)

    def carry_out(request: BindRequest, done: Callable[[str, bool], None]) -> bool:
        return any(service.carry_out(request, done) for service in running)

    return Role(name=BINDER, watched=WATCHED, work=work), HandOver(offer=offer, carry_out=carry_out)


def _binder_settings(given: Given) -> BinderSettings:
    from kai.api.codec.structuring import structure_as
    from kai.roles.binder.sharers import BinderSettings, PodResources, ReservationSettings

    reservation = ReservationSettings(
        namespace=given.text("resource-reservation-namespace"),
        service_account=given.text("resource-reservation-service-account"),
        app_label=given.text("resource-reservation-app-label"),
        image=given.text("resource-reservation-pod-image"),
        runtime_class=given.text("runtime-class-name"),
        timeout_seconds=float(given.whole("resource-reservation-allocation-timeout")),
        fake_gpu_nodes=given.truth("fake-gpu-nodes"),
        resources=structure_as(PodResources, given.mapping("resource-reservation-pod-resources")),
        pod_security_context=given.mapping("resource-reservation-pod-security-context"),
        container_security_context=given.mapping("resource-reservation-container-security-context"),
    )
    return BinderSettings(
        scheduler_name=given.text("scheduler-name"),
        node_pool_label=given.text("nodepool-label-key"),
        reservation=reservation,
        concurrency=max(1, given.whole("max-concurrent-reconciles")),
        first_delay_seconds=float(max(1, given.whole("rate-limiter-base-delay"))),
        longest_delay_seconds=float(max(1, given.whole("rate-limiter-max-delay"))),
    )


def podgrouper(given: Given, observe: Observe) -> tuple[Role, Callable[[], Awaitable[None]] | None]:
    """Return the pod grouper, and what waits for the groups that it only shows in the store, if it does that.

    Raises: ConfigError.
    """
    from kai.cluster.work import QueueOptions
    from kai.roles.podgrouper.grouper import Settings
    from kai.roles.podgrouper.keeping import FirstPass
    from kai.roles.podgrouper.owner_reading import WATCHED
    from kai.roles.podgrouper.service import group_pods

    if given.text("pod-groups") not in _NEEDED:
        found, wanted = given.text("pod-groups"), ", ".join(_NEEDED)
        raise CommandLineError(f"--pod-groups: found {shown(found)}, expected one of {wanted}")
    first_pass = FirstPass()
    settings = Settings(
        scheduler_name=given.text("scheduler-name"),
        queue_label=given.text("queue-label-key"),
        node_pool_label=given.text("nodepool-label-key"),
        knative_gangs=given.truth("knative-gang-schedule"),
        legacy_groups=given.truth("search-legacy-pg"),
        karta_fallback=given.truth("generic-karta-fallback"),
        defaults_namespace=given.text("default-priorities-configmap-namespace"),
        defaults_name=given.text("default-priorities-configmap-name"),
        namespace_labels=given.mapping("namespace-label-selector"),
        pod_labels=given.mapping("pod-label-selector"),
        link_delay_seconds=_LINK_DELAY if _binds_at_once(given) else 0.0,
        keeps_groups=given.text("pod-groups") == "needed" and _binds_at_once(given) and _counts(given),
    )
    # KAI-Scheduler's default suits a blocking client. Here a pending reconcile is an idle task, and the request window
    # limits what is sent.
    is_given = "max-concurrent-reconciles" in given.named
    options = QueueOptions(concurrency=max(1, given.whole("max-concurrent-reconciles")) if is_given else _MOST_LOOKS)

    async def work(cluster: Cluster) -> None:
        await group_pods(cluster, settings, options=options, observe=observe, first_pass=first_pass)

    role = Role(name=PODGROUPER, watched=(*WATCHED, Namespace), work=work)
    return role, first_pass.ended if settings.keeps_groups else None


def _binds_at_once(given: Given) -> bool:
    """Return whether this process groups pods and binds them directly: the binding then carries the group link."""
    roles = set(given.roles or TOGETHER)
    is_alone = not given.text("partition-label-value")
    is_direct = given.truth("hand-over") and given.text("bind-requests") == "needed"
    return {SCHEDULER, BINDER, PODGROUPER} <= roles and is_alone and is_direct


def _counts(given: Given) -> bool:
    """Return whether this process also counts what groups and queues hold, so that no other must see each group."""
    return {POD_GROUPS, QUEUES} <= set(given.roles or TOGETHER)


def _pod_groups(given: Given, observe: Observe) -> Role:
    from kai.roles.controllers import runtime_service
    from kai.roles.controllers.podgroup_service import WATCHED, PodGroupController

    scheduler_name = given.text("scheduler-name")

    async def work(cluster: Cluster) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime_service.RuntimeLimits(cluster, observe=observe).run)
            await PodGroupController(cluster, scheduler_name, observe=observe).run()

    return Role(name=POD_GROUPS, watched=tuple(dict.fromkeys((*WATCHED, *runtime_service.WATCHED))), work=work)


def _queues(given: Given, observe: Observe) -> Role:
    from kai.roles.controllers.queue_service import WATCHED, QueueController

    del given

    async def work(cluster: Cluster) -> None:
        await QueueController(cluster, observe=observe).run()

    return Role(name=QUEUES, watched=WATCHED, work=work)


def _scale(given: Given, observe: Observe) -> Role:
    from kai.roles.controllers.node_scale import ScaleSettings
    from kai.roles.controllers.node_scale_service import WATCHED, NodeScaleAdjuster

    settings = ScaleSettings(
        scheduler_name=given.text("scheduler-name"),
        namespace=given.text("scale-adjust-namespace"),
        image=given.text("scaling-pod-image"),
        app_label=given.text("scaling-pod-app-label"),
        service_account=given.text("scaling-pod-service-account"),
        gpu_memory_to_fraction_ratio=given.number("gpu-memory-to-fraction-ratio"),
    )

    async def work(cluster: Cluster) -> None:
        chosen = settings
        if not settings.image:
            chosen = attrs.evolve(settings, image=await own_image(cluster, os.environ), args=END_AT_ONCE)
        await NodeScaleAdjuster(cluster, chosen, observe=observe).run()

    return Role(name=SCALE, watched=WATCHED, work=work)
