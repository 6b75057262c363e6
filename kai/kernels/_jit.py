"""The one place that names numba.

``@kernel`` compiles a function for the CPU on its first call: without the GIL (the service's event loop keeps its
deadlines during a long cycle), without fast-math (a changed order of additions would change a decision) and cached on
disk. With ``NUMBA_DISABLE_JIT=1`` the very same functions run as plain Python, which the test suite does to compare
the two.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` compiled; its signature stays visible to type checkers.

    Cost: one compilation per argument signature, then about 0.2 microseconds plus 0.1 per array argument for each call.
    """
    return cast("Callable[P, R]", numba.njit(nogil=True, cache=True, error_model="numpy")(function))


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` compiled for kernels only: Python cannot call it.

    Unwrapping some eighty arrays for Python is most of what a small kernel costs to compile, so those that only other
    kernels call do without.
    """
    njit: Any = numba.njit  # its types leave out the two options about wrappers
    jit = njit(nogil=True, cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return cast("Callable[P, R]", jit(function))
