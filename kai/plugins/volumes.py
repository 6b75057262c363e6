"""Send pods where their volumes are, or can be made.

A pod whose claim is not usable yet is refused everywhere. A bound claim ties its pod to the nodes that reach the
volume. A claim that waits for its first consumer needs a free volume in reach, or a class that can make one there.

Where drivers report how much they can still provision, a claim must fit in that. Under ``share_capacity`` of the
snapshot's volumes it is shared out: what the pods placed in this session will have provisioned is taken from it, and
what terminating pods give back is not counted before it is back.

Source: the peer's plugins/predicates, which runs kube-scheduler's VolumeBinding filter, and its bookkeeping of storage
capacities. Neither sets a free volume aside for a pod within a session.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.framework.hooks import Dependence, Hooks
from kai.framework.verdict import Code, Verdict
from kai.framework.view import SessionView
from kai.model.constraints import NodeTerm
from kai.model.rows import NONE, Bools, Int64s, NodeRows, PodRow, PodRows
from kai.model.status import COUNTED, Status, mask, within
from kai.model.volume import StorageCapacity, StorageClass, Volume, VolumeCatalog, VolumeClaim

CONFLICT = "node(s) had volume node affinity conflict"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
LOST_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

NOT_PROVISIONING = ("", "kubernetes.io/no-provisioner")
LEAVING = mask(Status.RELEASING, Status.STUCK_IN_RELEASING)

Answer = tuple[str, Bools]
"""Why nodes are refused, and bool[N]: the nodes that are not."""


@attrs.frozen(kw_only=True)
class Volumes:
    """Refuse nodes from which a pod's volumes cannot be reached or made."""

    def open(self, session: SessionView) -> Hooks:
        """Return the filter and the refusal, for the shapes with volume claims."""
        mounts = [_Mounts.of(session, shape) for shape in range(len(session.snapshot.shapes))]
        concerns = np.array([mount is not None for mount in mounts], np.bool_)
        if not concerns.any():
            return Hooks()
        reach = _Reach(session)
        catalog = session.snapshot.catalog.volumes
        storage = _Storage(session, mounts) if catalog.share_capacity and catalog.drivers else None

        def answers(pod: PodRow) -> Iterator[Answer]:
            mount = mounts[session.shape_of(pod)]
            if mount is None or mount.refusal:
                return
            yield from reach.answers(mount)
            if storage is not None:
                yield from storage.answers(pod, mount)

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            accepted = np.ones(len(nodes), np.bool_)
            for _, answer in answers(pod):
                accepted &= answer[nodes]
            return accepted

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            texts = [""] * len(nodes)
            for reason, answer in answers(pod):
                for at in np.flatnonzero(~answer[nodes]):
                    texts[at] = texts[at] or reason
            return texts

        def admit_pod(pod: PodRow) -> Verdict:
            mount = mounts[session.shape_of(pod)]
            if mount is None or not mount.refusal:
                return Verdict()
            return Verdict.refused(Code.POD_REFUSED, rule="VolumeBinding", text=mount.refusal)

        return Hooks(
            concerns=concerns,
            filter_nodes=filter_nodes,
            filter_depends=Dependence.SESSION if storage is not None else Dependence.SHAPE,
            explain_nodes=explain_nodes,
            # Asking for each pod costs the fast path of all shapes with claims: only where some shape is refused.
            admit_pod=admit_pod if any(mount is not None and mount.refusal for mount in mounts) else None,
        )


@attrs.frozen
class _Mounts:
    """The claims of a shape, or why none of its pods can start."""

    claims: tuple[VolumeClaim, ...] = ()
    refusal: str = ""

    @classmethod
    def of(cls, session: SessionView, shape: int) -> "_Mounts | None":
        """Return the claims of ``shape``, None if it has none."""
        facts = session.snapshot.shapes[shape]
        if not facts.constraints.volume_claims:
            return None
        catalog = session.snapshot.catalog.volumes
        claims: list[VolumeClaim] = []
        for name in facts.constraints.volume_claims:
            claim = catalog.claims.get((facts.namespace, name))
            refusal = _unusable(catalog, name, claim)
            if claim is None or refusal:
                return cls(refusal=refusal)
            claims.append(claim)
        if any(not _is_bound(claim) and not _waits(catalog, claim) for claim in claims):
            return cls(refusal=UNBOUND)
        return cls(claims=tuple(claims))


