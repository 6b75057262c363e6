"""Pods that nodes refused: they get shapes of their own, which say which nodes not to try.

A shape is what the engine asks about once for all of its pods, so a refusal costs what a node selector costs. The
signature changes with it: that no node is found for such a pod says nothing about others.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

import attrs
import numpy as np

from kai.intake.pods import PodRecord
from kai.intake.traits import digest
from kai.model.noroom import NoRoom
from kai.model.pod import Pod, Shape
from kai.model.rows import Int64s
from kai.state.items import replaced

_order = attrgetter("order")


def with_refusals(
    refused: Sequence[NoRoom],
    records: Sequence[PodRecord],
    pods: Sequence[Pod],
    shapes: tuple[Shape, ...],
    pod_shape: Int64s,
) -> tuple[Sequence[Pod], tuple[Shape, ...], Int64s]:
    """Return pods, shapes and the shape of each pod, with those of refused pods replaced; new shapes come last."""
    by_row: dict[int, list[tuple[str, str]]] = {}
    for each in refused:
        row = bisect_left(records, (each.namespace, each.pod), key=_order)
        if row < len(records) and records[row].order == (each.namespace, each.pod) and pods[row].uid == each.uid:
            by_row.setdefault(row, []).append((each.node, each.reason))
    if not by_row:
        return pods, shapes, pod_shape
    made: dict[Shape, int] = {}
    numbers, changed = pod_shape.copy(), dict[int, Pod]()
    for row, refusing in sorted(by_row.items()):
        shape = shapes[pod_shape[row]]
        shape = attrs.evolve(shape, constraints=attrs.evolve(shape.constraints, refusing=tuple(sorted(refusing))))
        numbers[row] = made.setdefault(shape, len(shapes) + len(made))
        nodes = sorted(node for node, _ in refusing)
        changed[row] = attrs.evolve(pods[row], signature=digest([pods[row].signature, nodes]))
    return replaced(pods, changed), (*shapes, *made), numbers.astype(np.int64)
