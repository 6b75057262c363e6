"""Topology's own arithmetic: counting pods node by node.

The capacity of domains, and the choice among the domains of a tree, is a function of the engine, because its compiled
loop does the same for groups of one leaf: one shared function cannot disagree with itself.
"""

from kai.framework.kernel import Columns, Facts, Int64s, kernel, pods_on_node


@kernel
def pods_per_node(facts: Facts, columns: Columns, request: Int64s, most: int, nodes: Int64s, out: Int64s) -> None:
    """Fill ``out`` [n] with how many pods of ``request`` [R] each of ``nodes`` [n] could hold.

    ``most`` if they ask for nothing but a pod's place.
    """
    for at in range(nodes.shape[0]):
        out[at] = pods_on_node(facts, columns, request, most, nodes[at])
