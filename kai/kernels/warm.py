"""Have every kernel ready before the first cycle needs it: loaded from the cache, or compiled and kept there.

Plugins bring kernels of their own. A caller of ``warm`` imports the plugins first and names their modules.

What a kernel is compiled for is what its parameters are annotated with. Who calls it with anything else has it compiled
a second time in the middle of a cycle; the suite checks that no code does.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from kai.kernels._jit import KERNELS, Kernel, prepare
from kai.kernels.cache import NAME, PACKAGE, directory, is_kept, package_of
from kai.kernels.compiling import compiled_type

Tell = Callable[[int, int], None]
"""Takes how many kernels were compiled so far, and how many there are to compile."""


class Warmth(NamedTuple):
    """How many kernels are ready, how many of them were compiled for it, and where they are kept (None: nowhere)."""

    kernels: int
    compiled: int
    directory: Path | None


def warm(*modules: str, tell: Tell | None = None) -> Warmth:
    """Load or compile every kernel that Python can call, of ours and of the folders that ``modules`` are in.

    Doing it again changes nothing. Kernels of other packages count as far as their modules are imported. Kernels that
    run plainly go on doing so until `run_compiled`.

    Cost: some 75 seconds of processor where nothing is cached yet, else a second or two, then nothing.
    Raises: TypeError for a kernel that does not say what its parameters are.
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
    """Return the kernels that `warm` would compile: those that are neither loaded nor cached for this processor.

    Cost: a twentieth of a second, and importing numba.
    """
    for module in sorted(each.name for each in pkgutil.iter_modules([str(PACKAGE)])):
        importlib.import_module(f"{NAME}.{module}")
    if not prepare():
        return []
    return [each for each in kernels_of(*modules) if not is_kept(each.dispatcher, signature(each.py_func))]


def kernels_of(*modules: str) -> list[Kernel]:
    """Return our kernels and those that were imported from the folders of ``modules`` and below."""
    packages = tuple(f"{package_of(module)}." for module in (f"{NAME}.", *modules))
    return [kernel for kernel in KERNELS if f"{kernel.py_func.__module__}.".startswith(packages)]


def signature(function: Any) -> tuple[Any, ...]:  # noqa: ANN401  a kernel has any parameters
    """Return the types that a kernel is compiled for."""
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
