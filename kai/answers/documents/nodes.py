"""The documents about nodes: `NodeList`, with GPUs and MIG slices, and `NodeExplanation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kai.answers.documents.document import ABSENT, Document, read_json, span
from kai.answers.outcomes.gpu_slots import Holder, NodeSlots, Slices, SliceUser, Slot, User
from kai.answers.outcomes.node_occupancy import Occupancy, Tenant
from kai.basics.wording import counted
from kai.deciding.explain.phrases import plain, quantity
from kai.facts.model.axis import GPU_UNIT

# --- GPUs and MIG slices -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class UserOfSlices:
    """A pod with MIG slices of one profile."""

    job: str
    namespace: str
    queue: str | None
    pod: str
    count: int
    state: str


@attrs.frozen(kw_only=True)
class SlicesItem:
    """The MIG slices of one profile on a node; ``resource`` is what pods ask for."""

    resource: str
    total: int
    used: int
    held: int
    leaving: int
    free: int
    users: tuple[UserOfSlices, ...]

    @classmethod
    def of(cls, slices: Slices, *, ready: bool) -> SlicesItem:
        """Return the item of a profile; no slice is free where the node takes no pods."""
        return cls(
            resource=slices.resource,
            total=slices.total,
            used=slices.count("used"),
            held=slices.count("held"),
            leaving=slices.count("leaving"),
            free=slices.free if ready else 0,
            users=tuple(UserOfSlices(**_named(user), count=user.count) for user in slices.users),
        )

    def slices(self) -> Slices:
        """Return the slices of this item."""
        users = tuple(SliceUser(**_holder(each), count=each.count) for each in self.users)
        return Slices(resource=self.resource, total=self.total, users=users)


@attrs.frozen(kw_only=True)
class UserOfGpu:
    """A pod on a GPU."""

    job: str
    namespace: str
    queue: str | None
    pod: str
    share: float
    state: str


@attrs.frozen(kw_only=True)
class GpuOfNode:
    """One GPU of a node."""

    index: int
    uuid: str | None
    free: float
    state: str
    users: tuple[UserOfGpu, ...]

    @classmethod
    def of(cls, at: int, slot: Slot) -> GpuOfNode:
        """Return the item of the GPU with the number ``at``."""
        return cls(
            index=at,
            uuid=None,
            free=(GPU_UNIT - slot.granted) / GPU_UNIT if slot.state in {"free", "shared"} else 0.0,
            state=slot.state,
            users=tuple(UserOfGpu(**_named(user), share=user.share / GPU_UNIT) for user in slot.users),
        )

    def slot(self) -> Slot:
        """Return the GPU of this item."""
        users = tuple(User(**_holder(each), share=round(each.share * GPU_UNIT)) for each in self.users)
        return Slot(state=self.state, users=users)


def _named(user: Holder) -> dict[str, Any]:
    """Return what a document says of a pod on a GPU or slice."""
    kept = {name: getattr(user, name) for name in ("job", "namespace", "pod", "state")}
    return {**kept, "queue": user.queue or None}


def _holder(user: UserOfGpu | UserOfSlices) -> dict[str, Any]:
    kept = {name: getattr(user, name) for name in ("job", "namespace", "pod", "state")}
    return {**kept, "queue": user.queue or ""}


# --- Nodes ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FreeGpus:
    """What is free on a node: whole GPUs, and the sum of free parts."""

    whole: int
    fractions: float


@attrs.frozen(kw_only=True)
class NodeItem:
    """One node."""

    name: str
    labels: Mapping[str, str]
    gpu_type: str | None
    ready: bool
    gpus: tuple[GpuOfNode, ...]
    mig_slices: tuple[SlicesItem, ...] = ()
    free: FreeGpus
    domains: Mapping[str, str]

    @classmethod
    def of(cls, node: NodeSlots) -> NodeItem:
        """Return the item of a node."""
        return cls(
            name=node.name,
            labels=node.labels,
            gpu_type=node.product or None,
            ready=node.ready,
            gpus=tuple(GpuOfNode.of(at, slot) for at, slot in enumerate(node.slots)),
            mig_slices=tuple(SlicesItem.of(each, ready=node.ready) for each in node.slices),
            free=FreeGpus(whole=node.free, fractions=round(node.fractions, 3)),
            domains=node.domains,
        )

    def slots(self) -> NodeSlots:
        """Return the node of this item."""
        return NodeSlots(
            name=self.name,
            labels=self.labels,
            ready=self.ready,
            gpus=len(self.gpus),
            slots=tuple(each.slot() for each in self.gpus),
            domains=self.domains,
            slices=tuple(each.slices() for each in self.mig_slices),
        )


@attrs.frozen(kw_only=True)
class NodeList(Document):
    """Where the GPUs are and in what pieces (``kai nodes``)."""

    items: tuple[NodeItem, ...]
    continue_: str | None = ABSENT
    """Where the next page begins, null on the last one: of a service that is asked for pages."""


def node_slots(document: Mapping[str, Any]) -> tuple[NodeSlots, ...]:
    """Return the nodes of a NodeList."""
    return tuple(each.slots() for each in read_json(NodeList, document).items)


# --- Why a node is empty or full -----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class UserItem:
    """The pods of one job on a node."""

    job: str
    queue: str | None
    pods: int
    gpus: float
    state: str


@attrs.frozen(kw_only=True)
class KeptAwayItem:
    """What keeps waiting jobs from a node."""

    reason: str
    jobs: tuple[str, ...]


@attrs.frozen(kw_only=True)
class NodeExplanation(Document):
    """Why a node is empty or full (``kai why node/NAME``)."""

    subject: Mapping[str, str]
    summary: str
    gpus: float
    idle_gpus: float
    partly_idle_gpus: float
    """What is left of GPUs that pods share."""
    ready: bool
    closed: str | None = None
    """What keeps all pods from it, such as ``cordoned``; null where nothing does."""
    closed_seconds: float | None = None
    """For how long; null where that is not known."""
    failed_gpus: float = 0.0
    """GPUs that it has and does not offer."""
    mig_slices: tuple[SlicesItem, ...] = ()
    taints: tuple[str, ...]
    users: tuple[UserItem, ...]
    kept_away: tuple[KeptAwayItem, ...]

    @classmethod
    def of(cls, found: Occupancy) -> NodeExplanation:
        """Return the tenants of a node, and what keeps which jobs away."""
        return cls(
            subject={"kind": "Node", "name": found.node},
            summary=occupied(found),
            gpus=found.gpus / GPU_UNIT,
            idle_gpus=found.idle / GPU_UNIT,
            partly_idle_gpus=found.partly / GPU_UNIT,
            ready=found.ready,
            closed=found.closed or None,
            closed_seconds=found.closed_for,
            failed_gpus=found.failed / GPU_UNIT,
            mig_slices=tuple(SlicesItem.of(each, ready=found.ready) for each in found.slices),
            taints=found.taints,
            users=tuple(
                UserItem(
                    job=each.job,
                    queue=each.queue or None,
                    pods=each.pods,
                    gpus=each.gpus / GPU_UNIT,
                    state=each.state,
                )
                for each in found.tenants
            ),
            kept_away=tuple(KeptAwayItem(reason=why, jobs=tuple(jobs)) for why, jobs in found.kept_away),
        )

    def occupancy(self) -> Occupancy:
        """Return the occupancy of the node."""
        return Occupancy(
            node=self.subject["name"],
            gpus=round(self.gpus * GPU_UNIT),
            idle=round(self.idle_gpus * GPU_UNIT),
            partly=round(self.partly_idle_gpus * GPU_UNIT),
            ready=self.ready,
            closed=self.closed or ("" if self.ready else "not ready"),
            closed_for=self.closed_seconds,
            failed=round(self.failed_gpus * GPU_UNIT),
            taints=self.taints,
            tenants=tuple(
                Tenant(
                    job=each.job,
                    title=each.job.rpartition("/")[2],
                    queue=each.queue or "",
                    pods=each.pods,
                    gpus=round(each.gpus * GPU_UNIT),
                    state=each.state,
                )
                for each in self.users
            ),
            kept_away=tuple((each.reason, each.jobs) for each in self.kept_away),
            slices=tuple(each.slices() for each in self.mig_slices),
        )


def occupancy(document: Mapping[str, Any]) -> Occupancy:
    """Return the occupancy in a NodeExplanation."""
    return read_json(NodeExplanation, document).occupancy()


def occupied(found: Occupancy) -> str:
    """Return in one sentence how much of a node is used, or why it is empty."""
    if not found.gpus:
        count = sum(each.pods for each in found.tenants)
        what = "whole GPUs" if found.slices else "GPUs"
        return f"{found.node} has no {what}; {counted(count, 'pod is', 'pods are')} on it."
    size = quantity(found.gpus, "gpu")
    lost = ""
    if found.failed:
        are = "is" if found.failed == GPU_UNIT else "are"
        lost = (
            f" {plain(found.failed)} of its {plain(found.gpus + found.failed)} GPUs {are} unhealthy (not allocatable)."
        )
    if not found.tenants:
        why = closed(found) or ("no waiting job can use it" if found.kept_away else "no job waits for it")
        return f"{found.node} is empty, {size} idle: {why}.{lost}"
    held = found.sum("held")
    parts = [f"{plain(found.sum('running'))} used"]
    parts += [f"{plain(held)} held for jobs that start later"] if held else []
    parts += [f"{plain(found.sum('leaving'))} with pods that are leaving"] if found.sum("leaving") else []
    what = "is full" if not found.idle else f"has {quantity(found.idle, 'gpu')} idle"
    if found.partly and found.idle:
        what = f"{what} and {plain(found.partly)} in GPUs that pods share"
    elif found.partly:
        what = f"has {quantity(found.partly, 'gpu')} idle in GPUs that pods share"
    return f"{found.node} {what}: of {size} {', '.join(parts)}.{lost}"


def closed(found: Occupancy) -> str:
    """Return what keeps pods without a toleration from a node; "" if nothing does."""
    if not found.ready:
        return f"it is {found.closed}" + (f", for {span(found.closed_for)}" if found.closed_for else "")
    return f"it is tainted {', '.join(found.taints)}" if found.taints else ""
