"""A running cluster as a case: everything that the scheduler reads, listed once, with the permissions of the user.

The scheduler of the cluster makes no difference: pods, nodes, queues and pod groups are the same objects for kai and
for KAI-Scheduler. Nothing is written.

A running scheduler knows two things about pods that a reader of the cluster has to infer: groups, and paused binds. The
annotation with the group of a pod is written when the pod is bound, or about ten seconds after its creation
(`kai.roles.podgrouper.links`); until then the owners of pod and group connect them. The group of a pod without an owner
may be in the memory of the scheduler only (`kai.roles.podgrouper.keeping`); it is derived from the pod by the same
rule. A pod whose bind was refused is left out of cycles until the next try (`kai.roles.scheduler.feedback.refusals`);
its conditions record that.
"""

import importlib.metadata
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import attrs

from kai.answers.cases.case import Case
from kai.answers.cases.files import kinds_of
from kai.answers.cases.origin import Origin
from kai.api import names
from kai.api.cluster_objects import FIELD_OF, ClusterObjects, collect
from kai.api.conventions.binding import at_rest, bind_refusal
from kai.api.kinds import ApiObject
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.errors import UnreachableError
from kai.basics.kubernetes_version import KubernetesVersion
from kai.cluster.clock import SystemClock
from kai.cluster.port import Clock
from kai.cluster.requesting.listing import Lister, Listing
from kai.cluster.transport.access import Access
from kai.cluster.transport.client import Client, user_agent
from kai.cluster.transport.kubeconfig import Context
from kai.deciding.configuration.profile_reading import Configuration, default_configuration
from kai.deciding.configuration.registry import Registry
from kai.intake import IntakeSettings

_NONE: Final = ""


def as_known(objects: ClusterObjects, scheduler: str = names.SCHEDULER_NAME) -> ClusterObjects:
    """Return a cluster as its scheduler sees it: pods with their groups, and pods whose refused binds are paused.

    Holds: returns the same value where objects are explicit; only pods without a node or without an owner are changed.
    Cost: one pass over the pods, and over the groups if a pod names none.
    """
    waiting = [(row, pod) for row, pod in enumerate(objects.pods) if _waits(pod, scheduler)]
    bare = [(row, pod) for row, pod in enumerate(objects.pods) if _is_unlinked(pod, scheduler)]
    groups = _Owned(objects.pod_groups) if bare else None
    changed: dict[int, Pod] = {}
    for row, pod in bare:
        if groups is not None and (group := groups.of(pod)):
            changed[row] = _linked(pod, group)
    made = _kept(objects, {row: pod for row, pod in bare if row not in changed}, scheduler)
    changed |= {row: _linked(objects.pods[row], group.metadata.name) for row, group in made.items()}
    # After the groups: a pod at rest is gated in its copy, and that copy must have its link as well.
    for row, pod in waiting:
        if text := bind_refusal(pod):
            changed[row] = at_rest(changed.get(row, pod), text)
    if not changed:
        return objects
    pods = tuple(changed.get(row, pod) for row, pod in enumerate(objects.pods))
    return attrs.evolve(objects, pods=pods, pod_groups=(*objects.pod_groups, *made.values()))


def _is_unlinked(pod: Pod, scheduler: str) -> bool:
    """Return whether a pod waits, or runs without an owner, and names no group."""
    if names.POD_GROUP in pod.metadata.annotations or pod.spec.scheduler_name != scheduler:
        return False
    # A bound pod with an owner had its link written with the binding. One without an owner may have a group that is
    # kept in memory, without any link.
    return _waits(pod, scheduler) or (bool(pod.spec.node_name) and not pod.metadata.owner_references)


def _kept(objects: ClusterObjects, bare: Mapping[int, Pod], scheduler: str) -> dict[int, PodGroup]:
    """Return the groups that the scheduler has only in memory, by the row of their pod."""
    alone = {row: pod for row, pod in bare.items() if not pod.metadata.owner_references}
    if not alone:
        return {}
    from kai.manifests.grouping import groups_of_bare_pods  # only where needed: a snapshot needs no rules of grouping

    rows = {id(pod): row for row, pod in alone.items()}
    found = groups_of_bare_pods(alone.values(), objects.priority_classes, objects.pod_groups, scheduler)
    return {rows[id(pod)]: group for pod, group in found}


