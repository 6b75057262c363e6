"""Have every kernel ready before the first cycle needs it: loaded from the cache, or compiled and kept there.

What a kernel is compiled for is what its parameters are annotated with. Who calls it with anything else has it compiled
a second time in the middle of a cycle; the suite checks that nobody does.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from kai.kernels._jit import KERNELS
from kai.kernels.cache import PACKAGE, directory
from kai.kernels.struct import compiled_type


class Warmth(NamedTuple):
    """How many kernels are ready, how many of them were compiled for it, and where they are kept (None: nowhere)."""

    kernels: int
    compiled: int
    directory: Path | None


def warm() -> Warmth:
    """Load or compile every kernel that Python can call. Doing it again changes nothing.

    Cost: a minute or two where nothing is cached yet, else a second or two, then nothing.
    """
    for module in sorted(each.name for each in pkgutil.iter_modules([str(PACKAGE)])):
        if module != "__main__":
            importlib.import_module(f"kai.kernels.{module}")
    kernels = [kernel for kernel in KERNELS if kernel.py_func.__module__.startswith("kai.kernels.")]
    compiled = 0
    for kernel in kernels:
        before = len(kernel.stats.cache_misses)
        kernel.compile(signature(kernel.py_func))
        compiled += len(kernel.stats.cache_misses) > before
    return Warmth(len(kernels), compiled, directory())


def signature(function: Any) -> tuple[Any, ...]:  # noqa: ANN401  a kernel has any parameters
    """Return the types that a kernel is compiled for."""
    hints = get_type_hints(function, include_extras=True)
    return tuple(compiled_type(hint) for name, hint in hints.items() if name != "return")
