"""The disk cache of compiled kernels, and when its entries are stale.

numba checks the file of a function to decide whether its compiled form is current. But kernels are compiled into each
other across files. So here a fingerprint of the whole package decides: a change of one kernel makes all kernels of the
package compile anew, into a directory of their own. The package is this one, or the folder of a plugin. A plugin's
kernels depend on its own sources, on the packages from which it imports kernels and structs, and on this package. This
package never depends on a plugin.

The first writable or already filled directory is used: that in NUMBA_CACHE_DIR (a container image fills it and need not
be able to write to it), the package's own ``__pycache__``, the user's cache.
"""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self

import numba
import numpy as np
from numba.core import caching, codegen, compiler, compiler_lock, config
from numba.core.runtime import nrt

from kai.facts.compiled.linking import Library, MissingError, Need, executable

NAME: Final = f"{__name__.rpartition('.compiled.')[0]}.kernels"
PACKAGE = Path(__file__).parents[1] / "kernels"
_COMPILER = tuple(Path(__file__).with_name(name) for name in ("compiling.py", "linking.py", "struct.py"))
"""The files that determine how a kernel is compiled; the others of this folder have no effect on the result."""
_CONFIG: Any = config
_RESULT: Any = compiler.CompileResult
_RUNTIME: Any = nrt
_LLVM: Any = codegen.ll  # type: ignore[attr-defined]  # numba's own door to llvmlite
_BASE: Any = caching._CacheLocator
COMPILING: Any = compiler_lock.global_compiler_lock
"""The compiler's global lock. It is re-entrant, and no other thread compiles while it is held."""


_kept: Final[dict[Callable[..., object], Any]] = {}
"""The cache of the compiled form of each function."""


@cache
def fingerprint() -> str:
    """Return a digest of all kernel sources and of the versions that compile them."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for path in (*_COMPILER, *sorted(PACKAGE.glob("[a-z]*.py"))):
        # With the name of the file: compiled code is found by its module, and a kernel that moved is another one.
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def fingerprint_of(package: str) -> str:
    """Return a digest of the sources in the folder of ``package``; for other packages it includes ours."""
    if package == NAME:
        return fingerprint()
    digest = hashlib.sha256(fingerprint().encode())
    for path in sorted(_folder(package).glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def package_of(module: str) -> str:
    """Return the package whose sources determine the kernels of ``module``; a module outside any package is its own."""
    return module.rpartition(".")[0] or module


def _folder(package: str) -> Path:
    if package == NAME:
        return PACKAGE
    loaded = sys.modules[package]
    return Path(loaded.__file__ or "").parent if loaded.__file__ else Path(next(iter(loaded.__path__)))


def _stamp(function: Callable[..., object]) -> str:
    """Return the inputs of the compiled form of ``function``: sources of packages, and numbers that it may capture."""
    module = function.__module__
    if package_of(module) == NAME:
        return fingerprint()
    digest = hashlib.sha256()
    for package in sorted({package_of(each) for each in _modules_behind(module, set())}):
        digest.update(f"{package} {fingerprint_of(package)}".encode())
    # A kernel captures numbers of its module as it is compiled, and a plugin may compute them when it is imported.
    numbers = {name: value for name, value in vars(sys.modules[module]).items() if isinstance(value, (int, float))}
    digest.update(repr(sorted(numbers.items())).encode())
    return digest.hexdigest()[:16]


def _modules_behind(module: str, seen: set[str]) -> Iterator[str]:
    """Return ``module`` and, transitively, the modules from which it imports kernels and structs by name."""
    seen.add(module)
    yield module
    for value in list(vars(sys.modules[module]).values()):
        source = getattr(value, "py_func", value if hasattr(value, "_numba_type_") else None)
        other = getattr(source, "__module__", None)
        if isinstance(other, str) and other not in seen and other in sys.modules:
            yield from _modules_behind(other, seen)


@cache
def directory(package: str = NAME) -> Path | None:
    """Return the directory of compiled kernels of ``package``; None if there is no usable one."""
    places = [Path(_CONFIG.CACHE_DIR)] if _CONFIG.CACHE_DIR else []
    places.append(_folder(package) / "__pycache__")
    with contextlib.suppress(RuntimeError):
        places.append(Path.home() / ".cache" / "kai")
    folder = f"{'kernels' if package == NAME else package}-{fingerprint_of(package)}"
    candidates = [place / folder for place in places]
    # A filled directory wins over one that can be written: an image brings its kernels in a read-only one.
    filled = (path for path in candidates if any(path.glob("*.nbi")))
    return next(filled, None) or next((path for path in candidates if is_writable(path)), None)


@cache
def is_writable(path: Path) -> bool:
    """Return whether ``path`` is writable, creating it if needed; memoized for each path."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # By a write: on a read-only mount, or beyond a quota, the permission bits allow what the system refuses.
        probe = path / f".probe-{id(path)}"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError:
        return False
    return True


class KernelCache(_BASE):  # type: ignore[misc]  # numba ships no types for it
    """Tells numba where the compiled form of a kernel is, and whether it is current."""

    def __init__(self, function: Callable[..., object]) -> None:
        """Store the kernel's cache directory, its inputs, and a suffix that makes its name unique."""
        package, _, module = function.__module__.rpartition(".")
        line = function.__code__.co_firstlineno
        self.place = directory(package_of(function.__module__))
        self._stamp = _stamp(function)
        # Constructors of structs are all compiled as line 1 of one file.
        self._disambiguator = str(line) if package == NAME else f"{module}-{line}"

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> Self | None:  # noqa: ARG003  numba's own
        """Return a locator for a function of a module; None for others, which numba then looks after itself."""
        module = sys.modules.get(py_func.__module__)
        return cls(py_func) if module is not None and getattr(module, "__file__", None) else None

    def get_cache_path(self) -> str:
        """Return the cache directory."""
        return str(self.place or PACKAGE / "nowhere")

    def get_source_stamp(self) -> str:
        """Return the digest of the sources."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Return the suffix that distinguishes functions of one name."""
        return self._disambiguator


