"""Send pods where their volumes are, or can be made.

A pod whose claim is not usable yet is refused everywhere. A bound claim ties its pod to the nodes that reach the
volume. A claim that waits for its first consumer needs a free volume in reach, or a class that can make one there.
A claim for one pod at a time keeps others waiting, see ``exclusive``.

Where drivers report how much they can still provision, a claim must fit in that. Under ``schedule_csi_storage`` of
the scheduler's parameters it is shared out instead, see ``capacity``.

Source: the peer's plugins/predicates, which runs kube-scheduler's VolumeBinding filter, and its bookkeeping of storage
capacities. Neither sets a free volume aside for a pod within a session.
"""

from collections.abc import Iterator, Sequence
from functools import partial
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
    PodFilter,
    PodRow,
    SessionView,
    Shape,
    Verdict,
)
from kai.plugins.volumes.capacity import Storage
from kai.plugins.volumes.exclusive import Exclusive
from kai.plugins.volumes.mounts import Mounts
from kai.plugins.volumes.objects import CAPACITIES, CLAIMS, CLASSES, DRIVERS, VOLUMES, VolumeCatalog, read_catalog
from kai.plugins.volumes.reach import Answer, Reach


@attrs.frozen(kw_only=True)
class Volumes:
    """Refuse nodes from which a pod's volumes cannot be reached or made."""

    reads: ClassVar = (CLAIMS, VOLUMES, CLASSES, DRIVERS, CAPACITIES)

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter and the refusal, for the shapes with volume claims."""
        catalog = read_catalog(session)
        mounts = session.snapshot.by_shape("mounts of shapes", lambda shape: Mounts.of(catalog, shape), catalog)
        concerns = np.array([mount is not None for mount in mounts], np.bool_)
        if not concerns.any():
            return ()
        is_shared = session.parameters.schedule_csi_storage and bool(catalog.drivers)
        storage = Storage(session, catalog, mounts) if is_shared else None
        exclusive = Exclusive.of(session, catalog)
        answers = _Answers(session, mounts, Reach(session, catalog), storage, exclusive)
        depends = Dependence.SHAPE if storage is None and exclusive is None else Dependence.SESSION
        extensions: list[Extension] = [
            NodeFilter(
                answers.filter_nodes,
                depends=depends,
                concerns=concerns,
                explain=answers.explain_nodes,
                signatures=session.snapshot.by_shape("signatures of volumes", partial(_signature, catalog), catalog),
            )
        ]
        if storage is not None:
            extensions.append(NodeWait(answers.must_wait, concerns=concerns))
        # Asking for each pod costs the fast path of all shapes with claims: only where some shape is refused.
        if any(mount is not None and mount.refusal for mount in mounts):
            extensions.append(PodFilter(answers.admit_pod, concerns=concerns))
        return extensions


def _signature(catalog: VolumeCatalog, shape: Shape) -> str:
    """Return what volume claims have in common that differ in their names only.

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
        """Return bool[n]: where the pod needs storage that terminating pods still hold."""
        mount = self._mount(pod)
        if self.storage is None or mount is None:
            return np.zeros(len(nodes), np.bool_)
        return self.storage.waits(pod, mount)[nodes]

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
