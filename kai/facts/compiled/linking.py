"""How numba compiles kernels here: each large function once, and without reference counting for borrowed arguments.

numba links the code of all callees into a function's own module and optimizes all of it again. Here a large function is
compiled once, and functions compiled later call its machine code (`Library`). So a kernel from the cache needs others
to be loaded: it names them (`Need`), and the cache loads them first.

Symbol names derive from sources (`kai.facts.compiled.cache.identity`), where numba would use a counter of the process.
So two processes give a function the same name, and the code of one can replace that of the other.
"""

import copy
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from numba import _dynfunc  # type: ignore[attr-defined]  # it is written in C
from numba.core import (
    bytecode,
    codegen,
    compiler,
    compiler_machinery,
    cpu,
    ir,
    lowering,
    typed_passes,
    types,
    untyped_passes,
)
from numba.core.runtime.context import NRTContext

# Parts of numba that its own types do not describe.
_LLVM: Any = codegen.ll  # type: ignore[attr-defined]  # numba's own door to llvmlite
_LIBRARY: Any = codegen.JITCodeLibrary
_CONTEXT: Any = cpu.CPUContext
_COUNTING: Any = NRTContext
_LOWER: Any = lowering.Lower
_LOWERING: Any = typed_passes.NativeLowering
_COMPILER: Any = compiler.CompilerBase
_REGISTER: Any = compiler_machinery.register_pass
_BUILDER: Any = compiler.DefaultPassBuilder
_FLAGS: Any = compiler.Flags
_IDENTITY: Any = bytecode.FunctionIdentity
_EXTRACT: Any = untyped_passes.ExtractByteCode

LARGE: Final = 150
"""Instructions from which a function is called, not inlined; LLVM inlines none of half that size."""
_BORROWING: Final = frozenset(
    {"getitem", "static_getitem", "cast", "phi", "build_tuple", "exhaust_iter", "getiter", "iternext"}
    | {"pair_first", "pair_second"}
)
"""Operations whose results are part of their operands."""
_defined: Final[set[str]] = set()
"""Functions whose machine code is loaded in this process."""


class MissingError(LookupError):
    """A function that a cached kernel calls is not available."""


class Need(NamedTuple):
    """A function whose machine code another function calls; calling this object loads or compiles it."""

    module: str
    name: str
    arguments: tuple[Any, ...]
    symbol: str

    def __call__(self) -> None:
        """Load or compile the function into this process.

        Raises: MissingError if it is not available.
        """
        # A symbol may be defined once in a process.
        if self.symbol in _defined:
            return
        dispatcher = getattr(getattr(sys.modules.get(self.module), self.name, None), "dispatcher", None)
        if dispatcher is not None:
            # May take it from the cache, or from the compiler if that has none. Either way its symbol is defined
            # afterwards.
            dispatcher.compile(self.arguments)
        if self.symbol not in _defined:
            raise MissingError(f"{self.module}.{self.name}")


@cache
def _nothing() -> Any:
    """Return an empty module, to be linked in place of a function that is called."""
    return _LLVM.parse_assembly("")


