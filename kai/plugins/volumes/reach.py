"""The claims of a shape: from which nodes their volumes are reachable or can be created, and whether pods can start.

Source: kube-scheduler's VolumeBinding filter, which the peer's plugins/predicates runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.framework import NONE, Bools, Int64s, NodeRows, NodeTerm, SessionView, Shape
from kai.plugins.volumes.objects import CAPACITIES, VOLUMES, StorageClass, Volume, VolumeCatalog, VolumeClaim

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@attrs.frozen
class Mounts:
    """The claims of a shape, or why none of its pods can start."""

    claims: tuple[VolumeClaim, ...] = ()
    refusal: str = ""

    @classmethod
    def of(cls, catalog: VolumeCatalog, shape: Shape) -> "Mounts | None":
        """Return the claims of ``shape``, None if it has none."""
        if not shape.constraints.volume_claims:
            return None
        claims: list[VolumeClaim] = []
        for name in shape.constraints.volume_claims:
            claim = catalog.claims.get((shape.namespace, name))
            refusal = _unusable(catalog, name, claim)
            if claim is None or refusal:
                return cls(refusal=refusal)
            claims.append(claim)
        if any(not is_bound(claim) and not _waits(catalog, claim) for claim in claims):
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
    if not is_bound(claim) and claim.storage_class and claim.storage_class not in catalog.classes:
        return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
    return ""


def is_bound(claim: VolumeClaim) -> bool:
    """Return whether the claim has its volume; its phase follows a moment after its annotation."""
    return bool(claim.volume) and (claim.bind_completed or claim.phase == "Bound")


def _waits(catalog: VolumeCatalog, claim: VolumeClaim) -> bool:
    """Return whether the claim is bound only once its pod has a node; False if it names a volume already."""
    found = catalog.classes.get(claim.storage_class)
    return found is not None and found.wait and not claim.volume


CONFLICT = "node(s) had volume node affinity conflict"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
LOST_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

NOT_PROVISIONING = ("", "kubernetes.io/no-provisioner")

Answer = tuple[str, Bools]
"""Why nodes are refused, and bool[N]: the nodes that are not."""

Reached = tuple[Volume, NodeRows | None]
"""A volume and the nodes that reach it; None where these are not few."""

_FEW = 16
_NO_REPORT = -(2**63)


class Reach:
    """From which nodes claims can be satisfied. Claims that differ in name only share their answers."""

    def __init__(self, session: SessionView, catalog: VolumeCatalog) -> None:
        """Look at the volumes of ``session``."""
        self._session = session
        self._catalog = catalog
        self._by_affinity: dict[tuple[NodeTerm, ...], Bools] = {}
        self._free: dict[VolumeClaim, Int64s] = {}

    def answers(self, mount: Mounts) -> Iterator[Answer]:
        """Yield each kind of refusal with the nodes that it leaves."""
        waiting = [claim for claim in mount.claims if not is_bound(claim)]
        for claim in mount.claims:
            if is_bound(claim):
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

        A claim with a selected node is provisioned there and nowhere else.
        """
        matched = self._everywhere(accepted=True)
        searching = sorted((c for c in claims if not c.selected_node), key=lambda claim: claim.size)
        for at, claim in enumerate(searching):
            # A volume large enough for a claim is so for every smaller one: counting from here up decides.
            matched &= self._volumes_for(claim) >= (1 if self._kept_for(claim) else len(searching) - at)
        chosen_nodes = [claim.selected_node for claim in claims if claim.selected_node]
        made = self._provisioning(kind)
        for name in chosen_nodes:
            here = self._everywhere(accepted=False)
            row = self._session.snapshot.node_rows.get(name, NONE)
            if row != NONE:
                here[row] = True
            made = made & here
        if chosen_nodes:
            matched = self._everywhere(accepted=False)
        yield NO_VOLUME, matched | made
        # With it, `Storage` subtracts claims from the reports; here each claim is compared by itself.
        if not self._session.parameters.schedule_csi_storage:
            space = self._everywhere(accepted=True)
            for claim in claims:
                space &= self._has_space(kind, claim.size)
            yield NO_SPACE, matched | space

    def _kept_for(self, claim: VolumeClaim) -> Volume | None:
        """Return the volume that is reserved for ``claim``, None if there is none.

        A released volume of an earlier claim of the same name is reserved for no claim.
        """
        named = self._by_claim.get((claim.namespace, claim.name), ())
        return next((each for each in named if each.claim_uid in {"", claim.uid} and _suits(each, claim)), None)

    @cached_property
    def _by_claim(self) -> Mapping[tuple[str, str], Sequence[Volume]]:
        found: dict[tuple[str, str], list[Volume]] = {}
        for _, volume in sorted(self._catalog.volumes.items()):
            if volume.claim is not None:
                found.setdefault(volume.claim, []).append(volume)
        return found

    def _volumes_for(self, claim: VolumeClaim) -> Int64s:
        """Return int64[N]: how many free volumes each node reaches that are large enough."""
        kept = self._kept_for(claim)
        if kept is not None:
            return self._reaching(kept.node_affinity).astype(np.int64)
        # Claims made from one template differ in these alone, and a look goes over all free volumes.
        key = attrs.evolve(claim, namespace="", name="", uid="", owner_pod="")
        if key not in self._free:
            count, few = np.zeros(len(self._session.snapshot.nodes), np.int64), [np.zeros(0, np.int64)]
            for volume, nodes in self._reached_of.get(claim.storage_class, ()):
                if not _suits(volume, claim):
                    continue
                if nodes is not None:
                    few.append(nodes)
                else:
                    terms = volume.node_affinity
                    count += 1 if terms is None else self._session.selected_nodes(terms)
            self._free[key] = count + np.bincount(np.concatenate(few), minlength=len(count))
        return self._free[key]

    @cached_property
    def _reached_of(self) -> Mapping[str, Sequence[Reached]]:
        """The free volumes of each class, each with its nodes where these are few; kept while no volume changes.

        Local volumes have an affinity each: remembering a mask for each would cost nodes times volumes.
        """
        session = self._session

        def reached() -> Mapping[str, Sequence[Reached]]:
            found: dict[str, list[Reached]] = {}
            for volume in self._catalog.volumes.values():
                if _is_free(volume):
                    terms = volume.node_affinity
                    nodes = None if terms is None else np.flatnonzero(session.selected_nodes(terms)).astype(np.int64)
                    few = nodes if nodes is not None and len(nodes) <= _FEW else None
                    found.setdefault(volume.storage_class, []).append((volume, few))
            return found

        return session.once("nodes of free volumes", (session.values(VOLUMES), session.snapshot.nodes), reached)

    def _provisioning(self, kind: StorageClass) -> Bools:
        """Return bool[N]: where the class can make a volume."""
        if kind.provisioner in NOT_PROVISIONING:
            return self._everywhere(accepted=False)
        return self._reaching(kind.allowed_topologies or None)

    def _has_space(self, kind: StorageClass, size: int) -> Bools:
        """Return bool[N]: where the driver of the class has room for a volume of ``size``, if it reports at all."""
        if kind.provisioner not in self._catalog.drivers:
            return self._everywhere(accepted=True)
        room = self._room.get(kind.name)
        return self._everywhere(accepted=False) if room is None else room >= size

    @cached_property
    def _room(self) -> Mapping[str, Int64s]:
        """By class int64[N]: the largest volume that a report has room for on each node; the least number without one.

        Kept while no report changes: there may be one for each node.
        """
        session, reports = self._session, self._catalog.capacities

        def room() -> Mapping[str, Int64s]:
            found: dict[str, Int64s] = {}
            for report in reports:
                # The capacity is a sum, which may lie in pieces: where a largest size is reported, it alone decides.
                most = report.capacity if report.largest is None else report.largest
                here = found.setdefault(
                    report.storage_class, np.full(len(session.snapshot.nodes), _NO_REPORT, np.int64)
                )
                chosen = session.node_labels.selects(report.nodes)
                here[chosen] = np.maximum(here[chosen], most)
            return found

        return session.once("room of storage classes", (session.values(CAPACITIES), session.snapshot.nodes), room)


def _is_free(volume: Volume) -> bool:
    return volume.claim is None and volume.phase == "Available"


def _suits(volume: Volume, claim: VolumeClaim) -> bool:
    """Return whether a volume satisfies ``claim`` and is not being deleted."""
    if volume.deleting:
        return False
    # Kubernetes binds across neither classes nor volume modes; a larger volume does.
    if volume.storage_class != claim.storage_class or volume.size < claim.size or volume.block != claim.block:
        return False
    if not set(claim.access_modes) <= set(volume.access_modes):
        return False
    return claim.selector is None or claim.selector.matches(volume.labels)
