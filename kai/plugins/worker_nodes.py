"""Keep GPU pods and CPU pods apart: each kind only on the nodes that a label sets aside for it.

Does nothing unless the scheduler's parameter ``restrict_node_scheduling`` is set; nodes without either label are then
no part of a snapshot at all.

Source: the peer's plugins/predicates under its flag restrict-node-scheduling.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import Bools, Dependence, Extension, GpuKind, NodeFilter, NodeRows, PodRow, SessionView, Shape


@attrs.frozen(kw_only=True)
class WorkerNodes:
    """Refuse nodes without the label for the kind of pod; its value does not matter.

    Labels that are not given are those of the scheduler's parameters.
    """

    cpu_label: str = ""
    gpu_label: str = ""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, or nothing if scheduling is not restricted."""
        if not session.parameters.restrict_node_scheduling:
            return ()
        wants_gpu = np.array([_wants_gpu(shape) for shape in session.snapshot.shapes], np.bool_)
        for_cpu = session.label_codes(self.cpu_label or session.parameters.cpu_worker_label) > 0
        for_gpu = session.label_codes(self.gpu_label or session.parameters.gpu_worker_label) > 0

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            return (for_gpu if wants_gpu[session.shape_of(pod)] else for_cpu)[nodes]

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            kind = "gpu" if wants_gpu[session.shape_of(pod)] else "cpu"
            return [f"{kind} pods can't run on non {kind} nodes"] * len(nodes)

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes),)


def _wants_gpu(shape: Shape) -> bool:
    return shape.gpu.kind is not GpuKind.NONE or shape.gpu.claimed > 0
