"""Structs: records of arrays that kernels take by reference.

numba passes a named tuple of eighty arrays by value and counts references to each array at every call: microseconds for
a function that does nanoseconds of work, and minutes to compile. A struct is one pointer. In Python it is an object
with attributes, and for plain kernels it is nothing else. Compiled kernels read the same fields from memory of their
own, which a struct gets when the first of them takes it.
"""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, Self, dataclass_transform, get_type_hints

import numpy as np
from numpy.typing import NDArray


class ArrayOf(NamedTuple):
    """Dimensions and element type of an array, beside the numpy annotation, whose internals change."""

    element: type[np.generic]
    dimensions: int


Int64s = Annotated[NDArray[np.int64], ArrayOf(np.int64, 1)]
Float64s = Annotated[NDArray[np.float64], ArrayOf(np.float64, 1)]
Bools = Annotated[NDArray[np.bool_], ArrayOf(np.bool_, 1)]
Int64Table = Annotated[NDArray[np.int64], ArrayOf(np.int64, 2)]
Float64Table = Annotated[NDArray[np.float64], ArrayOf(np.float64, 2)]
BoolTable = Annotated[NDArray[np.bool_], ArrayOf(np.bool_, 2)]

_SCALARS: Final = (int, float, bool)
STRUCTS: Final[list[type["Struct"]]] = []
"""Every class of structs, in the order in which they were defined."""


class _Memory:
    """A descriptor that creates the memory from which compiled kernels read a struct, on first access."""

    def __get__(self, instance: "Struct | None", owner: type["Struct"]) -> Any:
        """Create the memory, and store it as an instance attribute, which takes precedence from then on."""
        if instance is None:
            return self
        values = instance.__dict__
        origin = values.get("_origin")
        if origin is not None:
            values["_meminfo"] = memory = origin._meminfo
            return memory
        memory = owner.constructor.dispatcher(*[writable(values[name]) for name in owner._fields])._meminfo
        values["_meminfo"] = memory
        return memory


@dataclass_transform(kw_only_default=True)
class Struct:
    """Base of structs: annotate the fields, construct with keywords.

    Fields are arrays of int64, float64 or bool (``Int64s`` has one dimension, ``Int64Table`` two), numbers, or other
    structs. Arrays are kept as they are, never copied, so that several structs can look at the same memory. An array
    that cannot be written stays so for Python; kernels get a view of the same memory that they can write, because the
    compiler tells the two kinds apart.
    """

    _fields: Mapping[str, Any] = {}
    """Annotations by field name."""
    _arrays: Mapping[str, tuple[int, np.dtype[Any]]] = {}
    """Dimensions and element types of the array fields."""
    constructor: Any = None
    """The kernel that fills the memory; None until the compiler knows the class."""
    _numba_type_: Any = None
    _meminfo = _Memory()

    def __init_subclass__(cls) -> None:
        """Read the annotations.

        Raises: TypeError for a field of a kind that kernels cannot take.
        """
        hints = get_type_hints(cls, include_extras=True)
        # The class's own annotations only: the hints have those of this base too.
        cls._fields = {name: hints[name] for name in inspect.get_annotations(cls)}
        arrays = {name: of for name, hint in cls._fields.items() if (of := array_of(hint)) is not None}
        for name in cls._fields.keys() - arrays.keys():
            _check_simple(f"{cls.__module__}.{cls.__qualname__}.{name}", cls._fields[name])
        cls._arrays = {name: (of.dimensions, np.dtype(of.element)) for name, of in arrays.items()}
        STRUCTS.append(cls)

    def __new__(cls, **fields: Any) -> Self:
        """Return the struct with these fields.

        Raises: TypeError for a field that is missing, unknown, or an array of another type or layout.
        """
        if fields.keys() != cls._fields.keys():
            odd = ", ".join(sorted(fields.keys() ^ cls._fields.keys()))
            raise TypeError(f"{cls.__name__}: fields missing or unknown: {odd}")
        _check(cls, fields)
        instance = object.__new__(cls)
        instance.__dict__.update(fields)
        return instance

    @classmethod
    def _numba_box_(cls, kind: Any, memory: Any) -> Self:
        """Wrap a struct that compiled code has made; it has no attributes but its memory."""
        del kind
        instance = object.__new__(cls)
        instance.__dict__["_meminfo"] = memory
        return instance

    def replace(self, **changes: Any) -> Self:
        """Return a struct with some fields replaced; the others are shared.

        Raises: TypeError for a field that is unknown, or an array of another type or layout.
        """
        cls = type(self)
        if not changes.keys() <= cls._fields.keys():
            odd = ", ".join(sorted(changes.keys() - cls._fields.keys()))
            raise TypeError(f"{cls.__name__}: fields unknown: {odd}")
        _check(cls, changes)
        return self._like(changes)

    def locked(self) -> Self:
        """Return a struct on the same memory whose arrays, nested structs included, are read-only for Python.

        Cost: some 10 microseconds for 30 arrays.
        """
        instance = self._like({name: _locked(self.__dict__[name]) for name in self._fields})
        instance.__dict__["_origin"] = self  # the arrays are the same, so what kernels read is the same
        return instance

    def _like(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with ``changes``, which kernels can take, and with memory of its own."""
        instance = object.__new__(type(self))
        values = instance.__dict__
        values.update(self.__dict__)
        # Compiled kernels read pointers from this memory: to the arrays of the original, and not to the changed ones.
        values.pop("_meminfo", None)
        values.pop("_origin", None)
        values.update(changes)
        return instance


def array_of(hint: Any) -> ArrayOf | None:
    """Return the array type of an annotation; None for a number or a struct."""
    return next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, ArrayOf)), None)


def _check_simple(field: str, hint: Any) -> None:
    if hint not in _SCALARS and not (isinstance(hint, type) and issubclass(hint, Struct)):
        raise TypeError(
            f"{field}: found {hint}, expected int, float, bool, an array type of kai.framework.kernel, or a Struct"
        )


def _check(cls: type[Struct], values: Mapping[str, Any]) -> None:
    """Check the array fields in ``values``.

    Raises: TypeError for one that kernels cannot take.
    """
    arrays = cls._arrays
    for name, value in values.items():
        wanted = arrays.get(name)
        if wanted is None:
            continue
        fits = isinstance(value, np.ndarray) and (value.ndim, value.dtype) == wanted
        if not fits or not (value.flags.carray or _is_usable(value)):
            found = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
            expected = f"a writable, contiguous array({wanted[1]}, {wanted[0]}d, C)"
            raise TypeError(f"{cls.__name__}.{name}: found {found}, expected {expected}")


def _is_usable(array: NDArray[Any]) -> bool:
    """Return whether kernels can take ``array``: contiguous, and on writable memory."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        return False
    try:
        writable(array)
    except ValueError:
        return False
    return True


def writable(value: Any) -> Any:
    """Return a writable view of a read-only array; any other value unchanged.

    Raises: ValueError if the memory itself is read-only.
    """
    if not isinstance(value, np.ndarray) or value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = True
    return view


def _locked(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    return value.locked() if isinstance(value, Struct) else value
