"""Sends pods to nodes where their volumes are, or can be created.

A pod whose claim is not usable yet is refused everywhere. A bound claim ties its pod to the nodes that reach the
volume. A claim that waits for its first consumer needs a free volume in reach, or a class that can provision one there.
A node that can attach no more volumes of a driver takes no pod that needs another one, see ``limits``.

Where drivers report how much they can still provision, a claim must fit in that. With ``schedule_csi_storage`` in
the scheduler's parameters, that capacity is divided among claims instead, see ``capacity``.

A claim with ``ReadWriteOncePod`` excludes a second pod. A pod keeps its claim until it is gone. A terminating or
evicted pod excludes no other pod; but the other is only promised its place, and bound once the claim is free.

Source: the peer's plugins/predicates, which runs kube-scheduler's VolumeBinding filter, and its bookkeeping of storage
capacities. Neither sets a free volume aside for a pod within a session. For ``ReadWriteOncePod``: kube-scheduler's
VolumeRestrictions filter. KAI-Scheduler does not run it: both pods are bound, and the second waits on its node for the
volume, with its GPUs.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from operator import add
from typing import ClassVar

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Code,
    Dependence,
    Extension,
    NodeFilter,
    NodeRows,
    NodeWait,
    Placement,
    PodFilter,
    PodRow,
    PodRows,
    SessionView,
    Shape,
    Verdict,
)
from kai.plugins.volumes.capacity import Storage
from kai.plugins.volumes.limits import Limits
from kai.plugins.volumes.objects import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_NODES,
    DRIVERS,
    VOLUMES,
    VolumeCatalog,
    read_catalog,
)
from kai.plugins.volumes.reach import Answer, Mounts, Reach

IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
_MODE = "ReadWriteOncePod"

Claims = frozenset[tuple[str, str]]
"""Claims by namespace and name."""


@attrs.frozen(eq=False)
class Exclusive:
    """Which pods have which claims that only one pod may have."""

    session: SessionView
    wanted: Sequence[Claims]
    """Those of each shape."""
    _rivals: dict[Claims, PodRows] = attrs.field(factory=dict)

    @classmethod
    def of(cls, session: SessionView, catalog: VolumeCatalog) -> "Exclusive | None":
        """Return the state of such claims; None if no shape has one."""
        if not any(_MODE in claim.access_modes for claim in catalog.claims.values()):
            return None
        wanted = session.snapshot.by_shape("exclusive claims of shapes", lambda shape: _claims(catalog, shape), catalog)
        return cls(session, wanted) if any(wanted) else None

    def answers(self, pod: PodRow) -> Iterator[Answer]:
        """Yield why no node takes the pod while another one has a claim of its."""
        if self.wanted[self.session.shape_of(pod)]:
            users, _ = self.session.staying(self._rivals_of(pod))
            yield IN_USE, np.full(len(self.session.snapshot.nodes), not len(users), np.bool_)

    def waits(self, pod: PodRow) -> bool:
        """Return whether a pod is leaving that has a claim which this one needs, wherever this one goes."""
        if not self.wanted[self.session.shape_of(pod)]:
            return False
        users, _ = self.session.leaving(self._rivals_of(pod))
        return len(users) > 0

    def _rivals_of(self, pod: PodRow) -> PodRows:
        claims = self.wanted[self.session.shape_of(pod)]
        if claims not in self._rivals:
            rivals = np.array([bool(claims & other) for other in self.wanted], np.bool_)
            self._rivals[claims] = self.session.pods_of_shapes(rivals)
        return self._rivals[claims]


def _claims(catalog: VolumeCatalog, shape: Shape) -> Claims:
    named = {(shape.namespace, name) for name in shape.constraints.volume_claims}
    return frozenset(key for key in named if key in catalog.claims and _MODE in catalog.claims[key].access_modes)


@attrs.frozen(kw_only=True)
class Volumes:
    """Refuse nodes from which a pod's volumes cannot be reached or made."""

    reads: ClassVar = (CLAIMS, VOLUMES, CLASSES, DRIVERS, CAPACITIES, CSI_NODES)

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter and the refusal, for the shapes with volume claims."""
        catalog = read_catalog(session)
        mounts = session.snapshot.by_shape("mounts of shapes", lambda shape: Mounts.of(catalog, shape), catalog)
        concerns = has_claims = np.array([mount is not None for mount in mounts], np.bool_)
        if not concerns.any():
            return ()
        is_shared = session.parameters.schedule_csi_storage and bool(catalog.drivers)
        storage = Storage(session, catalog, mounts) if is_shared else None
        answers = _Answers(session, mounts, Reach(session, catalog), storage, Exclusive.of(session, catalog))
        signatures = session.snapshot.by_shape("signatures of volumes", partial(_signature, catalog), catalog)
        limits = Limits.of(session, catalog)
        extensions: list[Extension] = []
        if limits is not None:
            counting = attrs.evolve(answers, limits=limits)
            joined = tuple(map(add, signatures, limits.signatures()))
            extensions += counting.about_nodes(limits.concerns, joined)
            extensions.append(
                Placement(effects=limits.effects, lasting_effects=limits.lasting_effects, concerns=limits.concerns)
            )
            # Pods without counted volumes keep the answers that are computed once per shape.
            concerns = concerns & ~limits.concerns
        extensions += answers.about_nodes(concerns, signatures)
        # Asking for each pod costs the fast path of all shapes with claims: only where some shape is refused.
        if any(mount is not None and mount.refusal for mount in mounts):
            extensions.append(PodFilter(answers.admit_pod, concerns=has_claims))
        return extensions


def _signature(catalog: VolumeCatalog, shape: Shape) -> str:
    """Return the key of volume claims that differ only in their names.

    Source: the peer's scheduling constraints signature.
    """
    claims = (catalog.claims.get((shape.namespace, name)) for name in shape.constraints.volume_claims)
    return str(sorted((each.storage_class, each.size, each.phase) for each in claims if each is not None))


@attrs.frozen(eq=False)
class _Answers:
    """Answers about pods with claims."""

    session: SessionView
    mounts: Sequence[Mounts | None]
    reach: Reach
    storage: Storage | None
    exclusive: Exclusive | None
    limits: Limits | None = None

    def about_nodes(self, concerns: Bools, signatures: Sequence[str]) -> Iterator[NodeFilter | NodeWait]:
        """Yield the filters and waits for the shapes ``concerns``; nothing without shapes."""
        if not concerns.any():
            return
        # Reach looks at objects only. The other three look at where pods are, which changes with each placement.
        is_fixed = self.storage is None and self.exclusive is None and self.limits is None
        yield NodeFilter(
            self.filter_nodes,
            depends=Dependence.SHAPE if is_fixed else Dependence.SESSION,
            concerns=concerns,
            explain=self.explain_nodes,
            signatures=signatures,
        )
        if self.storage is not None or self.exclusive is not None or self.limits is not None:
            yield NodeWait(self.must_wait, concerns=concerns)

    def filter_nodes(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: where every claim of the pod can be satisfied, now or once terminating pods are gone."""
        accepted = np.ones(len(nodes), np.bool_)
        for _, answer in self._answers(pod):
            accepted &= answer[nodes]
        return accepted

    def explain_nodes(self, pod: PodRow, nodes: NodeRows) -> Sequence[str]:
        """Return the first reason for each of the nodes that are refused."""
        texts = [""] * len(nodes)
        for reason, answer in self._answers(pod):
            for at in np.flatnonzero(~answer[nodes]):
                texts[at] = texts[at] or reason
        return texts

    def must_wait(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: where the pod needs a claim, storage or room for volumes that terminating pods hold."""
        mount, waits = self._mount(pod), np.zeros(len(nodes), np.bool_)
        if mount is None:
            return waits
        if self.storage is not None:
            waits |= self.storage.waits(pod, mount)[nodes]
        if self.exclusive is not None:
            waits |= self.exclusive.waits(pod)
        if self.limits is not None:
            waits |= self.limits.waits(pod, nodes)
        return waits

    def admit_pod(self, pod: PodRow) -> Verdict:
        """Refuse a pod whose claims cannot be used at all."""
        mount = self._mount(pod)
        if mount is None or not mount.refusal:
            return Verdict()
        return Verdict.refused(Code.POD_REFUSED, rule="VolumeBinding", text=mount.refusal)

    def _mount(self, pod: PodRow) -> Mounts | None:
        return self.mounts[self.session.shape_of(pod)]

    def _answers(self, pod: PodRow) -> Iterator[Answer]:
        mount = self._mount(pod)
        if mount is None or mount.refusal:
            return
        yield from self.reach.answers(mount)
        if self.storage is not None:
            yield from self.storage.answers(pod, mount)
        if self.exclusive is not None:
            yield from self.exclusive.answers(pod)
        if self.limits is not None:
            yield from self.limits.answers(pod)
