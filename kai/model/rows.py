"""Row types: which table an integer indexes. A ``PodRow`` is not a ``NodeRow``; a bare ``int`` is neither."""

from typing import Any, NewType, TypeVar

import numpy as np
from numpy.typing import NDArray

NodeRow = NewType("NodeRow", int)
PodRow = NewType("PodRow", int)
GroupRow = NewType("GroupRow", int)
SubGroupRow = NewType("SubGroupRow", int)
QueueRow = NewType("QueueRow", int)
ShapeRow = NewType("ShapeRow", int)

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
Scores = NDArray[np.float64]
NodeRows = NDArray[np.int64]
PodRows = NDArray[np.int64]
GroupRows = NDArray[np.int64]

A = TypeVar("A", bound=NDArray[Any])

NONE = -1
"""The row that says "nowhere": a pod without a node, a queue without a parent."""


def locked(array: A) -> A:
    """Return a view of ``array`` that cannot be written; it shows what is written to ``array`` itself."""
    view = array.view()
    view.flags.writeable = False
    return view
