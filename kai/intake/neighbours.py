"""What the other objects of a cluster mean for the shape of a pod."""

from collections.abc import Iterable

from kai.intake.pods import PodCell
from kai.intake.shapes import NOTHING, Surroundings
from kai.model.catalog import Catalog


class Neighbours:
    """Answers for one snapshot what else, besides the pod object itself, tells a pod from others."""

    def __init__(self, cells: Iterable[PodCell], catalog: Catalog) -> None:
        self._catalog = catalog
        looked_at = {cell.traits.term_labels for cell in cells}
        looked_at.discard(None)
        self._label_keys = tuple(sorted(key for keys in looked_at for key in keys or ())) if looked_at else None

    def matter_to(self, cell: PodCell) -> bool:
        """Say whether the pod's shape may depend on anything but the pod."""
        return self._label_keys is not None or not cell.traits.plain

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
        named = missing or constraints.claims or constraints.volume_claims or self._label_keys is not None
        if not named:
            return NOTHING
        return Surroundings(namespace=pod.namespace, labels=labels, missing_config_maps=missing)
