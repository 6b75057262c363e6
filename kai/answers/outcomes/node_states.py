"""Why and since when a node takes no pods, and how many of its GPUs have failed, from its Node object."""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kai.api import names
from kai.api.kubernetes.node import Node, Taint
from kai.facts.model import pod as model
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.units import amounts

READY: Final = "Ready"
OWN_TAINTS: Final = "node.kubernetes.io/"
"""Prefix of taints that the control plane sets, and removes when their cause is gone."""
_CORDONED: Final = f"{OWN_TAINTS}unschedulable"


@attrs.frozen(kw_only=True)
class NodeState:
    """A node that takes no pods, or that offers fewer GPUs than it has."""

    node: Node
    closed: str
    """The condition that keeps pods away: ``cordoned``, ``not ready``; "" where nothing does."""
    since: float | None
    """Start of that condition, in seconds since the epoch; None where the object does not have it."""
    why: str
    """The reason that its kubelet reports."""
    failed: int
    """GPUs that it has and does not offer."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.metadata.name


def state_of(node: Node, closed: str) -> NodeState:
    """Return the state of a node; ``closed`` is the reason for which the scheduler keeps pods away."""
    bad = next((each for each in node.status.conditions if each.type == READY and each.status != "True"), None)
    cordon = next((taint for taint in node.spec.taints if taint.key == _CORDONED), None)
    since = None
    if closed:
        since = bad.last_transition_time if bad is not None else cordon.time_added if cordon is not None else None
    return NodeState(
        node=node,
        closed=closed,
        since=since,
        why=bad.reason if bad is not None else "",
        failed=sum(most - offered for most, offered in _gpus(node)),
    )


def states_of(nodes: Iterator[Node], known: Mapping[str, model.Node]) -> list[NodeState]:
    """Return the states of nodes that take no pods or have lost GPUs; ``known`` are the nodes of the snapshot."""
    found = (state_of(each, known[each.metadata.name].closed) for each in nodes if each.metadata.name in known)
    return [each for each in found if each.closed or each.failed]


def _gpus(node: Node) -> Iterator[tuple[int, int]]:
    """Yield capacity and allocatable of each GPU resource where the node offers fewer than it has."""
    for resource in names.GPU_RESOURCES:
        if resource in node.status.capacity:
            most, offered = (
                amounts(((resource, each.get(resource, "0")),)).get("gpu", 0) // GPU_UNIT
                for each in (node.status.capacity, node.status.allocatable)
            )
            if offered < most:
                yield most, offered


def uncordoned(node: Node) -> Node:
    """Return a node as ``kubectl uncordon`` leaves it."""
    spec = attrs.evolve(node.spec, unschedulable=False, taints=_without(node.spec.taints, _CORDONED))
    return attrs.evolve(node, spec=spec)


def recovered(node: Node) -> Node:
    """Return a node whose kubelet reports healthy conditions, without the taints of unhealthy ones."""
    conditions = tuple(
        attrs.evolve(each, status="True" if each.type == READY else "False") for each in node.status.conditions
    )
    spec = attrs.evolve(
        node.spec,
        taints=tuple(each for each in node.spec.taints if not each.key.startswith(OWN_TAINTS) or each.key == _CORDONED),
    )
    return attrs.evolve(node, spec=spec, status=attrs.evolve(node.status, conditions=conditions))


def repaired(node: Node) -> Node:
    """Return a node that offers all GPUs that it has."""
    has = {each: node.status.capacity[each] for each in names.GPU_RESOURCES if each in node.status.capacity}
    return attrs.evolve(node, status=attrs.evolve(node.status, allocatable={**node.status.allocatable, **has}))


def _without(taints: tuple[Taint, ...], key: str) -> tuple[Taint, ...]:
    return tuple(each for each in taints if each.key != key)
