"""One fact that proves a reason, and how facts are found."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from kai.model.axis import GPU_UNIT
from kai.simulation.explaining.changes import Site


@attrs.frozen(kw_only=True)
class Evidence:
    """One fact. Units of values: GPUs in devices, CPU in millicores, memory in bytes."""

    label: str
    text: str
    values: Mapping[str, Any] = attrs.field(factory=dict, eq=False)


Maker: TypeAlias = Callable[[Site], Iterator[Evidence]]


def in_units(amount: float, resource: str) -> float:
    """Return an amount in axis units as machines are told it: GPUs in devices, the rest as it is."""
    return amount / GPU_UNIT if resource == "gpu" else amount


__all__ = ["Evidence", "Maker", "in_units"]