def _unusable(catalog: VolumeCatalog, name: str, claim: VolumeClaim | None) -> str:
    """Return why a claim cannot be used at all, "" if it can."""
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.deleting:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if claim.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
    if not _is_bound(claim) and claim.storage_class and claim.storage_class not in catalog.classes:
        return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
    return ""


def _is_bound(claim: VolumeClaim) -> bool:
    return claim.phase == "Bound" and bool(claim.volume)


def _waits(catalog: VolumeCatalog, claim: VolumeClaim) -> bool:
    """Say whether the claim is bound only once its pod has a node; one that names a volume already is not."""
    found = catalog.classes.get(claim.storage_class)
    return found is not None and found.wait and not claim.volume


# -------------------------------------------------------------------------------------------------- volumes and classes


class _Reach:
    """From which nodes claims can be satisfied. Claims that differ in name only share their answers."""

    def __init__(self, session: SessionView) -> None:
        self._session = session
        self._catalog = session.snapshot.catalog.volumes
        self._by_affinity: dict[tuple[NodeTerm, ...], Bools] = {}
        self._free: dict[VolumeClaim, Int64s] = {}
        self._space: dict[tuple[str, int], Bools] = {}

    def answers(self, mount: _Mounts) -> Iterator[Answer]:
        """Yield each kind of refusal with the nodes that it leaves."""
        waiting = [claim for claim in mount.claims if not _is_bound(claim)]
        for claim in mount.claims:
            if _is_bound(claim):
                yield self._bound(claim)
        for name in sorted({claim.storage_class for claim in waiting}):
            yield from self._unbound(self._catalog.classes[name], [c for c in waiting if c.storage_class == name])

    def _everywhere(self, *, accepted: bool) -> Bools:
        return np.full(len(self._session.snapshot.nodes), accepted, np.bool_)

    def _bound(self, claim: VolumeClaim) -> Answer:
        volume = self._catalog.volumes.get(claim.volume)
        if volume is None:
            return LOST_VOLUME, self._everywhere(accepted=False)
        return CONFLICT, self._reaching(volume.node_affinity)

    def _reaching(self, terms: tuple[NodeTerm, ...] | None) -> Bools:
        """Return bool[N]: the nodes that ``terms`` select; no terms select all."""
        if terms is None:
            return self._everywhere(accepted=True)
        if terms not in self._by_affinity:
            self._by_affinity[terms] = self._session.selected_nodes(terms)
        return self._by_affinity[terms]

    def _unbound(self, kind: StorageClass, claims: Sequence[VolumeClaim]) -> Iterator[Answer]:
        """Yield the answers for claims of one class that wait for a node: a free volume for each, or provisioning.

        A claim that was told its node is provisioned there and nowhere else.
        """
        matched = self._everywhere(accepted=True)
        searching = sorted((c for c in claims if not c.selected_node), key=lambda claim: claim.size)
        for at, claim in enumerate(searching):
            # A volume large enough for a claim is so for every smaller one: counting from here up decides.
            matched &= self._volumes_for(claim) >= (1 if self._reserved(claim) else len(searching) - at)
        told = [claim.selected_node for claim in claims if claim.selected_node]
        made = self._provisioning(kind)
        for name in told:
            here = self._everywhere(accepted=False)
            row = self._session.snapshot.node_rows.get(name, NONE)
            if row != NONE:
                here[row] = True
            made = made & here
        if told:
            matched = self._everywhere(accepted=False)
        yield NO_VOLUME, matched | made
        if not self._catalog.share_capacity:
            space = self._everywhere(accepted=True)
            for claim in claims:
                space &= self._has_space(kind, claim.size)
            yield NO_SPACE, matched | space

    def _reserved(self, claim: VolumeClaim) -> str:
        """Return the name of the volume that was set aside for ``claim``, "" if there is none."""
        key = (claim.namespace, claim.name)
        return self._set_aside.get(key, "")

    @cached_property
    def _set_aside(self) -> Mapping[tuple[str, str], str]:
        return {volume.claim: name for name, volume in sorted(self._catalog.volumes.items()) if volume.claim}

    def _volumes_for(self, claim: VolumeClaim) -> Int64s:
        """Return int64[N]: how many free volumes each node reaches that are large enough."""
        reserved = self._reserved(claim)
        if reserved:
            return self._reaching(self._catalog.volumes[reserved].node_affinity).astype(np.int64)
        key = attrs.evolve(claim, namespace="", name="", owner_pod="")
        if key not in self._free:
            count = np.zeros(len(self._session.snapshot.nodes), np.int64)
            for volume in self._catalog.volumes.values():
                if _suits(volume, claim):
                    terms = volume.node_affinity
                    # Local volumes have an affinity each: remembering those would cost nodes times volumes.
                    count += 1 if terms is None else self._session.selected_nodes(terms)
            self._free[key] = count
        return self._free[key]

    def _provisioning(self, kind: StorageClass) -> Bools:
        """Return bool[N]: where the class can make a volume."""
        if kind.provisioner in NOT_PROVISIONING:
            return self._everywhere(accepted=False)
        return self._reaching(kind.allowed_topologies or None)

    def _has_space(self, kind: StorageClass, size: int) -> Bools:
        """Return bool[N]: where the driver of the class has room for a volume of ``size``, if it reports at all."""
        key = (kind.name, size)
        if key not in self._space:
            space = self._everywhere(accepted=kind.provisioner not in self._catalog.drivers)
            for report in self._catalog.capacities:
                most = report.capacity if report.largest is None else report.largest
                if report.storage_class == kind.name and most >= size:
                    space |= self._session.node_labels.selects(report.nodes)
            self._space[key] = space
        return self._space[key]


