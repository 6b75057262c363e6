"""Structs: records of arrays that kernels take by reference.

A named tuple of eighty arrays is passed by value, and every array in it is counted again at every call: microseconds
for a function that does nanoseconds of work, and minutes to compile. A struct is one pointer. From Python it is an
object with attributes, with the JIT off it is nothing else; kernels read the same names from memory.
"""

import inspect
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Self, dataclass_transform, get_args, get_origin, get_type_hints

import numba
import numpy as np
from numba.core import types
from numba.experimental import structref
from numpy.typing import NDArray

from kai.kernels._jit import kernel

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
Int64Table = Annotated[NDArray[np.int64], 2]
Float64Table = Annotated[NDArray[np.float64], 2]
BoolTable = Annotated[NDArray[np.bool_], 2]

_ELEMENTS = {np.int64: types.int64, np.float64: types.float64, np.bool_: types.boolean}
_DTYPES = {kind: np.dtype(element) for element, kind in _ELEMENTS.items()}
# Parts of numba that its own types do not describe.
_CONFIG: Any = numba.config
_STRUCTREF: Any = structref
_SCALARS = {int: types.int64, float: types.float64, bool: types.boolean}


class _StructType(types.StructRef):
    """The type that the compiler knows a struct by.

    Its name is in that of every function that takes one. numba would put all fields into it: names of fifteen thousand
    letters, which are nine tenths of what is kept of compiled kernels, and have to be read at every start.
    """

    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        """Remember the fields; there is one list of them for each class, so the class is name enough."""
        super().__init__(fields)  # type: ignore[no-untyped-call]  # numba ships no types
        self.name = f"{type(self).__module__}.{type(self).__name__}"

    def preprocess_fields(self, fields: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        """Return the fields as they are: none of them is a literal."""
        return fields


@dataclass_transform(kw_only_default=True)
class Struct(structref.StructRefProxy):
    """Base of structs: annotate the fields, construct with keywords.

    Fields are arrays of int64, float64 or bool (``Int64s`` has one dimension, ``Int64Table`` two), numbers, or other
    structs. Arrays are kept as they are, never copied, so that several structs can look at the same memory. An array
    that cannot be written stays so for Python; kernels get a view of the same memory that they can write, because the
    compiler tells the two kinds apart.
    """

    _fields: Mapping[str, Any] = {}
    _arrays: Mapping[str, tuple[int, np.dtype[Any]]] = {}
    """Dimensions and elements of the fields that are arrays."""
    _type_of_struct: Any = None
    _numba_type_: Any = None
    _construct: Any = None

    def __init_subclass__(cls) -> None:
        """Make the compiler's type and the constructor."""
        hints = get_type_hints(cls, include_extras=True)
        own = {name: hints[name] for name in inspect.get_annotations(cls)}
        cls._fields = {name: compiled_type(hint) for name, hint in own.items()}
        arrays = {name: kind for name, kind in cls._fields.items() if isinstance(kind, types.Array)}
        cls._arrays = {name: (kind.ndim, _DTYPES[kind.dtype]) for name, kind in arrays.items()}
        if _CONFIG.DISABLE_JIT:
            return
        name = f"{cls.__name__}Type"
        kind = type(name, (_StructType,), {"__module__": cls.__module__})
        # Compiled code refers to the type by its module and name, also when it comes out of the cache.
        setattr(sys.modules[cls.__module__], name, kind)
        _STRUCTREF.register(kind)
        _STRUCTREF.define_boxing(kind, cls)
        cls._type_of_struct = kind(list(cls._fields.items()))
        # What the base class asks of each instance; calls of kernels read it for each argument.
        cls._numba_type_ = cls._type_of_struct
        cls._construct = staticmethod(_constructor(cls, own))

    def __new__(cls, **fields: Any) -> Self:
        """Return the struct with these fields.

        Raises: TypeError for a field that is missing, unknown, or an array of another type or layout.
        """
        if fields.keys() != cls._fields.keys():
            odd = ", ".join(sorted(fields.keys() ^ cls._fields.keys()))
            raise TypeError(f"{cls.__name__}: fields missing or unknown: {odd}")
        for name, value in fields.items():
            _check(cls, name, value)
        instance = (
            object.__new__(cls)
            if cls._type_of_struct is None
            else cls._construct(*(_writable(fields[name]) for name in cls._fields))
        )
        instance.__dict__.update(fields)
        return instance

    def replace(self, **changes: Any) -> Self:
        """Return a struct with some fields replaced; the others are shared."""
        return type(self)(**{**{name: self.__dict__[name] for name in self._fields}, **changes})

    def locked(self) -> Self:
        """Return a struct on the same memory whose arrays, and those of structs in it, Python cannot write.

        Cost: some 20 microseconds for 30 arrays.
        """
        return type(self)(**{name: _locked(self.__dict__[name]) for name in self._fields})


def compiled_type(hint: Any) -> Any:
    """Return the compiler's type for the annotation of a field, or of a kernel's parameter."""
    dimensions = 1
    if get_origin(hint) is Annotated:
        hint, dimensions = get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint._type_of_struct
    element = get_args(get_args(hint)[1])[0]
    return types.Array(_ELEMENTS[element], dimensions, "C")


def _check(cls: type[Struct], name: str, value: Any) -> None:
    wanted = cls._arrays.get(name)
    if wanted is None:
        return
    fits = isinstance(value, np.ndarray) and (value.ndim, value.dtype) == wanted and _is_usable(value)
    if not fits:
        wanted = cls._fields[name]
        found = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{cls.__name__}.{name}: found {found}, expected a writable, contiguous {wanted}")


def _is_usable(array: NDArray[Any]) -> bool:
    """Say whether kernels can take ``array``: contiguous, and on memory that can be written."""
    flags = array.flags
    if flags.carray:
        return True
    if not (flags.c_contiguous and flags.aligned):
        return False
    try:
        _writable(array)
    except ValueError:
        return False
    return True


def _writable(value: Any) -> Any:
    """Return a view of an array that cannot be written that can; anything else as it is.

    Raises: ValueError where the memory itself cannot be written.
    """
    if not isinstance(value, np.ndarray) or value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = True
    return view


def _locked(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.locked()
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _constructor(cls: type[Struct], hints: Mapping[str, Any]) -> Any:
    """Return a compiled function that fills a struct from its fields in order, annotated like them.

    Its text is made here, but it is compiled under this file's name: a cache needs a file to watch.
    """
    names = list(cls._fields)
    lines = [f"def make_{cls.__name__}({', '.join(names)}):", "    _struct = _new(_kind)"]
    lines += [f"    _struct.{name} = {name}" for name in names]
    scope: dict[str, Any] = {"_new": structref.new, "_kind": cls._type_of_struct, "__name__": cls.__module__}
    exec(compile("\n".join([*lines, "    return _struct"]), __file__, "exec"), scope)  # noqa: S102  our own text, above
    function = scope[f"make_{cls.__name__}"]
    function.__annotations__ = dict(hints)
    return kernel(function)
