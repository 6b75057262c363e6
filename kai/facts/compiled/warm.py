"""Prepares every kernel before the first cycle needs it: loads it from the cache, or compiles and caches it.

Plugins may have kernels. A caller of ``warm`` imports the plugins first and names their modules.

A kernel is compiled for the annotations of its parameters. A call with other types would compile it a second time in
the middle of a cycle; the test suite checks that no code does.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from kai.facts.compiled.cache import NAME, PACKAGE, directory, is_kept, package_of
from kai.facts.compiled.compiling import compiled_type
from kai.facts.compiled.jit import KERNELS, Kernel, prepare

Tell = Callable[[int, int], None]
"""Receives the number of kernels compiled so far, and of all kernels to compile."""


class Warmth(NamedTuple):
    """The number of ready kernels, the number compiled for it, and their cache directory (None: not cached)."""

    kernels: int
    compiled: int
    directory: Path | None


def warm(*modules: str, tell: Tell | None = None) -> Warmth:
    """Load or compile every kernel that Python can call, ours and those in the folders of ``modules``.

    Idempotent. Kernels of other packages are included if their modules are imported. Kernels that run plainly go on
    doing so until `run_compiled`.

    Cost: some 75 seconds of processor time without a cache, else a second or two, then nothing.
    Raises: TypeError for a kernel with a parameter that has no annotation.
    """
    wanted, done = missing(*modules), 0
    for kernel in kernels_of(*modules) if prepare() else ():
        if kernel in wanted and tell is not None:
            tell(done, len(wanted))
        kernel.dispatcher.compile(signature(kernel.py_func))
        done += kernel in wanted
    if wanted and tell is not None:
        tell(done, len(wanted))
    return Warmth(len(kernels_of(*modules)) if prepare() else 0, done, directory())


def missing(*modules: str) -> list[Kernel]:
    """Return the kernels that `warm` would compile, because they are neither loaded nor cached for this processor.

    Cost: a twentieth of a second, and the import of numba.
    """
    for module in sorted(each.name for each in pkgutil.iter_modules([str(PACKAGE)])):
        importlib.import_module(f"{NAME}.{module}")
    if not prepare():
        return []
    return [each for each in kernels_of(*modules) if not is_kept(each.dispatcher, signature(each.py_func))]


def kernels_of(*modules: str) -> list[Kernel]:
    """Return our kernels and those imported from the folders of ``modules`` and below."""
    packages = tuple(f"{package_of(module)}." for module in (f"{NAME}.", *modules))
    return [kernel for kernel in KERNELS if f"{kernel.py_func.__module__}.".startswith(packages)]


def signature(function: Any) -> tuple[Any, ...]:  # noqa: ANN401  a kernel has any parameters
    """Return the types for which a kernel is compiled."""
    hints = get_type_hints(function, include_extras=True)
    return tuple(_compiled(function, name, hints.get(name)) for name in inspect.signature(function).parameters)


def _compiled(function: Any, name: str, hint: object) -> Any:  # noqa: ANN401  numba's types have none
    try:
        return compiled_type(hint)
    except KeyError:
        found = "no type" if hint is None else hint
        where = f"kernel {function.__module__}.{function.__qualname__}: parameter {name}"
        expected = "int, float, bool, an array type of kai.framework.kernel, or a Struct"
        raise TypeError(f"{where}: found {found}, expected {expected}") from None