def install() -> bool:
    """Register this locator first with numba; return whether compiled kernels can be cached at all."""
    ours = f"{__name__}.{KernelCache.__name__}"
    theirs = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
    # A choice by NUMBA_CACHE_LOCATOR_CLASSES stays as the user made it.
    if not _CONFIG.CACHE_LOCATOR_CLASSES:
        _CONFIG.CACHE_LOCATOR_CLASSES = f"{ours},{theirs}"
    return directory() is not None


def spare(dispatcher: Any, *, called_by_python: bool) -> None:
    """Save numba useless work: writes to read-only directories, and parsing of code that is compiled already."""
    if not hasattr(dispatcher, "_cache"):
        return
    kept = dispatcher._cache
    if not hasattr(kept, "_impl"):  # numba found no place for a cache
        return
    locator = kept._impl.locator
    if isinstance(locator, KernelCache):
        kept.save_overload = partial(_save, kept.save_overload, locator.place)
        _kept[dispatcher.py_func] = kept
    kept.load_overload = partial(_load, kept, called_by_python)


def is_kept(dispatcher: Any, signature: tuple[Any, ...]) -> bool:
    """Return whether a kernel is loaded, or cached, for a signature on this processor."""
    if signature in dispatcher.overloads:
        return True
    kept: Any = dispatcher._cache
    if not hasattr(kept, "_cache_file"):
        return False
    files = kept._cache_file
    name = files._load_index().get(kept._index_key(signature, dispatcher.targetctx.codegen()))
    return name is not None and Path(files._data_path(name)).exists()


def identity(function: Callable[..., object]) -> str | None:
    """Return an identity of a function that is the same in all processes and unique; None if it is not cached.

    Holds: together with the argument types and the processor it determines the machine code. It covers the sources
    (`_stamp`), the position in them, and captured values.
    """
    kept = _kept.get(function)
    if kept is None:
        return None
    code, closure = kept._index_key((), _NoCodegen)[2]
    place = f"{function.__module__} {function.__qualname__} {function.__code__.co_firstlineno}"
    return hashlib.sha256(f"{kept._impl.locator.get_source_stamp()} {place} {code} {closure}".encode()).hexdigest()[:16]


class _NoCodegen:
    """A placeholder where numba expects a processor description but none is needed."""

    @staticmethod
    def magic_tuple() -> None:
        """Return nothing."""


def _save(save: Callable[[object, object], None], place: Path | None, signature: object, compiled: Any) -> None:
    """Write compiled code to the cache if possible, without the text that lists the type of each variable."""
    if place is not None and is_writable(place):
        save(signature, compiled._replace(type_annotation=""))


def _load(kept: Any, called_by_python: bool, signature: object, context: Any) -> Any:
    """Load a kernel and the kernels it calls; return None if one of them is not cached.

    For a kernel that Python can call, the bitcode beside its machine code is not loaded. Bitcode serves to compile the
    kernel into others, so a process that compiles nothing never needs it. Parsing that of all kernels would take a
    second and 80 MB for good. Skipped too is numba's preparation before it loads anything: the implementations of all
    that it can compile, and runtime functions that LLVM compiles (41 MB). The compiler does that itself when it starts.
    """
    _runtime_known()
    key = kept._index_key(signature, context.codegen())
    data = kept._cache_file.load(key)
    if data is None:
        return None
    (name, _, (machine, bitcode)), described, environment, typed, objects, lifted, said, needs, environments = data
    try:
        # Machine code of callees first. If one is gone, this kernel counts as not cached, and numba compiles both.
        for need in needs:
            need()
    except MissingError:
        return None
    mine = Need(described.modname, described.qualname, tuple(typed.args), described.llvm_func_name)
    read = partial(_bitcode, kept._cache_file, key, mine.symbol) if machine else lambda: bitcode
    wrapper = (described.llvm_cpython_wrapper_name,) if called_by_python else ()
    context.codegen()._engine._defined_symbols.update((mine.symbol, *wrapper) if machine else ())
    library = Library.load(context.codegen(), name, mine, machine, read)
    library._reload_init.update(needs)
    if not bitcode:
        library.is_called = True
        library._reload_init.add(mine)
    for each in environments if machine else ():
        library.codegen.set_env(each.env_name, each)
    return _RESULT(
        typing_context=context.typing_context,
        target_context=context,
        entry_point=executable(context, library, described, environment),
        typing_error=None,
        type_annotation=said,
        signature=typed,
        library=library,
        call_helper=None,
        environment=environment,
        objectmode=objects,
        lifted=lifted,
        fndesc=described,
        metadata=None,
        reload_init=needs,
        referenced_envs=environments,
    )


@cache
def _runtime_known() -> None:
    """Register with LLVM the addresses of numba's runtime functions that kernels call."""
    for name, address in _RUNTIME._nrt.c_helpers.items():
        _LLVM.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _bitcode(files: Any, key: object, symbol: str) -> bytes | None:
    """Return the bitcode of a kernel, for compiling it into others; None if it is no longer cached."""
    data = files.load(key)
    if data is None or data[1].llvm_func_name != symbol:
        return None
    code: bytes = data[0][2][1]
    return code or None


__all__ = [
    "COMPILING",
    "KernelCache",
    "directory",
    "fingerprint",
    "fingerprint_of",
    "identity",
    "install",
    "is_kept",
    "package_of",
    "spare",
]
