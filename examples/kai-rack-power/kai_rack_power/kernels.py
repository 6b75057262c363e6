"""The compiled part: which nodes are in racks that have power left."""

from kai.framework.kernel import Bools, Int64s, kernel


@kernel
def within_caps(racks: Int64s, caps: Int64s, drawn: Int64s, draw: int, nodes: Int64s, fits: Bools) -> None:
    """Fill ``fits`` [n]: whether the rack of each of ``nodes`` [n] may draw ``draw`` more; a cap of -1 is none."""
    for at in range(nodes.shape[0]):
        rack = racks[nodes[at]]
        fits[at] = caps[rack] < 0 or drawn[rack] + draw <= caps[rack]
