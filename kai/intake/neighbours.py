"""What the other objects of a cluster mean for a pod: what they add to its shape, and to its signature."""

from collections.abc import Sequence
from operator import is_

import attrs

from kai.api.objects import ClusterObjects
from kai.intake.pods import PodCell
from kai.intake.traits import digest
from kai.model.catalog import Catalog
from kai.model.pod import ContainerRequest


@attrs.frozen
class Surroundings:
    """What objects around a pod add to its shape; the default adds nothing."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    missing_config_maps: tuple[str, ...] = ()
    claimed: int = 0
    """GPUs asked for through resource claims."""
    containers: tuple[ContainerRequest, ...] = ()


_NOTHING = Surroundings()


@attrs.frozen(eq=False)
class Token:
    """Stands for one state of the neighbours: what was worked out under a token is true as long as the token is the same."""


class Neighbours:
    """Answers for one snapshot what else, besides the pod object itself, tells a pod from others."""

    def __init__(
        self, cells: Sequence[PodCell], objects: ClusterObjects, catalog: Catalog, before: "Neighbours | None"
    ) -> None:
        self.cells = cells
        self._catalog = catalog
        self._relevant: tuple[Sequence[object], ...] = (
            objects.config_maps,
            objects.persistent_volume_claims,
            objects.resource_claims,
            objects.resource_claim_templates,
            objects.node_resource_topologies,
        )
        self.plain: Token = Token()
        """For pods to which only the presence of terms about other pods matters."""
        self.full: Token = Token()
        """For pods that refer to other objects."""
        self._label_keys: tuple[str, ...] | None = (
            before._label_keys if before is not None and before.cells is cells else _label_keys(cells)
        )
        if before is not None and before._label_keys == self._label_keys:
            self.plain = before.plain
            if all(_same(*pair) for pair in zip(self._relevant, before._relevant, strict=True)):
                self.full = before.full

    def of(self, cell: PodCell) -> Surroundings:
        """Return what the neighbours add to the shape of a pod.

        Terms about other pods look at namespaces and at the labels that any selector names; only those tell pods apart.
        """
        traits, pod = cell.traits, cell.pod
        missing: tuple[str, ...] = ()
        if traits.config_maps and self._catalog.config_maps_known:
            present = self._catalog.config_maps
            missing = tuple([name for name in traits.config_maps if (pod.namespace, name) not in present])
        labels: tuple[tuple[str, str], ...] = ()
        if self._label_keys is not None:
            labels = tuple([(key, pod.labels[key]) for key in self._label_keys if key in pod.labels])
        constraints = traits.constraints
        if missing or constraints.claims or constraints.volume_claims or self._label_keys is not None:
            return Surroundings(namespace=pod.namespace, labels=labels, missing_config_maps=missing)
        return _NOTHING

    def signature(self, cell: PodCell) -> str:
        """Return the signature of a pod: of its volume claims the class, size and phase count, not the name."""
        traits, claims = cell.traits, self._catalog.volumes.claims
        if not traits.constraints.volume_claims:
            return traits.signature
        found = [claims.get((cell.pod.namespace, name)) for name in traits.constraints.volume_claims]
        return digest([traits.signature, sorted([each.storage_class, each.size, each.phase] for each in found if each)])


def _label_keys(cells: Sequence[PodCell]) -> tuple[str, ...] | None:
    """Return the labels that terms about other pods look at; None when no pod has such terms."""
    looked_at = {cell.traits.term_labels for cell in cells}
    looked_at.discard(None)
    return tuple(sorted({key for keys in looked_at for key in keys or ()})) if looked_at else None


def _same(objects: Sequence[object], before: Sequence[object]) -> bool:
    return len(objects) == len(before) and all(map(is_, objects, before))
