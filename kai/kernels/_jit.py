"""The one place that compiles.

``@kernel`` compiles a function for the CPU on its first call: without the GIL (the service's event loop keeps its
deadlines during a long cycle), without fast-math (a changed order of additions would change a decision) and cached on
disk. With ``NUMBA_DISABLE_JIT=1`` the very same functions run as plain Python, which the test suite does to compare the
two.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

from kai.kernels.cache import install, spare

P = ParamSpec("P")
R = TypeVar("R")

CACHED = install()
KERNELS: list[Any] = []
"""Every kernel that Python can call, in the order in which they were defined; none with the JIT off."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` compiled; its signature stays visible to type checkers.

    Cost: one compilation per argument signature, then about 0.2 microseconds plus 0.1 per argument for each call.
    """
    compiled = numba.njit(nogil=True, cache=CACHED, error_model="numpy")(function)
    spare(compiled, called_by_python=True)
    if compiled is not function:
        KERNELS.append(compiled)
    return cast("Callable[P, R]", compiled)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` compiled for kernels only: Python cannot call it.

    Wrappers for Python are a good part of what a small kernel costs to compile, so those that only other kernels call
    do without.
    """
    njit: Any = numba.njit  # its types leave out the two options about wrappers
    compiled = njit(nogil=True, cache=CACHED, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(
        function
    )
    spare(compiled, called_by_python=False)
    return cast("Callable[P, R]", compiled)