class Library(_LIBRARY):  # type: ignore[misc]  # numba ships no types for it
    """The code of one function.

    A large function, or one that Python calls, has machine code. A small one is compiled into others, which need its
    bitcode.
    """

    symbol = ""
    need: Need | None = None
    """The reference by which other functions call this one; None if it cannot be found by name."""
    is_called = False
    """Whether other functions call it."""
    has_wrapper = True
    _shared_module: Any
    read: Callable[[], bytes | None] | None = None
    """Returns the bitcode of a loaded function; None if it is gone."""

    def finalize(self) -> None:
        """Link the small callees, optimize, and make machine code if this function has any."""
        # In the order of calls, each once: a set would link in an order that differs between processes, and so would
        # the cached code.
        for library in dict.fromkeys(self._linking_libraries):
            module = library._get_module_for_linking()
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(module, preserve=True)
        self._optimize_final_module()
        self._final_module.verify()
        # Measured after optimizing: each caller would have to optimize that much again.
        self.is_called = self.need is not None and _is_large(self._final_module.get_function(self.symbol))
        if self.has_code:
            self._finalize_final_module()
            _defined.add(self.symbol)
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    @property
    def has_code(self) -> bool:
        """Whether there is machine code of the function."""
        return self.is_called or self.has_wrapper

    def _get_module_for_linking(self) -> Any:
        if self.read is not None and not self.is_called and self._shared_module is None:
            code = self.read()
            # The bitcode may be gone from the cache while the machine code is loaded. That serves as well, without
            # inlining.
            if code is None:  # without bitcode, call the machine code
                self.is_called = True
                self._reload_init.add(self.need)
            else:
                self._shared_module = _LLVM.parse_bitcode(code)
                self.codegen._engine._load_defined_symbols(self._shared_module)
        return _nothing() if self.is_called else super()._get_module_for_linking()

    def serialize_using_object_code(self) -> Any:
        """Return the form to cache: machine code if the function has it, and bitcode if it is inlined."""
        machine = self._get_compiled_object() if self.has_code else b""
        return self.name, "object", (machine, b"" if self.is_called else self._get_module_for_linking().as_bitcode())

    @classmethod
    def load(cls, made_by: Any, name: str, need: Need, machine: bytes, read: Callable[[], bytes | None]) -> Any:
        """Return a library of cached machine code, if any, and of the bitcode that ``read`` returns."""
        self = cls(made_by, name)
        self.symbol, self.need, self.read, self.has_wrapper = need.symbol, need, read, bool(machine)
        if machine:
            self.enable_object_caching()
            self._set_compiled_object(machine)
            self._finalize_final_module()
            _defined.add(self.symbol)
        self._finalized = True
        return self


def _is_large(function: Any) -> bool:
    count = 0
    for block in function.blocks:
        count += sum(1 for _ in block.instructions)
        if count >= LARGE:
            return True
    return False


class _Borrowing(_COUNTING):  # type: ignore[misc]  # numba ships no types for it
    """A runtime for functions that borrow all they read: it counts no references."""

    def incref(self, builder: object, kind: object, value: object) -> None:
        """Do nothing."""

    def decref(self, builder: object, kind: object, value: object) -> None:
        """Do nothing."""


class Context(_CONTEXT):  # type: ignore[misc]  # as above
    """The context in which a kernel is lowered."""

    plain: Any
    """The compiler's own context, for wrappers and for NumPy functions that a kernel calls."""
    borrows = False

    @classmethod
    def of(cls, plain: Any, *, borrows: bool) -> Any:
        """Return the compiler's context converted to this kind."""
        made = copy.copy(plain)
        # A copy of the compiler's context in another class: a new context would set up all of numba's registries again.
        made.__class__ = cls
        made.plain, made.borrows = plain, borrows
        return made

    @property
    def nrt(self) -> Any:
        """Return the writer of reference counting code."""
        return _Borrowing(self, True) if self.borrows else _COUNTING(self, True)

    def _compile_subroutine_no_cache(self, *arguments: Any, **options: Any) -> Any:
        return self.plain._compile_subroutine_no_cache(*arguments, **options)

    def get_executable(self, library: Any, described: Any, environment: Any) -> Any:
        """Return the key for calls of the function, and its entry point for Python."""
        return executable(self.plain, library, described, environment)


def executable(context: Any, library: Any, described: Any, environment: Any) -> Any:
    """Return the key for calls of a function, and its entry point for Python."""
    library._ensure_finalized()
    if library.has_code:
        return context.get_executable(library, described, environment)
    return _dynfunc.make_function(described.lookup_module(), described.qualname, "", 0, environment, (library,))


def _borrows(state: Any) -> bool:
    """Return whether a function creates no reference: all its arrays and structs are part of its arguments."""
    managed = cache(lambda kind: state.targetctx.data_model_manager[kind].contains_nrt_meminfo())
    # A result that is counted belongs to the caller, who gives it back later: then this function does hand out a
    # reference.
    if state.func_id.is_generator or managed(state.return_type):
        return False
    return not any(_makes(statement, state.typemap, managed) for statement in _statements(state.func_ir))


def _statements(func_ir: Any) -> Iterator[Any]:
    for block in func_ir.blocks.values():
        yield from block.body


