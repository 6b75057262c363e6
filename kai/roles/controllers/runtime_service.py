"""The loop that keeps the limits of run times: one look at a group whenever it, its pods or its queues changed.

A look at a group without a limit costs a few look-ups and writes nothing. A group that runs under a limit is looked at
every `PERIOD` and at the instants that the limit sets (`kai.roles.controllers.runtime_limits`); each look writes the
status of the group once at most. When a group has ended, its Job is ended first, so that it does not make the pods
again, and the pods are evicted after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import structlog

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions.binding import group_of
from kai.api.conventions.runtime_limits import bound, is_limited, queue_chain
from kai.api.kinds import ApiObject, Key, key_of, title
from kai.api.kubernetes.meta import Job
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Get, Patch, Reason, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup, PodGroupStatus
from kai.api.scheduling.queue import Queue
from kai.cluster.port import Change, Cluster
from kai.cluster.requests import Evict
from kai.cluster.signals import Observe, unobserved
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers, ended_by
from kai.roles.controllers.holdings import MEMBERS
from kai.roles.controllers.runtime_limits import PERIOD, Ending, Write, deadline_for, next_step, sight_of

if TYPE_CHECKING:
    from collections.abc import Iterable

WATCHED: Final[tuple[type[ApiObject], ...]] = (Pod, PodGroup, Queue)
"""The kinds that the loop watches."""
OPTIONS: Final = QueueOptions(gather=0.1, first_pause=1.0, longest_pause=PERIOD)


@attrs.define
class RuntimeLimits:
    """Ends pod groups at the limits of their run time."""

    cluster: Cluster
    observe: Observe = unobserved
    _last_running: dict[Key, float] = attrs.field(factory=dict)
    """When a pod of each limited group was last seen to run."""
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._workers = Workers.of(self.cluster, "runtime-limits", self._look, OPTIONS, self.observe)

    async def run(self) -> None:
        """Keep limits until cancelled."""
        await self.cluster.store.synced()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._workers.run)
            await self._workers.follow(self.cluster.store, WATCHED, self._concerned)

    def _concerned(self, batch: Iterable[Change[Any]]) -> Iterable[Key]:
        """Return the groups that changes may affect, each once, in the order of the changes."""
        found: dict[Key, None] = {}
        for change in batch:
            if isinstance(change.present, Queue):
                if _moves_limits(change):
                    found |= {key_of(group): None for group in self.cluster.store.all(PodGroup)}
            elif isinstance(change.present, PodGroup):
                if _concerns_limit(change):
                    found[key_of(change.present)] = None
            elif change.before is None or change.after is None or change.before.status != change.after.status:
                group = group_of(change.present)
                if group:
                    found[change.present.metadata.namespace, group] = None
        return found

    async def _look(self, look: Look[Key]) -> Ended:
        namespace, name = look.key
        store, now = self.cluster.store, self.cluster.clock.now()
        group = store.get(PodGroup, name, namespace)
        chain = () if group is None else queue_chain(group.spec.queue, lambda queue: store.get(Queue, queue))
        if group is None or not group.metadata.uid or not is_limited(group, chain):
            self._last_running.pop(look.key, None)
            if group is not None and store.is_kept(PodGroup, look.key):
                self._call_for(group, chain)
            return DONE
        sight = sight_of(store.find(MEMBERS, f"{namespace}/{name}"), now, self._last_running.get(look.key))
        if sight.running:
            self._last_running[look.key] = now
        step = next_step(group, bound(group, chain), sight)
        match step.action:
            case Write():
                return await self._write(group, step.action)
            case Ending():
                return await self._end(group, step.action)
        return Ended(after=step.after)

    def _call_for(self, group: PodGroup, chain: tuple[Queue, ...]) -> None:
        """Have the pod grouper write a limited group that only this process has: it writes one whose clock runs."""
        if group.status.running_since is None and is_limited(group, chain):
            status = attrs.evolve(group.status, running_since=self.cluster.clock.now())
            self.cluster.store.keep(attrs.evolve(group, status=status))

    async def _write(self, group: PodGroup, write: Write) -> Ended:
        reply = await self.cluster.api.perform(
            Patch(ref=Ref.to(group), patch=status_patch(group, write), subresource="status")
        )
        if isinstance(reply, Refusal):
            return ended_by(reply, title(group))
        if write.event:
            structlog.get_logger().info("time limit", group="/".join(key_of(group)), why=write.event)
            # After the write, since that may be refused. An event that is lost costs a message; one for a write that
            # failed would be untrue.
            await self.cluster.api.perform(_event(group, write.event))
        return DONE  # the change of the group leads to the next look

    async def _end(self, group: PodGroup, ending: Ending) -> Ended:
        """Have the owner give up, then evict the pods; a failure is tried again."""
        if ending.fails:
            reply = await self._fail_owner(group)
            if isinstance(reply, Refusal):
                return ended_by(reply, title(group))
        held_up: Refusal | None = None
        for pod in ending.pods:
            reply = await self.cluster.api.perform(Evict(ref=Ref.to(pod), uid=pod.metadata.uid))
            if not isinstance(reply, Refusal):
                await self.cluster.api.perform(_event(pod, ending.message))
            elif reply.reason is not Reason.NOT_FOUND:
                held_up = reply  # a disruption budget may allow the others
        if held_up is not None:
            return Ended(failure=held_up.why, after=held_up.retry_after, unwritten=title(group))
        return Ended(after=PERIOD) if ending.pods else DONE

    async def _fail_owner(self, group: PodGroup) -> object:
        """Set the deadline of a Job to now; an owner of another kind is left alone, since its group may not run."""
        owner = next((each for each in group.metadata.owner_references if each.kind == "Job"), None)
        if owner is None or owner.api_version != "batch/v1":
            return None
        ref = Ref(Job, owner.name, group.metadata.namespace)
        job = await self.cluster.api.perform(Get(ref=ref, fresh=True))
        if not isinstance(job, Job):
            return None if job.reason is Reason.NOT_FOUND else job
        deadline = deadline_for(job, self.cluster.clock.now())
        if deadline is None or job.metadata.uid != owner.uid:
            return None
        body = {"metadata": {"uid": owner.uid}, "spec": {"activeDeadlineSeconds": deadline}}
        return await self.cluster.api.perform(Patch(ref=ref, patch=body))


def status_patch(group: PodGroup, write: Write) -> dict[str, Any]:
    """Return the merge patch of a group's status. It replaces the list of conditions, so it names the version."""
    wanted = PodGroupStatus(running_since=write.running_since, consumed_runtime=write.consumed or None)
    clock = unstructure(wanted)
    status: dict[str, Any] = {key: clock.get(key) for key in ("runningSince", "consumedRuntime")}
    metadata = {"uid": group.metadata.uid}
    if write.condition is not None:
        others = [each for each in group.status.conditions if each.type != names.TIME_LIMIT]
        status["conditions"] = [unstructure(each) for each in (*others, write.condition)]
        metadata["resourceVersion"] = group.metadata.resource_version
    return {"metadata": metadata, "status": status}


def _event(obj: PodGroup | Pod, message: str) -> Emit:
    return Emit(
        ref=Ref.to(obj), type="Warning", reason=names.TIME_LIMIT, message=message, uid=obj.metadata.uid, is_counted=True
    )


def _moves_limits(change: Change[Queue]) -> bool:
    """Return whether a change of a queue may move a limit; statuses of queues change all the time."""
    sides = [None if each is None else _limits_of(each) for each in (change.before, change.after)]
    return sides[0] != sides[1] and sides != [None, (None, None, "")]


def _limits_of(queue: Queue) -> tuple[float | None, float | None, str]:
    return queue.spec.max_runtime, queue.spec.default_runtime, queue.spec.parent_queue


def _concerns_limit(change: Change[PodGroup]) -> bool:
    before, after = change.before, change.after
    return (
        before is None
        or after is None
        or before.metadata.uid != after.metadata.uid
        or before.spec != after.spec
        or before.metadata.annotations != after.metadata.annotations
        or before.metadata.labels != after.metadata.labels
        or _clock_of(before) != _clock_of(after)
    )


def _clock_of(group: PodGroup) -> object:
    return group.status.running_since, group.status.consumed_runtime, group.status.conditions
