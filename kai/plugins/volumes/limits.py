"""Keeps pods off nodes that can attach no more volumes of a driver.

The ``CSINode`` of a node limits the number of volumes of each driver. A pod on a full node hangs there, with its GPUs,
until another pod leaves. Volumes of all pods on the node count, each once: a bound claim by the driver and handle of
its volume, any other by the provisioner of its class and its own name. A leaving pod has its volumes until it is gone,
so volumes that only leaving pods have can be promised.

``VolumeAttachment`` objects are not read. They outlive the last pod of a volume by the seconds that a detachment takes.
For these seconds kube-scheduler waits, and here the pod waits on its node instead. Reading them would cost a store as
large as that of volumes, a change of it for each start and end of a pod with a volume, and a right that
KAI-Scheduler's role does not have.

Source: kube-scheduler's NodeVolumeLimits filter, without in-tree volume plugins. KAI-Scheduler does not run it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import attrs
import numpy as np

from kai.framework import Bools, Effect, Int64s, NodeRow, NodeRows, PodRow, PodRows, SessionView, Shape, Status, Tracked
from kai.plugins.volumes.capacity import LEAVING
from kai.plugins.volumes.objects import CSI_NODES, VolumeCatalog
from kai.plugins.volumes.reach import Answer

UNLIMITED = 2**62
"""More volumes than there are, and twice as many still fit into 64 bits."""

Attached = tuple[str, ...]
"""Driver and handle of a volume; before it exists, its driver, and namespace and name of its claim."""


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
        # Volumes without a CSI driver (NFS, local) are attached by no driver that reports a limit.
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    kind = catalog.classes.get(claim.storage_class)
    return (kind.provisioner, *key) if kind is not None and kind.provisioner else None


@attrs.frozen(kw_only=True, eq=False)
class Uses:
    """The volumes of the pods of each shape.

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
        """Return the uses of only the ``chosen`` [V] volumes."""
        kept = chosen[self.volumes]
        return Uses(
            start=np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[self.start], volumes=self.volumes[kept]
        )

    def on(self, shapes: Int64s, nodes: NodeRows) -> tuple[Int64s, NodeRows]:
        """Return the volumes of pods of ``shapes`` on their nodes: a volume and a node, each pair once."""
        counts = self.counts[shapes]
        first = np.repeat(self.start[shapes] - (np.cumsum(counts) - counts), counts)
        total = int(self.volumes.max(initial=0)) + 1
        volumes = self.volumes[first + np.arange(len(first))]
        # A pair as one number, so that a volume which several pods use on a node counts once there.
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
        """Return the tables from the limits reported by nodes and the volumes of each shape.

        None if no driver limits a node, or no pod has volumes of a driver that does.
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
    """Return the limit of volumes on a node by driver; {} for a node whose report is unusable."""
    if not isinstance(reported, Mapping):
        return {}
    return {name: max(0, min(count, UNLIMITED)) for name, count in reported.items()}


FULL = "node(s) exceed max volume count"


@attrs.frozen(kw_only=True, eq=False)
class Limits:
    """How many volumes fit on nodes, while pods are being placed.

    Volumes that one pod alone has, nearly all, are counted in columns. Cost of a question: O(drivers times nodes), and
    O(u log u) for u uses of volumes that several pods have.

    Shapes: K shapes of pods, V volumes, D drivers, N nodes.
    """

    session: SessionView
    tables: Tables
    users: Int64s
    """int64[V]: how many pods have each volume."""
    wanted: Int64s
    """int64[K, D]: the volumes of each shape."""
    own: Int64s
    """int64[K, D]: those of them that one pod alone has."""
    shared: Uses
    """Those that several pods have: a node with one takes more pods with it."""
    sharing: PodRows
    """The pods with such volumes."""
    kept: Tracked
    """[D, N]: volumes that one pod alone has, of pods with a place on the node that they keep."""
    there: Tracked
    """[D, N]: the same for pods that are there now, leaving ones included."""

    @classmethod
    def of(cls, session: SessionView, catalog: VolumeCatalog) -> "Limits | None":
        """Return the state of counted volumes; None if no pod has one."""
        reported, snapshot = session.values(CSI_NODES), session.snapshot
        if not any(reported.values()):
            return None
        volumes = snapshot.by_shape("attached volumes", partial(attached_to, catalog), catalog)
        tables = session.once(
            "attach limits",
            (reported, snapshot.nodes, volumes),
            lambda: Tables.of([reported.get(node.name) for node in snapshot.nodes], volumes),
        )
        if tables is None:
            return None
        uses, shape_of = tables.uses, session.facts.pods.shape
        pods_of = np.bincount(shape_of, minlength=len(uses.counts))
        users = np.bincount(uses.volumes, pods_of[uses.shapes], len(tables.driver_of)).astype(np.int64)
        # A volume of one pod adds up, so a column follows it. One that pods share counts once on a node however many of
        # them are there: no sum of effects says that, so it is counted from the places of pods.
        alone, shared = uses.only(users == 1), uses.only(users > 1)
        pods, nodes = session.assigned(session.pods_of_shapes(alone.counts > 0))

        def initial(counts: Counts) -> Int64s:
            chosen = counts(session, pods, nodes)
            return tables.by_node(*alone.on(shape_of[pods[chosen]], nodes[chosen]))

        return cls(
            session=session,
            tables=tables,
            users=users,
            wanted=tables.by_shape(uses),
            own=tables.by_shape(alone),
            shared=shared,
            sharing=session.pods_of_shapes(shared.counts > 0),
            kept=session.track(initial(_is_kept)),
            there=session.track(initial(_is_there)),
        )

    @property
    def concerns(self) -> Bools:
        """bool[K]: the shapes with volumes that count."""
        return self.tables.uses.counts > 0

    def signatures(self) -> Sequence[str]:
        """Return for each shape a text that is equal for pods that need as much room on every node.

        Of a volume that no other pod has it does not matter which one it is.
        """
        # A volume that does not exist yet is represented by its driver, numbered below all volumes.
        alike = np.where(self.users > 1, np.arange(len(self.users)), -1 - self.tables.driver_of)
        numbers, start = alike[self.tables.uses.volumes].tolist(), self.tables.uses.start.tolist()
        return tuple(str(sorted(numbers[a:b])) if b > a else "" for a, b in pairwise(start))

    def effects(self, pod: PodRow, node: NodeRow, _: object) -> Sequence[Effect]:
        """Return the number that a placement adds for as long as the pod keeps it."""
        return self._effects(self.kept, pod, node)

    def lasting_effects(self, pod: PodRow, node: NodeRow, _: object) -> Sequence[Effect]:
        """Return the number that a placement adds while the pod is there; a promised placement adds nothing yet."""
        promised = self.session.columns.status[pod] == Status.PIPELINED
        return () if promised else self._effects(self.there, pod, node)

    def _effects(self, column: Tracked, pod: PodRow, node: NodeRow) -> Sequence[Effect]:
        nodes = self.tables.limit.shape[1]
        own = self.own[self.session.shape_of(pod)].tolist()
        return [Effect(column, driver * nodes + int(node), count) for driver, count in enumerate(own) if count]

    def answers(self, pod: PodRow) -> Iterator[Answer]:
        """Yield why nodes refuse the pod that have no room for its volumes even once all leaving pods are gone."""
        yield FULL, self._has_room(pod, self.session.nodes, self.kept, _is_kept)

    def waits(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: where the pod needs the room of volumes that leaving pods still have."""
        return ~self._has_room(pod, nodes, self.there, _is_there)

    def _has_room(self, pod: PodRow, nodes: NodeRows, column: Tracked, counts: "Counts") -> Bools:
        """Return bool[n]: where the volumes of ``pod`` fit beside those of the pods that ``counts`` selects."""
        tables, shape = self.tables, self.session.shape_of(pod)
        held = column.values.reshape(tables.limit.shape)[:, nodes]
        more = np.repeat(self.wanted[shape][:, np.newaxis], len(nodes), axis=1)
        itself, places = self.session.assigned(np.array([pod], np.int64))
        if len(itself):
            is_there = np.isin(nodes, places[counts(self.session, itself, places)])
            more -= self.own[shape][:, np.newaxis] * is_there
        if len(self.sharing):
            pods, places = self.session.assigned(self.sharing)
            chosen = counts(self.session, pods, places)
            volume, node = self.shared.on(self.session.facts.pods.shape[pods[chosen]], places[chosen])
            held = held + tables.by_node(volume, node)[:, nodes]
            mine = np.isin(volume, self.shared.of_shape(shape))
            more -= tables.by_node(volume[mine], node[mine])[:, nodes]
        # A pod that adds no volume fits even where a limit that was lowered is exceeded.
        fits: Bools = ((more == 0) | (held + more <= tables.limit[:, nodes])).all(axis=0)
        return fits


Counts = Callable[[SessionView, PodRows, NodeRows], Bools]
"""Choose of pods, each on its node, those whose volumes count there."""


def _is_kept(session: SessionView, pods: PodRows, nodes: NodeRows) -> Bools:
    columns = session.columns
    leaving: Bools = ((LEAVING >> columns.status[pods]) & 1).astype(np.bool_)
    in_place: Bools = nodes == columns.node[pods]
    return in_place & ~leaving


def _is_there(session: SessionView, pods: PodRows, nodes: NodeRows) -> Bools:
    columns = session.columns
    promised: Bools = (columns.status[pods] == Status.PIPELINED) & (nodes == columns.node[pods])
    left: Bools = (columns.left[pods] == nodes[:, np.newaxis] + 1).any(axis=1)
    return ~promised | left
