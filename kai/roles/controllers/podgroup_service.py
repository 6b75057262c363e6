"""The loop of the pod-group controller: one look at a group whenever a relevant pod, node, claim or class changed.

Events are debounced, so that a gang that starts costs a write or two of its group and not one for each pod. A group
that only this process has is never written, so its count waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog

from kai.api import names
from kai.api.conventions.binding import group_of, share_annotations
from kai.api.conventions.pod_amounts import Surroundings, is_placed
from kai.api.kinds import ApiObject, Key, key_of, title
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Patch, Ref
from kai.api.scheduling.pod_group import PodGroup, PodGroupResources
from kai.basics.errors import InputError
from kai.cluster.port import Change, Cluster, Index
from kai.cluster.signals import Observe, unobserved
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers, ended_by
from kai.roles.controllers.holdings import MEMBERS, pod_group_resources, status_patch

if TYPE_CHECKING:
    from collections.abc import Iterable

WATCHED: Final[tuple[type[ApiObject], ...]] = (Pod, PodGroup, Node, PriorityClass, ResourceClaim)
"""The kinds that the pod-group controller watches."""
OPTIONS: Final = QueueOptions(gather=1.0)
FIRST_COUNT: Final = 5.0
"""The minimum age, in seconds, at which a group without running pods is counted."""


def _claimed_in(pod: Pod) -> Iterable[str]:
    return (pod.metadata.namespace,) if pod.spec.resource_claims else ()


def _shares_by_memory(pod: Pod) -> Iterable[str]:
    return (
        (pod.spec.node_name,)
        if pod.spec.node_name and names.GPU_MEMORY in share_annotations(pod, pod.spec.scheduler_name)
        else ()
    )


CLAIMANTS: Final = Index(Pod, "podgroup-controller: claims", _claimed_in)
SHARERS: Final = Index(Pod, "podgroup-controller: memory of a node", _shares_by_memory)


@attrs.define
class PodGroupController:
    """Maintains the statuses of pod groups."""

    cluster: Cluster
    scheduler_name: str = names.SCHEDULER_NAME
    observe: Observe = unobserved
    _said: dict[Key, str] = attrs.field(factory=dict)
    """Why each group cannot be counted: logged once, not at each change."""
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._workers = Workers.of(self.cluster, "podgroup-controller", self._look, OPTIONS, self.observe)

    async def run(self) -> None:
        """Maintain statuses until cancelled."""
        await self.cluster.store.synced()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._workers.run)
            await self._workers.follow(self.cluster.store, WATCHED, self._concerned)

    # --- Which groups to look at ---------------------------------------------------------------------------------

    def _concerned(self, batch: Iterable[Change[Any]]) -> Iterable[Key]:
        """Return the groups that need a look because of changes, each once, in the order of the changes."""
        found: dict[Key, None] = {}
        several: dict[Key, None] = {}
        for change in batch:
            present = change.present
            if isinstance(present, PodGroup):
                if change.after is not None and _counts(change):
                    found[key_of(present)] = None
            elif isinstance(present, Pod):
                found |= _groups_of(pod for pod in (change.before, change.after) if pod is not None)
            elif isinstance(present, ResourceClaim):
                several |= _groups_of(self.cluster.store.find(CLAIMANTS, present.metadata.namespace))
            elif isinstance(present, Node):
                # A share by memory is a part of the size of a GPU, which only a label of the node tells.
                if _relabelled(change):
                    several |= _groups_of(self.cluster.store.find(SHARERS, present.metadata.name))
            else:
                # A priority class: it decides whether groups may be preempted, and they name it or take it as the
                # default. These changes are rare.
                several |= {key_of(group): None for group in self.cluster.store.all(PodGroup)}
        # One change may concern tens of thousands of groups in ``several``: to count all here would block the loop.
        return several | {key: None for key in found if not self._count_kept(key)}

    def _count_kept(self, key: Key) -> bool:
        """Count a group that only this process has and that holds something; return False where it needs a look.

        A look of its own would cost more than the count.
        """
        store = self.cluster.store
        group = store.get(PodGroup, key[1], key[0]) if store.is_kept(PodGroup, key) else None
        members = () if group is None else store.find(MEMBERS, "/".join(key))
        if group is None or not any(map(is_placed, members)):
            return False
        try:
            self._show(group, pod_group_resources(group, members, self._surroundings()))
        except InputError:
            return False  # the look says why, and is repeated
        return True

    def _show(self, group: PodGroup, resources: PodGroupResources) -> None:
        """Show the resources of a group that only this process has: queues count what groups say."""
        if status_patch(group, resources) is not None:
            self.cluster.store.keep(attrs.evolve(group, status=attrs.evolve(group.status, resources_status=resources)))

    # --- One look ------------------------------------------------------------------------------------------------

    async def _look(self, look: Look[Key]) -> Ended:
        namespace, name = look.key
        store = self.cluster.store
        group = store.get(PodGroup, name, namespace)
        if group is None:
            self._said.pop(look.key, None)
        is_kept = store.is_kept(PodGroup, look.key)
        if group is None or not (group.metadata.uid or is_kept):
            return DONE  # a group that is about to be written is seen again as soon as it is
        members = store.find(MEMBERS, f"{namespace}/{name}")
        young = (group.metadata.creation_timestamp or 0.0) + FIRST_COUNT - self.cluster.clock.now()
        is_first = group.status.resources_status == PodGroupResources()
        if is_first and members and 0 < young <= FIRST_COUNT and not any(map(is_placed, members)):
            return Ended(after=young)  # its pods may be bound soon, and that is an event
        try:
            resources = pod_group_resources(group, members, self._surroundings())
        except InputError as error:
            if self._said.get(look.key) != str(error):
                self._said[look.key] = str(error)
                structlog.get_logger().warning("cannot be counted", group="/".join(look.key), why=str(error))
            return Ended(failure=str(error))
        self._said.pop(look.key, None)
        if is_kept:
            self._show(group, resources)
            return DONE
        patch = status_patch(group, resources)
        if patch is None:
            return DONE
        body = {**patch, "metadata": {"uid": group.metadata.uid}}
        reply = await self.cluster.api.perform(
            Patch(ref=Ref(PodGroup, name, namespace), patch=body, subresource="status")
        )
        return ended_by(reply, title(group))

    def _surroundings(self) -> Surroundings:
        store = self.cluster.store
        return Surroundings(
            node=lambda node: store.get(Node, node),
            claim=lambda place, claim: store.get(ResourceClaim, claim, place),
            priority_classes=store.all(PriorityClass),
            scheduler_name=self.scheduler_name,
            kubernetes=self.cluster.kubernetes(),
        )


def _groups_of(pods: Iterable[Pod]) -> dict[Key, None]:
    return {(pod.metadata.namespace, group): None for pod in pods if (group := group_of(pod))}


def _counts(change: Change[PodGroup]) -> bool:
    """Return whether a change affects the amounts of a group; its conditions, for one, change all the time."""
    before, after = change.before, change.after
    return (
        before is None
        or after is None
        or before.metadata.uid != after.metadata.uid
        or before.spec != after.spec
        or (before.status.resources_status != after.status.resources_status and not _is_own_count(after))
    )


def _is_own_count(group: PodGroup) -> bool:
    """Return whether this controller counted the group: the pod grouper shows unwritten groups without a count."""
    return not group.metadata.uid and group.status.resources_status != PodGroupResources()


def _relabelled(change: Change[Node]) -> bool:
    before, after = change.before, change.after
    return before is None or after is None or before.metadata.labels != after.metadata.labels
