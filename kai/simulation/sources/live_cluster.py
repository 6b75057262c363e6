"""A running cluster as a case: everything that the scheduler reads, listed once, with the rights of the user.

It makes no difference which scheduler the cluster has: pods, nodes, queues and pod groups are the same objects for kai
and for KAI-Scheduler. Nothing is written.
"""

import importlib.metadata
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs

from kai.api import names
from kai.api.cluster_objects import FIELD_OF, collect
from kai.api.kinds import ApiObject
from kai.cluster.clock import SystemClock
from kai.cluster.port import Clock
from kai.cluster.requesting.listing import Lister, Listing
from kai.cluster.transport.access import Access
from kai.cluster.transport.client import Client, user_agent
from kai.cluster.transport.contexts import Context
from kai.configuration.reading import Configuration, default_configuration
from kai.configuration.registry import Registry
from kai.errors import UnreachableError
from kai.intake import IntakeSettings
from kai.kubernetes_version import KubernetesVersion
from kai.simulation.cases.case import Case
from kai.simulation.cases.origin import Origin
from kai.simulation.sources.plugin_kinds import kinds_of
from kai.simulation.sources.unwritten import as_known

_COMPONENT = "cli"
_OPERATED = "kai.scheduler/v1"
_CONNECTIONS = 8


@attrs.frozen(kw_only=True)
class Installed:
    """The objects of a cluster that may hold the configuration of its scheduler, as they are written."""

    shards: tuple[Mapping[str, Any], ...] = ()
    configs: tuple[Mapping[str, Any], ...] = ()
    maps: tuple[Mapping[str, Any], ...] = ()
    """The config maps of the namespace that the scheduler runs in."""
    deployments: tuple[Mapping[str, Any], ...] = ()
    """What runs there: command lines of schedulers."""
    hidden: str = ""
    """The right without which some of them could not be seen."""
    flags_hidden: str = ""
    """The right without which the command lines could not be seen."""


def read_installed(access: Access, clock: Clock | None = None) -> Installed:
    """Return where a cluster may say how its scheduler decides.

    Raises: UnreachableError, or ConfigError for credentials that cannot be used.
    """
    access.check()
    asked = {
        "shards": (_OPERATED, "schedulingshards", ""),
        "configs": (_OPERATED, "configs", ""),
        "maps": ("v1", "configmaps", names.KAI_NAMESPACE),
        "deployments": ("apps/v1", "deployments", names.KAI_NAMESPACE),
    }
    found: dict[str, Any] = {}

    async def ask() -> None:
        async with lister_of(access, SystemClock() if clock is None else clock) as lister:
            for field, place in asked.items():
                try:
                    found[field] = tuple(await lister.list_manifests(*place))
                except UnreachableError as error:
                    if not error.missing:
                        raise
                    found["flags_hidden" if field == "deployments" else "hidden"] = error.missing

    anyio.run(ask)
    return Installed(**found)


def read_cluster(
    access: Access,
    registry: Registry | None = None,
    clock: Clock | None = None,
    configuration: Configuration | None = None,
) -> Case:
    """Return the cluster as it is now, decided on once, under ``configuration``, or that which kai has by default.

    Raises: UnreachableError, or ConfigError for credentials that cannot be used.
    """
    access.check()
    configuration = default_configuration() if configuration is None else configuration
    plugins = [entry.name for entry in configuration.plugins]
    extra = kinds_of(Registry.installed() if registry is None else registry, plugins)
    watch = SystemClock() if clock is None else clock
    chosen = access.chosen
    title = chosen.name or "this cluster"
    found, version = anyio.run(_list_for_a_case, access, (*FIELD_OF, *extra), watch)
    return Case(
        name=title,
        title=title,
        objects=as_known(collect(found.objects), configuration.parameters.scheduler_name),
        now=watch.now(),
        configuration=configuration,
        settings=IntakeSettings(kubernetes=version, scheduler_name=configuration.parameters.scheduler_name),
        notes=tuple(found.notes),
        origin=Origin(type="live", cluster=title, namespace=chosen.namespace or "default", revision=found.revision),
    )


def list_some(access: Access, cls: type[ApiObject], namespace: str, clock: Clock) -> Listing:
    """Return the objects of one kind in one namespace, or in all.

    Raises: as ``read_cluster``.
    """
    return anyio.run(_list, access, (cls,), clock, namespace)


def list_templates(access: Access, kinds: Sequence[tuple[str, str, str]]) -> tuple[Mapping[str, Any], ...]:
    """Return objects as they are written, by API version, kind and plural; none of a kind that the user may not list.

    Raises: UnreachableError, or ConfigError for credentials that cannot be used.
    """
    access.check()

    async def ask() -> tuple[Mapping[str, Any], ...]:
        found: list[Mapping[str, Any]] = []
        async with lister_of(access, SystemClock()) as lister:
            for version, kind, plural in kinds:
                head = {"apiVersion": version, "kind": kind}
                try:
                    found += [{**head, **each} for each in await lister.list_manifests(version, plural)]
                except UnreachableError as error:
                    if not error.missing:
                        raise
        return tuple(found)

    return anyio.run(ask)


def list_events(access: Access, reason: str, namespace: str) -> list[Mapping[str, Any]]:
    """Return the events with this reason in one namespace, or in all, as they are written.

    Raises: as ``read_cluster``.
    """
    access.check()

    async def ask() -> list[Mapping[str, Any]]:
        async with lister_of(access, SystemClock()) as lister:
            return await lister.list_events(reason, namespace)

    return anyio.run(ask)


def list_events_about(access: Access, namespace: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the events about the objects of these names in one namespace, as they are written.

    Raises: as ``read_cluster``.
    """
    access.check()

    async def ask() -> list[Mapping[str, Any]]:
        async with lister_of(access, SystemClock()) as lister:
            chosen = [(("fieldSelector", f"involvedObject.name={name}"),) for name in names]
            return [each for query in chosen for each in await lister.list_manifests("v1", "events", namespace, query)]

    return anyio.run(ask)


def list_names(access: Access, cls: type[ApiObject], seconds: float) -> list[str]:
    """Return the names of the objects of one kind; none if the cluster does not answer in time.

    Raises: as ``read_cluster``.
    """
    access.check()

    async def ask() -> Listing:
        with anyio.move_on_after(seconds):
            return await _list(access, (cls,), SystemClock())
        return Listing()

    return [each.metadata.name for each in anyio.run(ask).objects]


async def _list_for_a_case(
    access: Access, kinds: tuple[type[ApiObject], ...], clock: Clock
) -> tuple[Listing, KubernetesVersion]:
    async with lister_of(access, clock) as lister:
        return await lister.list_all(kinds), await lister.version()


async def _list(access: Access, kinds: tuple[type[ApiObject], ...], clock: Clock, namespace: str = "") -> Listing:
    async with lister_of(access, clock) as lister:
        return await lister.list_all(kinds, namespace)


@asynccontextmanager
async def lister_of(access: Access, clock: Clock) -> AsyncIterator[Lister]:
    """Yield what lists the objects of a cluster, as the user of ``access``."""
    account = await access.account(clock)
    agent = user_agent(_COMPONENT, importlib.metadata.version("kai-scheduler"))
    async with Client(account, user_agent=agent, connections=_CONNECTIONS) as client:
        yield Lister(transport=client, clock=clock, server=account.credentials.server, cluster=_called(access.chosen))


def _called(context: Context) -> str:
    return f'context "{context.name}"' if context.name else "this pod's account"
