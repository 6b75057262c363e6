"""The loop of the node-scale adjuster: one pass, never two at once, whenever a pod or its bind request changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from kai.api import names
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Create, Delete, Get, Patch, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Change, Cluster, Index
from kai.cluster.signals import Observe, unobserved, warn
from kai.cluster.work import Ended, Look, QueueOptions, Workers
from kai.roles.controllers.node_scale import (
    UNSCHEDULABLE_STATUS,
    ScaleSettings,
    ScaleState,
    adjust,
    is_relevant,
    stands_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.api.kinds import ApiObject

WATCHED: Final[tuple[type[ApiObject], ...]] = (Pod, BindRequest)
"""The kinds that the node-scale adjuster watches."""
# One pass at a time: each is given the state that the one before returned.
OPTIONS: Final = QueueOptions(concurrency=1, gather=1.0)
_EVERYTHING: Final = "everything"


def _waits(pod: Pod) -> Iterable[str]:
    annotations = pod.metadata.annotations
    shares = annotations.get(names.GPU_FRACTION) or annotations.get(names.GPU_MEMORY)
    return (_EVERYTHING,) if shares and not pod.spec.node_name else ()


WAITING: Final = Index(Pod, "node-scale-adjuster: waiting", _waits)
"""The pods without a node that share GPUs: they are few, while a scan would visit tens of thousands of pods."""


@attrs.define
class NodeScaleAdjuster:
    """Maintains scaling pods for the pods that share GPUs and find no place."""

    cluster: Cluster
    settings: ScaleSettings
    observe: Observe = unobserved
    _state: ScaleState = attrs.field(factory=ScaleState)
    _scaling_pods: Index[Pod] = attrs.field(init=False)
    _workers: Workers[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`, and the index of the namespace of scaling pods."""
        here = self.settings.namespace
        self._scaling_pods = Index(
            Pod, f"node-scale-adjuster: {here}", lambda pod: (_EVERYTHING,) if pod.metadata.namespace == here else ()
        )
        self._workers = Workers.of(self.cluster, "node-scale-adjuster", self._look, OPTIONS, self.observe)

    async def run(self) -> None:
        """Adjust until cancelled."""
        await self.cluster.store.synced()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._workers.run)
            with self.cluster.store.changes(Pod, BindRequest) as changes:
                async for batch in changes:
                    if self._matters(batch):
                        self._workers.want(_EVERYTHING)

    def _matters(self, batch: Iterable[Change[Any]]) -> bool:
        return any(
            isinstance(change.present, BindRequest) or is_relevant(change.present, self.settings) for change in batch
        )

    async def _look(self, _: Look[str]) -> Ended:
        store = self.cluster.store
        scaling_pods = store.find(self._scaling_pods, _EVERYTHING)
        stood_for = [store.get(Pod, name, namespace) for namespace, name in map(stands_for, scaling_pods)]
        pods = [*store.find(WAITING, _EVERYTHING), *(pod for pod in stood_for if pod is not None)]
        now = self.cluster.clock.monotonic()
        orders = store.all(BindRequest)
        adjustment = adjust(pods, scaling_pods, orders, self._state, self.settings, now=now)
        failures: list[str] = []
        deleted = 0
        for pod in adjustment.deletions:
            refusal = await self._delete(pod)
            deleted += refusal is None
            failures += [refusal] if refusal else []
        for manifest in adjustment.creations:
            refusal = await self._create(manifest)
            failures += [refusal] if refusal else []
        # A failed deletion starts no cool-down.
        if deleted or not adjustment.deletions:
            self._state = adjustment.state
        if failures:
            warn(self.cluster.connectivity, "scaling pods not adjusted", why=failures)
            return Ended(failure=failures[0])
        return Ended(after=adjustment.look_again_after)

    async def _delete(self, pod: Pod) -> str | None:
        """Delete a scaling pod; return why not, in words, or "" if it is needed after all."""
        namespace, name = stands_for(pod)
        if pod.status.phase != "Succeeded" and self.cluster.store.get(Pod, name, namespace) is None and name:
            # A lagging store may lack the pod that it stands for although it exists.
            found = await self.cluster.api.perform(Get(ref=Ref(Pod, name, namespace), fresh=True))
            if not isinstance(found, Refusal):
                return ""
            if found.reason is not Reason.NOT_FOUND:
                return found.why
        ref = Ref.to(pod)
        return _refused(await self.cluster.api.perform(Delete(ref=ref, uid=pod.metadata.uid)), Reason.NOT_FOUND)

    async def _create(self, manifest: dict[str, Any]) -> str | None:
        """Create a scaling pod and mark it as unschedulable; return why not, in words."""
        ref = Ref(Pod, manifest["metadata"]["name"], manifest["metadata"]["namespace"])
        refusal = _refused(await self.cluster.api.perform(Create(ref=ref, manifest=manifest)), Reason.ALREADY_EXISTS)
        if refusal is not None:
            return refusal
        mark = Patch(ref=ref, patch=UNSCHEDULABLE_STATUS, form="strategic", subresource="status")
        return _refused(await self.cluster.api.perform(mark), Reason.NOT_FOUND)


def _refused(reply: object, passable: Reason) -> str | None:
    if not isinstance(reply, Refusal) or reply.reason is passable:
        return None
    return reply.why
