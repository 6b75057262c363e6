"""The pod grouper's loop: watches pods, decides on each with `group_pod`, writes the group, then the pod.

A pod is looked at if it has no group, if its group is gone, waits, or lost another pod, or if a field changed that a
grouper may read. A pod that is grouped and bound when the process starts is skipped until it changes.

A decision reads kinds that the store has from there, others from the API server. Pods of one workload come in crowds,
so a read is shared by all pods that asked for a look before it began: a gang costs one read of its owner, not one for
each member. A group is written by one task at a time, and a task that had to wait decides again.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog

from kai.api import names
from kai.api.codec.structuring import decode_as, structure_as, unstructure
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Reason, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.parsing import mapping_of, mappings_of
from kai.cluster.port import Change, Cluster
from kai.cluster.requests import Apply, NamespaceEnding
from kai.cluster.signals import Observe, unobserved
from kai.cluster.threads import pieces_of
from kai.cluster.work import DEFAULT_OPTIONS, DONE, Ended, KeyRing, Look, QueueOptions, Workers
from kai.roles.podgrouper.decide import Grouping, GroupWrite, Verb, group_pod
from kai.roles.podgrouper.grouper import Groupers, Settings, load_groupers
from kai.roles.podgrouper.keeping import FirstPass, KeptGroups
from kai.roles.podgrouper.links import ShownLinks, WriteBehind, traits_of
from kai.roles.podgrouper.lookup import Absent, Answers, Get, Why
from kai.roles.podgrouper.owner_reading import GROUPS, Fetcher, Rounds, StoreLookup
from kai.roles.podgrouper.resource import Kind, Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

MANAGER: Final = "kai-podgrouper"
WARNING: Final = "PodGrouperWarning"
_SAY_AGAIN: Final = 600.0
# The longest note that the API of events accepts.
_LONGEST_MESSAGE: Final = 1024
_REHEARSED: Final = b"""
{"metadata": {"name": "rehearsed", "namespace": "default", "uid": "rehearsed"}, "status": {"phase": "Pending"},
 "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
"""


@attrs.define
class PodGrouper:
    """The pod grouper of one process."""

    cluster: Cluster
    settings: Settings
    groupers: Groupers
    options: QueueOptions = DEFAULT_OPTIONS
    observe: Observe = unobserved
    first_pass: FirstPass = attrs.field(factory=FirstPass)
    """Tells the scheduler of this process when the groups that only this process has are shown."""
    _settled: dict[Key, int] = attrs.field(factory=dict)
    """The traits of each pod at the time when it needed no further write."""
    _asked: dict[Key, int] = attrs.field(factory=dict)
    """The moment when a look at each pod was last requested; a repetition after a failure does not count."""
    _said: dict[Key, tuple[str, float]] = attrs.field(factory=dict)
    """The last event on each pod that cannot be grouped, and its time."""
    _written: KeyRing = attrs.field(factory=KeyRing)
    """The groups that are being written."""
    _manifests: dict[Key, tuple[PodGroup, Manifest]] = attrs.field(factory=dict)
    _links: ShownLinks = attrs.field(init=False)
    _kept: KeptGroups = attrs.field(init=False)
    _fetcher: Fetcher = attrs.field(init=False)
    _write_behind: WriteBehind = attrs.field(init=False)
    _rounds: Rounds = attrs.field(init=False)
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Create the parts that depend on other fields."""
        self._links = ShownLinks(self.cluster.store, self.cluster.clock, self.settings.link_delay_seconds)
        self._kept = KeptGroups(self.cluster.store, self.settings.keeps_groups)
        self._fetcher = Fetcher(self.cluster.api, self.cluster.clock, lambda kind: not self.groupers.knows(kind))
        self._workers = Workers.of(self.cluster, "podgrouper", self._look, self.options, self.observe)
        self._write_behind = WriteBehind(self.cluster, MANAGER, self._again, self.observe)
        self._rounds = Rounds(self.cluster, self._want, self.observe)

    async def run(self) -> None:
        """Group pods until cancelled."""
        self._rehearse()
        store = self.cluster.store
        await store.synced()
        self.first_pass.begin(store.all(Pod) if self.settings.keeps_groups else (), self.settings.scheduler_name)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._workers.run)
                tasks.start_soon(self._write_behind.run)
                tasks.start_soon(self._rounds.run)
                with store.changes(Pod, PodGroup) as changes:
                    async for piece in pieces_of(changes):
                        self._take(piece)
        finally:
            self.first_pass.stop()
            self._kept.drop_all()

    def _rehearse(self) -> None:
        """Group a pod that does not exist, so that codecs are compiled now and not while a pod waits."""
        pod = unstructure(structure_as(Pod, decode_as(Pod, _REHEARSED)))
        pod["spec"]["schedulerName"] = self.settings.scheduler_name
        found = group_pod(pod, StoreLookup(self.cluster.store, Answers(), {}), self.settings, self.groupers)
        if isinstance(found, Grouping) and found.group is not None:
            written = json.dumps(found.group.apply_configuration()).encode()
            unstructure(structure_as(PodGroup, decode_as(PodGroup, written)))

    # --- Which pods to look at -----------------------------------------------------------------------------------

    def _take(self, batch: Iterable[Change[Any]]) -> None:
        for change in batch:
            if isinstance(change.present, Pod):
                self._take_pod(change)
            elif change.after is not None:
                self._take_written(change.after)
            else:
                # The group is gone; pods that still name it need a new one of that name.
                self._manifests.pop(key_of(change.present), None)
                for pod in self.cluster.store.find(GROUPS, "/".join(key_of(change.present))):
                    self._settled.pop(key_of(pod), None)
                    self._want(key_of(pod))

    def _take_written(self, group: PodGroup) -> None:
        """Request a look at the pod of a kept group that the API server has by now, or that it has to get."""
        is_due = group.metadata.uid or group.status.running_since is not None
        pod = self._kept.pod_of(key_of(group)) if is_due else None
        if pod is not None:
            self._want(pod)

    def _take_pod(self, change: Change[Pod]) -> None:
        pod, key = change.present, key_of(change.present)
        self._rounds.take(change)
        if change.after is None:
            self._settled.pop(key, None)
            self._said.pop(key, None)
            self._links.forget(key)
            self._kept.drop(key)
        elif pod.spec.scheduler_name != self.settings.scheduler_name:
            return
        elif change.before is None and self._is_settled(pod):
            self._settled[key] = traits_of(pod)
        elif self._settled.get(key) != traits_of(pod):
            self._want(key)
        elif pod.spec.node_name:
            self._links.bound(key)
            if self._lacks_link(pod):
                self._want(key)
        elif self._kept.is_needed(pod):
            self._want(key)

    def _want(self, key: Key) -> None:
        self._asked[key] = self._fetcher.moment()
        self._workers.want(key)

    def _again(self, key: Key) -> None:
        """Look at a pod again although it was settled."""
        self._settled.pop(key, None)
        self._links.forget(key)
        self._want(key)

    def _is_settled(self, pod: Pod) -> bool:
        """Return whether a pod that is seen for the first time was settled by an earlier process."""
        name = pod.metadata.annotations.get(names.POD_GROUP)
        if not name or not pod.spec.node_name:
            return False
        return self.cluster.store.get(PodGroup, name, pod.metadata.namespace) is not None

    def _lacks_link(self, pod: Pod) -> bool:
        """Return whether a pod was bound while its group was kept, and the group has been written since."""
        store, key = self.cluster.store, key_of(pod)
        group = pod.metadata.annotations.get(names.POD_GROUP)
        return (
            self.settings.keeps_groups
            and bool(group and pod.spec.node_name)
            and store.is_overlaid(Pod, key)
            and not store.is_assumed(Pod, key)
            and self._kept.write_of(pod) is None
        )

    # --- One look ------------------------------------------------------------------------------------------------

    async def _look(self, look: Look[Key]) -> Ended:
        try:
            return await self._look_at(look)
        finally:
            # However it ended: a pod that cannot be grouped must not hold up the first cycle of the term.
            self.first_pass.looked_at(look.key)

    async def _look_at(self, look: Look[Key]) -> Ended:
        namespace, name = look.key
        asked = self._asked.pop(look.key, None)
        since = self._fetcher.moment() if asked is None else asked
        pod = self.cluster.store.get(Pod, name, namespace)
        if pod is None:
            return DONE
        ended = await self._write_shown(pod)
        if ended is not None:
            return ended
        # A look without a request follows a rest. What was due then is done above, and the pod has not changed.
        if asked is None and self._settled.get(look.key) == traits_of(pod):
            return self._links.rest(look.key)
        manifest = unstructure(pod)
        grouping, answers = await self._decide(manifest, since, Answers())
        write = grouping.group or self._kept.write_of(pod)
        if write is not None and self._keeps(pod, write):
            return await self._settle(pod, grouping)
        if write is not None and self._kept.write_of(pod) is not None:
            return await self._write_kept(pod, write, is_due=True)
        if grouping.group is None or grouping.group.verb is Verb.NOTHING:
            return await self._settle(pod, grouping)
        return await self._write(pod, grouping, since, answers)

    async def _write_shown(self, pod: Pod) -> Ended | None:
        """Write the group or the link of a pod that are only shown, where it is time; None where it is not."""
        is_due = self._links.is_due(pod)
        kept = self._kept.write_of(pod)
        if kept is not None and (is_due or self._kept.is_needed(pod) or self._is_there(kept, written=True)):
            return await self._write_kept(pod, kept, is_due=is_due)
        return await self._write_link(pod) if is_due or self._lacks_link(pod) else None

    async def _write(self, pod: Pod, grouping: Grouping, since: int, answers: Answers) -> Ended:
        """Write the group of a pod, and then the pod."""
        if grouping.group is None:
            return await self._settle(pod, grouping)
        if self._may_come_later(pod, grouping, grouping.group) and self._write_behind.show(pod, grouping.group):
            return await self._settle(pod, grouping)
        manifest = unstructure(pod)
        async with self._writing(_path_of(grouping.group)) as waited:
            if waited:
                grouping, answers = await self._decide(manifest, since, answers)
            if grouping.group is not None and grouping.group.verb is Verb.CREATE:
                grouping = await self._decide_on_hidden(pod, manifest, since, answers, grouping)
            if grouping.group is not None and grouping.group.verb is not Verb.NOTHING:
                refusal = await self._write_group(grouping.group)
                if refusal is not None:
                    return await self._refused(pod, refusal)
        return await self._settle(pod, grouping)

    async def _decide(self, pod: Mapping[str, Any], since: int, answers: Answers) -> tuple[Grouping, Answers]:
        """Return the decision and the answers from the API server that it used."""
        while True:
            lookup = StoreLookup(self.cluster.store, answers, self._manifests)
            outcome = group_pod(pod, lookup, self.settings, self.groupers)
            if isinstance(outcome, Grouping):
                return outcome, answers
            answers = await self._fetcher.add(answers, outcome.read, since)

    async def _decide_on_hidden(
        self, pod: Pod, manifest: Mapping[str, Any], since: int, answers: Answers, grouping: Grouping
    ) -> Grouping:
        """Decide again if a group of that name exists after all: another client made it, and the store lags."""
        # A group whose owner is the pod itself has the pod's UID in its name, so it cannot predate the pod.
        if grouping.group is None or _owner(grouping.group) == pod.metadata.uid:
            return grouping
        namespace, name = _path_of(grouping.group)
        read = Get(Kind.of(names.POD_GROUP_VERSION, "PodGroup"), namespace, name)
        answers = await self._fetcher.add(answers, read, since)
        found = answers.get(read)
        if isinstance(found, Absent) and found.why is Why.NOT_FOUND:
            return grouping
        again, _ = await self._decide(manifest, since, answers)
        return again

    def _keeps(self, pod: Pod, write: GroupWrite) -> bool:
        """Return whether the group of a pod is only shown in the store; show it there."""
        current = self.cluster.store.get(Pod, pod.metadata.name, pod.metadata.namespace)
        if current is None or current.metadata.uid != pod.metadata.uid:
            return False  # the pod went meanwhile, and nothing would ever drop its group
        if not self._kept.may_keep(current, write, _owner(write)):
            return False
        known = self._kept.write_of(pod)
        is_shown = known is not None and (write is known or write.verb is Verb.NOTHING)
        return is_shown or self._kept.keep(current, write)

    async def _write_kept(self, pod: Pod, write: GroupWrite, *, is_due: bool) -> Ended:
        """Write a group that was kept, and then the link of its pod, unless a binding is about to write that."""
        key = key_of(pod)
        async with self._writing(_path_of(write)):
            if self._kept.write_of(pod) is None:
                return DONE  # the pod is gone, or another task wrote the group
            refusal = None if self._is_there(write, written=True) else await self._write_group(write)
            if refusal is not None and refusal.interrupts:
                return Ended(failure=refusal.why, after=refusal.retry_after)
            if refusal is not None:
                self._kept.drop(key)
                self._again(key)  # with the write first: it says on the pod why its group cannot be written
                return DONE
            self._kept.written(pod)
        current = self.cluster.store.get(Pod, key[1], key[0])
        if current is not None and current.metadata.uid == pod.metadata.uid and (is_due or self._lacks_link(current)):
            return await self._write_link(current)
        return self._links.rest(key)

    async def _write_group(self, write: GroupWrite) -> Refusal | None:
        namespace, name = _path_of(write)
        manifest = write.apply_configuration()
        ref = Ref(PodGroup, name, namespace)
        reply = await self.cluster.api.perform(Apply(ref=ref, manifest=manifest, manager=MANAGER))
        self._write_behind.note(namespace, refused=isinstance(reply, Refusal))
        self._kept.note(namespace, refused=isinstance(reply, Refusal))
        return reply if isinstance(reply, Refusal) else None

    async def _settle(self, pod: Pod, grouping: Grouping) -> Ended:
        """Write the pod, once its group is written, and remember that the pod is settled."""
        log = structlog.get_logger()
        key = key_of(pod)
        was_settled = self._settled.get(key) == traits_of(pod)
        if grouping.failure and was_settled:
            # The pod has its group. Only its owner had to be read, which may be going, and its pods with it.
            self._asked[key] = self._fetcher.moment()
            return Ended(failure=grouping.failure)
        if grouping.failure:
            return await self._failed(pod, grouping.failure)
        if grouping.group is not None:
            self._rounds.enter(pod, _path_of(grouping.group))
        for note in () if was_settled else grouping.notes:
            log.warning("passed over", pod="/".join(key), note=note)
        patch = grouping.pod_patch
        # Set before the write, so that the change event of the write requests no look.
        self._settled[key] = traits_of(pod, patch)
        if self._kept.write_of(pod) is not None:
            return self._settle_kept(pod, patch)
        if patch is not None and self._links.may_ride(pod, patch):
            current = self.cluster.store.get(Pod, key[1], key[0])
            if current is None or current.metadata.uid != pod.metadata.uid:
                # A later pod of this name would inherit the shown link, and its own look would find it settled.
                self._settled.pop(key, None)
                return DONE
            self._links.show(pod, patch)
            log.info("grouped", pod="/".join(key), changes=patch["metadata"])
            self._said.pop(key, None)
            return self._links.rest(key)
        if patch is not None:
            was_there = self._is_there(grouping.group)
            body = {**patch, "metadata": {**mapping_of(patch["metadata"]), "uid": pod.metadata.uid}}
            reply = await self.cluster.api.perform(Patch(ref=Ref(Pod, key[1], key[0]), patch=body))
            if isinstance(reply, Refusal):
                self._settled.pop(key, None)
                return await self._refused(pod, reply)
            log.info("grouped", pod="/".join(key), changes=patch["metadata"])
            if was_there and not self._is_there(grouping.group):
                # The group went before this pod named it, so its deletion requested no look at this pod.
                self._again(key)
        self._said.pop(key, None)
        # If the pod had gone before the entry was made, no event would remove it.
        if self.cluster.store.get(Pod, key[1], key[0]) is None:
            self._settled.pop(key, None)
        return self._links.rest(key)

    def _settle_kept(self, pod: Pod, patch: Mapping[str, Any] | None) -> Ended:
        """Return how the look at a pod ends whose group and link are only shown."""
        key = key_of(pod)
        if patch is not None:
            structlog.get_logger().debug("grouped", pod="/".join(key), changes=patch["metadata"], is_kept=True)
            if self._links.may_ride(pod, patch):
                self._links.await_binding(pod)
        self._said.pop(key, None)
        return self._links.rest(key)

    def _is_there(self, write: GroupWrite | None, *, written: bool = False) -> bool:
        """Return whether the store has the group; ``written``: whether the API server has it too."""
        if write is None:
            return False
        namespace, name = _path_of(write)
        found = self.cluster.store.get(PodGroup, name, namespace)
        return found is not None and (bool(found.metadata.uid) or not written)

    def _may_come_later(self, pod: Pod, grouping: Grouping, group: GroupWrite) -> bool:
        """Return whether the group may be written after the pod is decided on: no other pod is in it."""
        return (
            group.verb is Verb.CREATE
            and _owner(group) == pod.metadata.uid
            and grouping.pod_patch is not None
            and self._links.may_ride(pod, grouping.pod_patch)
            and self._write_behind.may_show(pod.metadata.namespace)
        )

    async def _write_link(self, pod: Pod) -> Ended:
        annotations = {names.POD_GROUP: pod.metadata.annotations.get(names.POD_GROUP)}
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        ref = Ref.to(pod)
        reply = await self.cluster.api.perform(Patch(ref=ref, patch=body))
        if isinstance(reply, Refusal):
            return await self._refused(pod, reply)
        self._links.forget(key_of(pod))
        return DONE

    async def _refused(self, pod: Pod, refusal: Refusal) -> Ended:
        """Retry at once where another writer was faster; report on the pod where only a person can help."""
        if isinstance(refusal, NamespaceEnding):
            return DONE  # the namespace is being deleted, and its pods with it
        if refusal.reason in {Reason.CONFLICT, Reason.NOT_FOUND}:
            current = self.cluster.store.get(Pod, pod.metadata.name, pod.metadata.namespace)
            return DONE if current is None else Ended(failure=refusal.why)
        if refusal.interrupts:
            # The API server could not be reached for an event either; every write here can be repeated.
            return Ended(failure=refusal.why, after=refusal.retry_after)
        return await self._failed(pod, refusal.message)

    async def _failed(self, pod: Pod, message: str) -> Ended:
        key, now = key_of(pod), self.cluster.clock.monotonic()
        said, when = self._said.get(key, ("", 0.0))
        if said != message or now - when > _SAY_AGAIN:
            structlog.get_logger().warning("not grouped", pod="/".join(key), why=message)
            event = Emit(
                ref=Ref(Pod, key[1], key[0]),
                type="Warning",
                reason=WARNING,
                message=message[:_LONGEST_MESSAGE],
                uid=pod.metadata.uid,
            )
            reply = await self.cluster.api.perform(event)
            # The entry of a pod that is gone by now would never be removed again.
            if not isinstance(reply, Refusal) and self.cluster.store.get(Pod, key[1], key[0]) is not None:
                self._said[key] = (message, now)
        return Ended(failure=message)

    @asynccontextmanager
    async def _writing(self, key: Key) -> AsyncIterator[bool]:
        """Hold a group; the value is whether another task held it before, so that it may have changed."""
        group = "/".join(key)
        waited = self._written.is_held(group)
        await self._written.hold(group)
        try:
            yield waited
        finally:
            self._written.free(group)


async def group_pods(
    cluster: Cluster,
    settings: Settings,
    *,
    options: QueueOptions = DEFAULT_OPTIONS,
    observe: Observe = unobserved,
    first_pass: FirstPass | None = None,
) -> None:
    """Group the pods of an open cluster, until cancelled.

    Raises: ConfigError or PluginError if the installed groupers cannot be used.
    """
    # Finding entry points reads folders and imports modules, which would block the event loop.
    groupers = await cluster.cpu.run(load_groupers)
    first_pass = FirstPass() if first_pass is None else first_pass
    await PodGrouper(cluster, settings, groupers, options, observe, first_pass).run()


def _path_of(write: GroupWrite) -> Key:
    metadata = mapping_of(write.manifest, "metadata")
    return str(metadata["namespace"]), str(metadata["name"])


def _owner(write: GroupWrite) -> str:
    references = mappings_of(write.manifest, "metadata", "ownerReferences")
    return str(references[0].get("uid", "")) if references else ""
