"""Compiled arithmetic for plugins: what a kernel is made with, and the columns that it reads.

``@kernel`` compiles a function for the CPU; Python calls it with arrays, numbers and structs, each parameter annotated
with one of the types here. ``@inner`` compiles a function that only kernels call. Both leave Python's lock to others,
keep the order of additions, and are kept on disk:

    from kai.framework.kernel import Float64s, Int64s, kernel

    @kernel
    def add_up(amounts: Int64s, racks: Int64s, sums: Int64s) -> None:
        for at in range(amounts.shape[0]):
            sums[racks[at]] += amounts[at]

What is compiled follows from the sources in the folder of the module, from those of the folders whose kernels, structs
and numbers the module imports by name, and from kai's own kernels. An edit of any of them compiles the folder's kernels
anew, and nothing else. ``kai warm`` compiles the kernels of all installed plugins beforehand. A process that decides on
small clusters runs kernels as the plain Python that they are written in (`kai.facts.compiled.pace`), and any process
does with ``NUMBA_DISABLE_JIT=1``.

A kernel writes to arrays that its plugin made. ``Facts`` and ``Columns`` are the engine's; they are to be read only.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, BoolTable, Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import (
    ACTIVE_ALLOCATED,
    CPU,
    GPU,
    GPU_UNIT,
    MEMORY,
    PODS,
    SHARED_RESOURCES,
    Columns,
    Facts,
)
from kai.facts.kernels.domains import domain_room, pods_on_node

__all__ = [
    "ACTIVE_ALLOCATED",
    "CPU",
    "GPU",
    "GPU_UNIT",
    "MEMORY",
    "PODS",
    "SHARED_RESOURCES",
    "BoolTable",
    "Bools",
    "Columns",
    "Facts",
    "Float64Table",
    "Float64s",
    "Int64Table",
    "Int64s",
    "Struct",
    "accepted_gpu",
    "domain_room",
    "inner",
    "kernel",
    "pods_on_node",
]