def _waits(pod: Pod, scheduler: str) -> bool:
    return (
        not pod.spec.node_name
        and pod.spec.scheduler_name == scheduler
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ENDED
    )


def _linked(pod: Pod, group: str) -> Pod:
    annotations = {**pod.metadata.annotations, names.POD_GROUP: group}
    return attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, annotations=annotations))


class _Owned:
    """Groups by their owners."""

    def __init__(self, groups: Sequence[PodGroup]) -> None:
        self._names: dict[tuple[str, str], str] = {}
        for key, name in _owners(groups):
            # An owner with several groups, such as one for each of its pods, does not determine the group of a pod.
            self._names[key] = _NONE if key in self._names else name

    def of(self, pod: Pod) -> str:
        """Return the group that the pod or its owner owns; "" where there is none or several."""
        metadata = pod.metadata
        own: Mapping[tuple[str, str], str] = self._names
        uids = (metadata.uid, *(each.uid for each in metadata.owner_references))
        return next((own[key] for uid in uids if own.get(key := (metadata.namespace, uid))), "")


def _owners(groups: Sequence[PodGroup]) -> Iterator[tuple[tuple[str, str], str]]:
    for group in groups:
        for owner in group.metadata.owner_references:
            if owner.uid:
                yield (group.metadata.namespace, owner.uid), group.metadata.name


_COMPONENT = "cli"
_OPERATED = "kai.scheduler/v1"
_CONNECTIONS = 8


@attrs.frozen(kw_only=True)
class Installed:
    """Manifests of a cluster that may contain the configuration of its scheduler."""

    shards: tuple[Mapping[str, Any], ...] = ()
    configs: tuple[Mapping[str, Any], ...] = ()
    maps: tuple[Mapping[str, Any], ...] = ()
    """The config maps in the namespace of the scheduler."""
    deployments: tuple[Mapping[str, Any], ...] = ()
    """The deployments there, for the command lines of schedulers."""
    hidden: str = ""
    """The missing permission where some of them could not be read."""
    flags_hidden: str = ""
    """The missing permission where the command lines could not be read."""


def read_installed(access: Access, clock: Clock | None = None) -> Installed:
    """Return the objects of a cluster that may configure its scheduler.

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
    """Return the cluster as it is now, for one cycle under ``configuration``, or under kai's default.

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
        # The clock of this machine, as no object says what time it is in
        # the cluster; deadlines shift by the difference.
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
    """Return manifests by API version, kind and plural; none of a kind that the user may not list.

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
    """Return the manifests of the events with this reason in one namespace, or in all.

    Raises: as ``read_cluster``.
    """
    access.check()

    async def ask() -> list[Mapping[str, Any]]:
        async with lister_of(access, SystemClock()) as lister:
            return await lister.list_events(reason, namespace)

    return anyio.run(ask)


def list_events_about(access: Access, namespace: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the manifests of the events about the objects with these names in one namespace.

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
        # For completion in a shell, where a late answer is worse than none.
        with anyio.move_on_after(seconds):
            return await _list(access, (cls,), SystemClock())
        return Listing()

    return [each.metadata.name for each in anyio.run(ask).objects]


async def _list_for_a_case(
    access: Access, kinds: tuple[type[ApiObject], ...], clock: Clock
) -> tuple[Listing, KubernetesVersion]:
    async with lister_of(access, clock) as lister:
        # One client for both: credentials of a plugin, and the TLS handshake, cost more than the request.
        return await lister.list_all(kinds), await lister.version()


async def _list(access: Access, kinds: tuple[type[ApiObject], ...], clock: Clock, namespace: str = "") -> Listing:
    async with lister_of(access, clock) as lister:
        return await lister.list_all(kinds, namespace)


@asynccontextmanager
async def lister_of(access: Access, clock: Clock) -> AsyncIterator[Lister]:
    """Yield a lister for the objects of a cluster, with the credentials of ``access``."""
    account = await access.account(clock)
    agent = user_agent(_COMPONENT, importlib.metadata.version("kai-scheduler"))
    async with Client(account, user_agent=agent, connections=_CONNECTIONS) as client:
        yield Lister(transport=client, clock=clock, server=account.credentials.server, cluster=_called(access.chosen))


def _called(context: Context) -> str:
    return f'context "{context.name}"' if context.name else "this pod's account"
