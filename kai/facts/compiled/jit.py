"""Kernels: functions over columns that run compiled or as plain Python.

Compiled kernels are a hundred times faster, but the import of numba takes half a second, and compiling takes minutes.
So a kernel stays plain until the process chooses: `run_plainly` or `run_compiled`. A process that does not choose
compiles at the first call of a kernel. The choice may change between cycles: both forms read the same arrays and decide
the same, bit for bit. With ``NUMBA_DISABLE_JIT=1`` kernels always stay plain.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from kai.facts.compiled.struct import STRUCTS

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(partial[Any]):
    """A function that Python calls, and that runs as the process chose.

    It is a partial without arguments whose target is replaced. Among callables with a changeable target it is the
    fastest, because C passes its arguments on directly.
    """

    py_func: Callable[..., Any]
    dispatcher: Any = None
    """The compiled form, once kernels are compiled."""
    _numba_type_: Any = None
    """The compiler's handle for the compiled form, for calls from other kernels."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Kernel":
        """Return the kernel of ``function``."""
        made = cls(function)
        made.py_func = made.__wrapped__ = function  # type: ignore[attr-defined]  # where `inspect` looks
        made.__doc__ = function.__doc__
        return made

    def aim_at(self, target: Callable[..., Any]) -> None:
        """Redirect calls to ``target``."""
        # The one way to change the target of a partial in place. Modules import kernels by name, so another object
        # would not reach them.
        cast("Any", self).__setstate__((target, (), {}, self.__dict__))

    def begin(self, *arguments: Any) -> Any:  # noqa: ANN401 - whatever the kernel takes and returns
        """Register all kernels with the compiler at the first call, then call this one."""
        if prepare():
            for each in KERNELS:
                each.aim_at(each.dispatcher)
        else:
            run_plainly()
        # Aimed elsewhere by now, so this does not come back here.
        return self(*arguments)


KERNELS: list[Kernel] = []
"""Every kernel that Python can call, in the order in which they were defined."""
FOR_EACH_NUMBER: set[Callable[..., Any]] = set()
"""Functions that are compiled anew for each literal number in a call."""
_pending: list[Kernel | Callable[..., Any]] = []
"""Kernels and inner functions that the compiler does not know yet."""


class _Running:
    """The form in which kernels run in this process."""

    is_plain: bool | None = None


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` as a kernel that Python calls; its signature stays visible to type checkers.

    Cost: one compilation for each signature; then, compiled, about 0.2 microseconds a call plus 0.1 for each argument.
    """
    made = Kernel.of(function)
    # A kernel of a plugin may be defined after the process chose; it follows that choice.
    made.aim_at(function if _Running.is_plain else made.begin)
    KERNELS.append(made)
    _pending.append(made)
    return cast("Callable[P, R]", made)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` for kernels only: Python cannot call its compiled form, only the plain one.

    Wrappers for Python are a good part of the compile time of a small kernel, so functions that only kernels call have
    none.
    """
    _pending.append(function)
    return function


def for_each_number(function: Callable[P, R]) -> Callable[P, R]:
    """Have ``function`` compiled anew for each literal number in a call from a kernel.

    It pays if the number selects which part of a large function runs.
    """
    FOR_EACH_NUMBER.add(function)
    return function


def is_plain() -> bool | None:
    """Return whether kernels run as plain Python; None if the process has not chosen."""
    return _Running.is_plain


def run_plainly() -> None:
    """Run kernels as plain Python: nothing is compiled, loaded or imported for them."""
    _Running.is_plain = True
    for each in KERNELS:
        each.aim_at(each.py_func)


def begin_plainly() -> None:
    """Run kernels as plain Python, unless the process has chosen already."""
    if _Running.is_plain is None:
        run_plainly()


def run_compiled() -> None:
    """Run kernels compiled; each is compiled, or loaded from the cache, at its first call.

    Cost: half a second with the first call of any, once in a process.
    """
    _Running.is_plain = False
    for each in KERNELS:
        each.aim_at(each.begin)


def prepare() -> bool:
    """Register all kernels defined so far with the compiler; return whether there is a compiler.

    Kernels that run plainly go on doing so. If the process has not chosen, kernels run compiled from now on.

    Holds: concurrent calls all return only when the compiler knows the kernels.
    """
    # Here and not above: this import is what takes half a second, and a plain process never needs it.
    from kai.facts.compiled import compiling
    from kai.facts.compiled.cache import COMPILING

    if compiling.IS_OFF:
        return False
    with COMPILING:
        _make_known(compiling)
    return True


def _make_known(compiling: ModuleType) -> None:
    if _Running.is_plain is None:
        _Running.is_plain = False
    for struct in STRUCTS:
        # Structs before kernels: the types in a kernel's signature must be known when it is registered.
        if struct.constructor is None:
            struct.constructor = cast("Kernel", kernel(compiling.make_known(struct)))
    while _pending:
        each = _pending[0]
        function = each.py_func if isinstance(each, Kernel) else each
        compiled = compiling.compiled(
            function, called_by_python=isinstance(each, Kernel), for_each_number=function in FOR_EACH_NUMBER
        )
        known: Any = each
        known.dispatcher, known._numba_type_ = compiled, compiling.type_of(compiled)
        # Taken off last, so that a failure leaves it to the next call.
        _pending.pop(0)


__all__ = [
    "KERNELS",
    "Kernel",
    "begin_plainly",
    "for_each_number",
    "inner",
    "is_plain",
    "kernel",
    "prepare",
    "run_compiled",
    "run_plainly",
]
