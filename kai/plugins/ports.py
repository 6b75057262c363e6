"""Let no two pods open the same port on one node.

A pod keeps its ports until it is gone. A pod that is terminating, or evicted, refuses no other pod its node; but the
other is promised its place there, and bound only once the port is free.

Source: the peer's plugins/predicates, which runs kube-scheduler's NodePorts filter. There a terminating pod refuses the
others as long as it is there, so no pod is ever evicted for a port.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Dependence,
    Extension,
    HostPort,
    NodeFilter,
    NodeRows,
    NodeWait,
    PodRow,
    PodRows,
    SessionView,
)

REFUSED = "node(s) didn't have free ports for the requested pod ports"
ANY_ADDRESS = ("", "0.0.0.0")  # noqa: S104  how a pod says that it listens on every address; nothing listens here

PortSet = tuple[HostPort, ...]


@attrs.frozen(kw_only=True)
class Ports:
    """Refuse nodes where a pod holds a port that the pod wants."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for the shapes that want ports."""
        wanted = session.snapshot.by_shape("host ports of shapes", lambda shape: shape.constraints.host_ports)
        concerns = np.array([bool(ports) for ports in wanted], np.bool_)
        if not concerns.any():
            return ()
        wanting = session.once("shapes by port", (wanted,), lambda: _Wanting(wanted))
        rivals: dict[PortSet, PodRows] = {}

        def rivals_of(pod: PodRow) -> PodRows:
            ports = wanted[session.shape_of(pod)]
            if ports not in rivals:
                rivals[ports] = session.pods_of_shapes(wanting.rivals(ports))
            return rivals[ports]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            free = np.ones(len(session.snapshot.nodes), np.bool_)
            _, taken = session.staying(rivals_of(pod))
            free[taken] = False
            return free[nodes]

        def must_wait(pod: PodRow, nodes: NodeRows) -> Bools:
            waits = np.zeros(len(session.snapshot.nodes), np.bool_)
            _, taken = session.leaving(rivals_of(pod))
            waits[taken] = True
            return waits[nodes]

        return (
            # A pod that wants a port keeps off every other pod that wants the same, those like it too.
            NodeFilter(filter_nodes, depends=Dependence.SESSION, concerns=concerns, explain=_explain, single=concerns),
            NodeWait(must_wait, concerns=concerns),
        )


class _Wanting:
    """Which shapes want each port, by number: comparing each set of ports with all others would be quadratic."""

    def __init__(self, wanted: Sequence[PortSet]) -> None:
        self._count = len(wanted)
        self._shapes: dict[tuple[str, int], dict[str, list[int]]] = {}
        """By protocol and number, then by address."""
        for shape, ports in enumerate(wanted):
            for each in ports:
                self._shapes.setdefault((each.protocol, each.port), {}).setdefault(each.address, []).append(shape)

    def rivals(self, ports: PortSet) -> Bools:
        """Return bool[K]: the shapes of pods that cannot be on one node with a pod that wants ``ports``."""
        found = np.zeros(self._count, np.bool_)
        for port in ports:
            for address, shapes in self._shapes.get((port.protocol, port.port), {}).items():
                if _is_shared(port.address, address):
                    found[shapes] = True
        return found


def _is_shared(mine: str, theirs: str) -> bool:
    return mine == theirs or mine in ANY_ADDRESS or theirs in ANY_ADDRESS


def _explain(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
    del pod
    return [REFUSED] * len(nodes)
