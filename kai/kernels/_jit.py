"""Kernels: functions over columns that run compiled, or as the plain Python that they are written in.

Compiled they are a hundred times quicker, but numba takes half a second to import, and compiling takes minutes. So a
kernel is plain until the process says how its kernels run: `run_plainly`, or `run_compiled`. A process that says
neither compiles with the first call of a kernel. Either may follow the other between two cycles: both forms read the
same arrays and decide the same, bit for bit. With ``NUMBA_DISABLE_JIT=1`` kernels stay plain whatever is said.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from kai.kernels.struct import STRUCTS

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(partial[Any]):
    """A function that Python calls, in the form in which kernels run.

    It is a partial without arguments, whose function is replaced: of all callables whose target can change, C passes
    the arguments of this one on at once.
    """

    py_func: Callable[..., Any]
    dispatcher: Any = None
    """The compiled form, once kernels are compiled."""
    _numba_type_: Any = None
    """What the compiler knows the compiled form by, where other kernels call this one."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Kernel":
        """Return the kernel of ``function``."""
        made = cls(function)
        made.py_func = made.__wrapped__ = function  # type: ignore[attr-defined]  # where `inspect` looks
        made.__doc__ = function.__doc__
        return made

    def aim_at(self, target: Callable[..., Any]) -> None:
        """Have calls go to ``target`` from now on."""
        cast("Any", self).__setstate__((target, (), {}, self.__dict__))

    def begin(self, *arguments: Any) -> Any:  # noqa: ANN401 - whatever the kernel takes and returns
        """Have the compiler know the kernels, now that one is called, and call it."""
        if prepare():
            for each in KERNELS:
                each.aim_at(each.dispatcher)
        else:
            run_plainly()
        return self(*arguments)


KERNELS: list[Kernel] = []
"""Every kernel that Python can call, in the order in which they were defined."""
FOR_EACH_NUMBER: set[Callable[..., Any]] = set()
"""Functions that are compiled anew for each number that is written in a call."""
_pending: list[Kernel | Callable[..., Any]] = []
"""What was defined since kernels were compiled last; functions are for other kernels only."""


class _Running:
    """How kernels run in this process."""

    is_plain: bool | None = None


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` as a kernel that Python calls; its signature stays visible to type checkers.

    Cost: compiled, one compilation for each signature of arguments, then about 0.2 microseconds plus 0.1 for each
    argument of a call.
    """
    made = Kernel.of(function)
    made.aim_at(function if _Running.is_plain else made.begin)
    KERNELS.append(made)
    _pending.append(made)
    return cast("Callable[P, R]", made)


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` for kernels only: compiled, Python cannot call it, and what it calls is the plain form.

    Wrappers for Python are a good part of what a small kernel costs to compile, so those that only other kernels call
    do without.
    """
    _pending.append(function)
    return function


def for_each_number(function: Callable[P, R]) -> Callable[P, R]:
    """Have ``function`` compiled anew for each number that a kernel writes in a call of it.

    It pays where the number decides which part of a large function is run.
    """
    FOR_EACH_NUMBER.add(function)
    return function


def is_plain() -> bool | None:
    """Say whether kernels run as plain Python; None if nothing was said about it."""
    return _Running.is_plain


def run_plainly() -> None:
    """Have kernels run as plain Python: nothing is compiled, loaded or imported for them."""
    _Running.is_plain = True
    for each in KERNELS:
        each.aim_at(each.py_func)


def begin_plainly() -> None:
    """Have kernels run as plain Python in a process that has said nothing yet."""
    if _Running.is_plain is None:
        run_plainly()


def run_compiled() -> None:
    """Have kernels run compiled; each is compiled, or loaded from the cache, with its first call.

    Cost: half a second with the first call of any, once in a process.
    """
    _Running.is_plain = False
    for each in KERNELS:
        each.aim_at(each.begin)


def prepare() -> bool:
    """Make the compiler know all kernels that were defined so far; return whether there is a compiler at all.

    Kernels that run plainly go on doing so. A process that said nothing runs them compiled from now on.

    Holds: threads that call it at once all return when the compiler knows the kernels.
    """
    from kai.kernels import compiling
    from kai.kernels.cache import COMPILING

    if compiling.IS_OFF:
        return False
    with COMPILING:
        _make_known(compiling)
    return True


def _make_known(compiling: ModuleType) -> None:
    if _Running.is_plain is None:
        _Running.is_plain = False
    for struct in STRUCTS:
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
