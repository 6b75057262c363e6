"""Which volumes of drivers pods have attached to their nodes, and how many nodes can hold, as tables.

Source: kube-scheduler's NodeVolumeLimits filter, without plugins in the tree of Kubernetes.
"""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kai.framework import Bools, Int64s, NodeRows, Shape
from kai.plugins.volumes.objects import VolumeCatalog

UNLIMITED = 2**62
"""More volumes than there are, and twice as many still fit into 64 bits."""

Attached = tuple[str, ...]
"""Driver and handle of a volume; of one that is not there yet its driver, and namespace and name of its claim."""


def attached_to(catalog: VolumeCatalog, shape: Shape) -> frozenset[Attached]:
    """Return the volumes that pods of ``shape`` have attached to their node; claims that do not exist count nothing."""
    named = ((shape.namespace, name) for name in shape.constraints.volume_claims)
    return frozenset(filter(None, (_attached(catalog, key) for key in named)))


def _attached(catalog: VolumeCatalog, key: tuple[str, str]) -> Attached | None:
    claim = catalog.claims.get(key)
    if claim is None:
        return None
    volume = catalog.volumes.get(claim.volume)
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    kind = catalog.classes.get(claim.storage_class)
    return (kind.provisioner, *key) if kind is not None and kind.provisioner else None


@attrs.frozen(kw_only=True, eq=False)
class Uses:
    """Which volumes pods of which shapes have.

    Shapes: K shapes of pods, V volumes.
    """

    start: Int64s
    """int64[K + 1]: the volumes of shape k are those from here up to the next start."""
    volumes: Int64s
    """The rows of volumes, shape by shape."""

    @property
    def counts(self) -> Int64s:
        """int64[K]: how many volumes each shape has."""
        return np.diff(self.start)

    @property
    def shapes(self) -> Int64s:
        """The shape of each of ``volumes``."""
        return np.repeat(np.arange(len(self.start) - 1), self.counts)

    def of_shape(self, shape: int) -> Int64s:
        """Return the rows of the volumes of pods of ``shape``."""
        return self.volumes[self.start[shape] : self.start[shape + 1]]

    def only(self, chosen: Bools) -> "Uses":
        """Return the uses of those volumes alone for which ``chosen`` [V] says yes."""
        kept = chosen[self.volumes]
        return Uses(
            start=np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[self.start], volumes=self.volumes[kept]
        )

    def on(self, shapes: Int64s, nodes: NodeRows) -> tuple[Int64s, NodeRows]:
        """Return what pods of ``shapes``, each on its node, have there: a volume and a node, each pair once."""
        counts = self.counts[shapes]
        first = np.repeat(self.start[shapes] - (np.cumsum(counts) - counts), counts)
        total = int(self.volumes.max(initial=0)) + 1
        volumes = self.volumes[first + np.arange(len(first))]
        node, volume = np.divmod(np.unique(np.repeat(nodes, counts) * total + volumes), total)
        return volume, node


@attrs.frozen(kw_only=True, eq=False)
class Tables:
    """What nodes can hold and what pods have, of drivers with a limit on some node.

    Shapes: D drivers, N nodes, V volumes.
    """

    limit: Int64s
    """int64[D, N]."""
    driver_of: Int64s
    """int64[V]."""
    uses: Uses

    @classmethod
    def of(cls, limits: Sequence[object], volumes: Sequence[frozenset[Attached]]) -> "Tables | None":
        """Return the tables for what was reported of each node and the volumes of each shape.

        None if no driver limits a node, or no pod has volumes of one that does.
        """
        counts = [_limits(each) for each in limits]
        drivers = {name: row for row, name in enumerate(sorted({name for each in counts for name in each}))}
        rows: dict[Attached, int] = {}
        found = [
            [rows.setdefault(each, len(rows)) for each in sorted(some) if each[0] in drivers] if some else []
            for some in volumes
        ]
        if not rows:
            return None
        limit = np.full((len(drivers), len(counts)), UNLIMITED, np.int64)
        for node, each in enumerate(counts):
            for name, count in each.items():
                limit[drivers[name], node] = count
        return cls(
            limit=limit,
            driver_of=np.array([drivers[each[0]] for each in rows], np.int64),
            uses=Uses(
                start=np.cumsum([0, *map(len, found)], dtype=np.int64),
                volumes=np.array([row for some in found for row in some], np.int64),
            ),
        )

    def by_shape(self, uses: Uses) -> Int64s:
        """Return int64[K, D]: how many volumes of each driver each shape has."""
        shapes, drivers = len(uses.start) - 1, len(self.limit)
        cells = uses.shapes * drivers + self.driver_of[uses.volumes]
        return np.bincount(cells, minlength=shapes * drivers).reshape(shapes, drivers)

    def by_node(self, volumes: Int64s, nodes: NodeRows) -> Int64s:
        """Return int64[D, N]: how many of ``volumes``, each on its node, are of each driver."""
        drivers, count = self.limit.shape
        return np.bincount(self.driver_of[volumes] * count + nodes, minlength=drivers * count).reshape(drivers, count)


def _limits(reported: object) -> Mapping[str, int]:
    """Return how many volumes of each driver a node can hold; {} for a node of which nothing can be read."""
    if not isinstance(reported, Mapping):
        return {}
    return {name: max(0, min(count, UNLIMITED)) for name, count in reported.items()}