def _makes(statement: Any, kinds: Any, managed: Callable[[Any], bool]) -> bool:
    """Return whether a statement creates or keeps a reference."""
    if isinstance(statement, ir.SetAttr | ir.StoreMap):
        return True
    if not isinstance(statement, ir.Assign) or not isinstance(statement.value, ir.Expr):
        return False
    value = statement.value
    if not managed(kinds[statement.target.name]):
        return False
    if value.op == "getattr":  # an attribute of an array may be a new array
        return not isinstance(kinds[value.value.name], types.StructRef)
    # Indexing with an array makes a new one, unlike a slice, which is a part of the array that it is taken from.
    by_array = value.op == "getitem" and managed(kinds[value.index.name])
    return value.op not in _BORROWING or by_array


class _Lower(_LOWER):  # type: ignore[misc]  # as above
    """Lowering that passes its name to the library, and gives the function a normal wrapper."""

    def __init__(self, context: Any, library: Any, described: Any, *arguments: Any, **options: Any) -> None:
        library.symbol = described.llvm_func_name
        if library.need is not None:
            library.need = library.need._replace(symbol=library.symbol)
        super().__init__(context, library, described, *arguments, **options)

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Create the wrapper that Python calls."""
        made = self.library, self.fndesc, self.env, self.call_helper
        self.context.plain.create_cpython_wrapper(*made, release_gil=release_gil)


@_REGISTER(mutates_CFG=True, analysis_only=False)
class _Lowering(_LOWERING):  # type: ignore[misc]  # as above
    """The pass that generates LLVM code."""

    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[_Lower]:
        """Return the lowering class."""
        return _Lower

    def run_pass(self, state: Any) -> bool:
        """Lower the function, counting only references that it creates."""
        state.targetctx = Context.of(state.targetctx, borrows=_borrows(state))
        return bool(super().run_pass(state))


class _Flags(_FLAGS):  # type: ignore[misc]  # as above
    """Compiler options that memoize their values.

    numba compares options for each operator that it looks up, and would collect all thirty values for each comparison.
    """

    def values(self) -> dict[str, Any]:
        """Return the values of all options."""
        mine, known = self._values, self.__dict__.get("known")
        # Compared with a copy of the options as they were: they can be set one by one after this.
        if known is None or known[0] != mine:
            known = self.__dict__["known"] = (dict(mine), super().values())
        return known[1]


class KernelCompiler(_COMPILER):  # type: ignore[misc]  # as above
    """The compiler of kernels."""

    identity: Callable[[Any], str | None]
    """Returns the process-independent identity of a function; None for a function that is not cached."""

    def __init__(self, *arguments: Any) -> None:
        """Take numba's arguments for a compiler."""
        super().__init__(*arguments)
        self.state.flags = _Flags(self.state.flags)

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile ``function`` under a name that derives from its sources."""
        state: Any = self.state
        state.func_id = named = _IDENTITY.from_function(function)
        library: Any = Library(state.targetctx.codegen(), named.func_qualname)
        library.enable_object_caching()
        library.has_wrapper = not state.flags.no_cpython_wrapper
        identity = type(self).identity(function)
        if identity is not None:
            named.unique_name, named.unique_id = f"{named.func_qualname}${identity}", identity
            found = vars(sys.modules[function.__module__]).get(function.__qualname__)
            # Only a function that its module still has under its name can be found again by another process.
            if getattr(found, "py_func", found) is function:
                library.need = Need(function.__module__, function.__qualname__, tuple(state.args), "")
        state.library = library
        _EXTRACT().run_pass(state)
        state.lifted, state.lifted_from = (), None
        made = self._compile_bytecode()
        if library.is_called:  # last, because the cached form does not need it
            library._reload_init.add(library.need)
        return made

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes, with our lowering in place of its own."""
        passes: Any = compiler_machinery.PassManager("kernel")  # type: ignore[no-untyped-call]  # numba ships no types
        for part in (_BUILDER.define_untyped_pipeline, _BUILDER.define_typed_pipeline):
            passes.passes.extend(part(self.state).passes)
        for each, said in _BUILDER.define_nopython_lowering_pipeline(self.state).passes:
            passes.add_pass(_Lowering if each is _LOWERING else each, said)
        passes.finalize()
        return [passes]