def _suits(volume: Volume, claim: VolumeClaim) -> bool:
    """Say whether a volume is free and what ``claim`` asks for."""
    if volume.claim is not None or volume.deleting or volume.phase != "Available":
        return False
    if volume.storage_class != claim.storage_class or volume.size < claim.size or volume.block != claim.block:
        return False
    if not set(claim.access_modes) <= set(volume.access_modes):
        return False
    return claim.selector is None or claim.selector.matches(volume.labels)


# ------------------------------------------------------------------------------------------------------ shared capacity


@attrs.frozen(eq=False)
class _Consumers:
    """Pods with claims that are not provisioned yet."""

    pods: PodRows
    """Those with claims that nobody else uses, ascending."""
    sizes: Int64s
    """Of the claims of each."""
    shared: tuple[tuple[int, PodRows], ...]
    """Size and users of each claim that several pods use: it is provisioned once."""


class _Storage:
    """What is left of the capacity that drivers report, while pods are being placed.

    A node that two reports for one class cover has no report at all, as in the peer: nobody knows which of the two a
    claim would be charged to.
    """

    def __init__(self, session: SessionView, mounts: Sequence[_Mounts | None]) -> None:
        self._session = session
        self._mounts = mounts
        catalog = session.snapshot.catalog.volumes
        self._classes = {
            name for name, kind in sorted(catalog.classes.items()) if kind.wait and kind.provisioner in catalog.drivers
        }
        self._reports = tuple(each for each in catalog.capacities if each.storage_class in self._classes)
        self._report_of = self._accessible()
        self._consumers = {name: self._consumers_of(name) for name in sorted(self._classes)}
        self._alive = {
            pod.uid for row, pod in enumerate(session.snapshot.pods) if not _within(session.snapshot.pod_status[row])
        }

    def _accessible(self) -> Mapping[str, Int64s]:
        """Return by class int64[N]: the row of the report that covers each node, -1 for none."""
        report_of = {name: np.full(len(self._session.snapshot.nodes), NONE, np.int64) for name in self._classes}
        ambiguous = np.zeros(len(self._session.snapshot.nodes), np.bool_)
        for row, report in enumerate(self._reports):
            covered = self._covers(report)
            ambiguous |= covered & (report_of[report.storage_class] != NONE)
            report_of[report.storage_class][covered] = row
        for rows in report_of.values():
            rows[ambiguous] = NONE
        return report_of

    def _covers(self, report: StorageCapacity) -> Bools:
        if report.nodes is None:
            return np.ones(len(self._session.snapshot.nodes), np.bool_)
        return self._session.node_labels.selects(report.nodes)

    def _consumers_of(self, name: str) -> "_Consumers":
        """Return who will have something of a class provisioned."""
        users: dict[tuple[str, str], list[int]] = {}
        sizes: dict[tuple[str, str], int] = {}
        for shape, mount in enumerate(self._mounts):
            for claim in self._pending(mount, name):
                key = (claim.namespace, claim.name)
                users.setdefault(key, []).append(shape)
                sizes[key] = claim.size
        own: dict[int, int] = {}
        shared: list[tuple[int, PodRows]] = []
        for key, shapes in users.items():
            chosen = np.zeros(len(self._mounts), np.bool_)
            chosen[shapes] = True
            pods = self._session.pods_of_shapes(chosen)
            if len(pods) == 1:
                own[int(pods[0])] = own.get(int(pods[0]), 0) + sizes[key]
            else:
                shared.append((sizes[key], pods))
        rows = sorted(own)
        return _Consumers(np.array(rows, np.int64), np.array([own[row] for row in rows], np.int64), tuple(shared))

    @staticmethod
    def _pending(mount: _Mounts | None, name: str) -> Iterator[VolumeClaim]:
        for claim in mount.claims if mount is not None else ():
            if claim.storage_class == name and claim.phase == "Pending":
                yield claim

    def answers(self, pod: PodRow, mount: _Mounts) -> Iterator[Answer]:
        """Yield each kind of refusal with the nodes that it leaves."""
        nodes = len(self._session.snapshot.nodes)
        orphaned = sorted(c.name for c in mount.claims if c.storage_class in self._classes and self._is_orphaned(c))
        if orphaned:
            yield f"task has deleted storage claims: {', '.join(orphaned)}", np.zeros(nodes, np.bool_)
        for name, wanted in sorted(self._wanted(pod, mount).items()):
            report_of = self._report_of[name]
            yield f"no allocatable storage from storageclass {name} found", report_of != NONE
            yield f"{NO_SPACE} for storageclass {name}", self._left(name)[report_of] >= wanted

    def _is_orphaned(self, claim: VolumeClaim) -> bool:
        return bool(claim.owner_pod) and claim.owner_pod not in self._alive

    def _wanted(self, pod: PodRow, mount: _Mounts) -> Mapping[str, int]:
        """Return by class the bytes that the pod would have provisioned; a pod that moves needs its own claims anew."""
        columns = self._session.columns
        moved = bool(columns.virtual[pod]) and not within(int(columns.status[pod]), COUNTED)
        uid = self._session.snapshot.pods[pod].uid
        out: dict[str, int] = {}
        for claim in mount.claims:
            anew = moved and claim.owner_pod == uid
            if claim.storage_class in self._classes and (claim.phase == "Pending" or anew):
                out[claim.storage_class] = out.get(claim.storage_class, 0) + claim.size
        return out

    def _left(self, name: str) -> Int64s:
        """Return int64[C + 1]: what is left of each report once the claims of all pods with a place are provisioned.

        The last entry stands for "no report".
        """
        left = np.array([*(report.capacity for report in self._reports), 0], np.int64)
        consumers = self._consumers[name]
        pods, nodes = self._session.standing(consumers.pods)
        charged = np.unique(np.stack([pods, self._report_of[name][nodes]]), axis=1)
        np.subtract.at(left, charged[1], consumers.sizes[np.searchsorted(consumers.pods, charged[0])])
        for size, users in consumers.shared:
            _, nodes = self._session.standing(users)
            left[np.unique(self._report_of[name][nodes])] -= size
        return left


def _within(status: int) -> bool:
    return within(int(status), LEAVING)
