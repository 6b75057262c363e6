"""Let no two pods open the same port on one node.

A pod keeps its ports until it is gone: evicting it frees resources in a search, but not its ports.

Source: the peer's plugins/predicates, which runs kube-scheduler's NodePorts filter; terminating pods stay on its nodes.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import Bools, Dependence, Extension, HostPort, NodeFilter, NodeRows, PodRow, PodRows, SessionView

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
        rivals: dict[PortSet, PodRows] = {}

        def rivals_of(ports: PortSet) -> PodRows:
            if ports not in rivals:
                against = {other: clash(ports, other) for other in set(wanted)}
                rivals[ports] = session.pods_of_shapes(np.array([against[other] for other in wanted], np.bool_))
            return rivals[ports]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            free = np.ones(len(session.snapshot.nodes), np.bool_)
            _, taken = session.assigned(rivals_of(wanted[session.shape_of(pod)]))
            free[taken] = False
            return free[nodes]

        return (NodeFilter(filter_nodes, depends=Dependence.SESSION, concerns=concerns, explain=_explain),)


def clash(mine: PortSet, theirs: PortSet) -> bool:
    """Return whether two pods with these ports cannot be on one node."""
    return any(_collide(left, right) for left in mine for right in theirs)


def _collide(left: HostPort, right: HostPort) -> bool:
    if (left.port, left.protocol) != (right.port, right.protocol):
        return False
    return left.address == right.address or left.address in ANY_ADDRESS or right.address in ANY_ADDRESS


def _explain(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
    del pod
    return [REFUSED] * len(nodes)
