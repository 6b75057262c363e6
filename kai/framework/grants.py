"""What pods receive where they are bound: devices by name, portions, what plugins add. Made for many pods at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kai.framework.decisions import Bind
from kai.kernels import booking
from kai.model.axis import GPU, GPU_UNIT
from kai.model.pod import GpuKind
from kai.model.rows import Int64s, NodeRow, PodRow

if TYPE_CHECKING:
    from kai.framework.session import Session

FRACTION = "Fraction"


class Grants:
    """The decisions to bind of one session. What is the same for all pods of a shape is worked out once."""

    def __init__(self, session: "Session", slot_names: Sequence[str]) -> None:
        """Begin with nothing worked out; ``slot_names`` [S] is empty for devices that nobody shares yet."""
        self._session = session
        self._slot_names = slot_names
        self._of_shape: dict[int, tuple[str, int, float | None]] = {}
        self._annotating = [plugin for plugin in session.policy.plugins if plugin.hooks.annotate is not None]

    def bindings(self, pods: Int64s) -> list[Bind]:
        """Return the decisions to bind ``pods`` where they are. Cost: about a microsecond for each."""
        session = self._session
        columns = session.columns
        rows, nodes, shapes = pods.tolist(), columns.node[pods].tolist(), session.facts.pods.shape[pods].tolist()
        placements = columns.placement[pods]
        if not placements.any() and not self._annotating:
            whole = [self._of_shape.get(shape) or self._grant(shape) for shape in shapes]
            return [
                Bind(pod=pod, node=node, received=received, gpu_count=count)
                for pod, node, (received, count, _) in zip(rows, nodes, whole, strict=True)
            ]
        full = session.has_details(placements) | bool(self._annotating)
        devices = self._devices(nodes, placements)
        out: list[Bind] = []
        for pod, node, shape, names, special in zip(rows, nodes, shapes, devices, full.tolist(), strict=True):
            received, count, portion = self._of_shape.get(shape) or self._grant(shape)
            if special:
                out.append(self._in_full(pod, node, shape, names))
            elif received != FRACTION:
                out.append(Bind(pod=pod, node=node, received=received, gpu_count=count))
            else:
                part = self._portion(shape, node) if portion is None else portion
                out.append(
                    Bind(pod=pod, node=node, devices=names, received=received, gpu_count=count, gpu_portion=part)
                )
        return out

    def devices_of(self, pods: Int64s) -> list[tuple[str, ...]]:
        """Return the names of the shared devices of each pod; ``+node/n`` is one that is opened in this cycle."""
        columns = self._session.columns
        return self._devices(columns.node[pods].tolist(), columns.placement[pods])

    def _devices(self, nodes: list[int], placements: Int64s) -> list[tuple[str, ...]]:
        slots = self._session.columns.placement_slots[placements]
        width = int((slots >= 0).sum(axis=1).max(initial=0))
        # Slots of a placement come first in its row.
        return [self._names(node, row) for node, row in zip(nodes, slots[:, :width].tolist(), strict=True)]

    def _names(self, node: int, slots: list[int]) -> tuple[str, ...]:
        return tuple([self._slot_names[slot] or self._new_name(node, slot) for slot in slots if slot >= 0])

    def _portion(self, shape: int, node: int) -> float:
        return booking.portion_on_node(self._session.facts, shape, node) / 100

    def _new_name(self, node: int, slot: int) -> str:
        session = self._session
        start = int(session.facts.nodes.slot_start[node]) if node >= 0 else 0
        return f"+{session.snapshot.nodes[node].name}/{slot - start}"

    def _in_full(self, pod: int, node: int, shape: int, devices: tuple[str, ...]) -> Bind:
        """Return the decision with what plugins chose and what they want to be written."""
        session = self._session
        received, count, portion = self._grant(shape)
        details = session.details(pod)
        annotations: dict[str, str] = {}
        for plugin in self._annotating:
            if plugin.hooks.annotate is not None:
                annotations |= plugin.hooks.annotate(PodRow(pod), NodeRow(node), details)
        return Bind(
            pod=pod,
            node=node,
            devices=devices if received == FRACTION else (),
            received=received,
            gpu_count=count,
            gpu_portion=self._portion(shape, node) if portion is None else portion,
            details=details,
            annotations=annotations,
        )

    def _grant(self, shape: int) -> tuple[str, int, float | None]:
        """Return what pods of ``shape`` receive: kind, devices, part of each (None: it depends on the node)."""
        known = self._of_shape.get(shape)
        if known is None:
            gpu = self._session.snapshot.shapes[shape].gpu
            if gpu.shared:
                known = (FRACTION, gpu.devices, None if gpu.kind is GpuKind.MEMORY else gpu.portion)
            else:
                count = int(self._session.facts.shapes.request[shape, GPU]) // GPU_UNIT
                known = ("" if gpu.kind is GpuKind.NONE else "Regular", count, 1.0)
            self._of_shape[shape] = known
        return known
