"""The one place that compiles: functions, and the structs that they take. Imported when kernels are compiled.

A function is compiled for the CPU on its first call: without the GIL (the service's event loop keeps its deadlines
during a long cycle), without fast-math (a changed order of additions would change a decision) and cached on disk.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numba
import numpy as np
from numba.core import types
from numba.experimental import structref

from kai.facts.compiled import struct
from kai.facts.compiled.cache import identity, install, spare
from kai.facts.compiled.linking import KernelCompiler
from kai.facts.compiled.struct import Struct, array_of

# Parts of numba that its own types do not describe.
_CONFIG: Any = numba.config
_STRUCTREF: Any = structref
_NJIT: Any = numba.njit

IS_OFF: Final[bool] = bool(_CONFIG.DISABLE_JIT)
_LEVEL: Final = 1
"""LLVM's optimization level. Levels two and three make compiling 8 and 17 % slower, and kernels no faster."""
_NUMBAS_LEVEL: Final = 3
_CACHED: Final = install()
if _CONFIG.OPT == _NUMBAS_LEVEL:  # unless NUMBA_OPT sets another level; done before anything is compiled
    _CONFIG.OPT = type(_CONFIG.OPT)(_LEVEL)
_SCALARS = {int: types.int64, float: types.float64, bool: types.boolean}
_ELEMENTS = {np.int64: types.int64, np.float64: types.float64, np.bool_: types.boolean}
KernelCompiler.identity = staticmethod(identity)


def compiled(function: Callable[..., Any], *, called_by_python: bool, for_each_number: bool = False) -> Any:  # noqa: ANN401 - numba ships no types
    """Return ``function`` in a form that numba compiles when it is called.

    numba treats a literal number in a call as a type of its own. Here it does so only ``for_each_number``.
    """
    wrappers = {"no_cpython_wrapper": not called_by_python, "no_cfunc_wrapper": True}
    # With numba's own error model each division has a branch that raises; kernels check divisors where they may be 0.
    options = {"nogil": True, "cache": _CACHED, "error_model": "numpy", **wrappers}
    made = _NJIT(pipeline_class=KernelCompiler, **options)(function)
    spare(made, called_by_python=called_by_python)
    if not for_each_number:
        made._compiler.fold_argument_types = partial(_of_any_number, made._compiler.fold_argument_types)
    return made


def _of_any_number(fold: Callable[..., Any], arguments: Any, named: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401 - as above
    """Return the argument types to compile a call for, with literal numbers generalized."""
    parameters, folded = fold(arguments, named)
    return parameters, tuple(types.unliteral(kind) for kind in folded)  # type: ignore[no-untyped-call]  # numba ships no types


def type_of(compiled_function: Any) -> Any:  # noqa: ANN401 - as above
    """Return the compiler's type of a compiled function."""
    return compiled_function._numba_type_


def compiled_type(hint: Any) -> Any:  # noqa: ANN401 - as above
    """Return the compiler's type for the annotation of a field, or of a kernel's parameter."""
    array = array_of(hint)
    if array is not None:
        return types.Array(_ELEMENTS[array.element], array.dimensions, "C")
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint._numba_type_
    return _SCALARS[hint]


class _StructType(types.StructRef):
    """The compiler's type of a struct.

    The type's name is part of the name of every function that takes one. numba would put all fields into it: names of
    fifteen thousand letters, which would be nine tenths of the cache and have to be read at every start.
    """

    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        """Store the fields; each class has one list of fields, so the name of the class suffices."""
        super().__init__(fields)  # type: ignore[no-untyped-call]  # numba ships no types
        self.name = f"{type(self).__module__}.{type(self).__name__}"

    def preprocess_fields(self, fields: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        """Return the fields as they are: none of them is a literal."""
        return fields


def make_known(cls: type[Struct]) -> Callable[..., Any]:
    """Create the compiler's type of a struct, and return a function that fills one from its fields in order.

    Structs in its fields must be known before. The function is annotated like the fields.
    """
    name = f"{cls.__name__}Type"
    kind = type(name, (_StructType,), {"__module__": cls.__module__})
    # Compiled code refers to the type by its module and name, also when it comes out of the cache.
    setattr(sys.modules[cls.__module__], name, kind)
    _STRUCTREF.register(kind)
    _STRUCTREF.define_boxing(kind, cls)
    # Calls of kernels read this attribute for each argument.
    cls._numba_type_ = kind([(field, compiled_type(hint)) for field, hint in cls._fields.items()])
    return _constructor(cls)


def _constructor(cls: type[Struct]) -> Callable[..., Any]:
    """Return the function that is compiled to fill a struct.

    Its source is generated, but compiled under the name of the file of structs, because a cache needs a file to watch.
    """
    names = list(cls._fields)
    lines = [f"def make_{cls.__name__}({', '.join(names)}):", "    _struct = _new(_kind)"]
    lines += [f"    _struct.{name} = {name}" for name in names]
    scope: dict[str, Any] = {"_new": structref.new, "_kind": cls._numba_type_, "__name__": cls.__module__}
    text = "\n".join([*lines, "    return _struct"])
    exec(compile(text, str(struct.__file__), "exec"), scope)  # noqa: S102  our own text, above
    function: Callable[..., Any] = scope[f"make_{cls.__name__}"]
    function.__annotations__ = dict(cls._fields)
    return function


__all__ = ["IS_OFF", "compiled", "compiled_type", "make_known", "type_of"]
