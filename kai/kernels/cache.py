"""Where compiled kernels are kept, and when they are out of date.

numba looks at the file of a function to see whether its compiled form is still good. Kernels are compiled into each
other across files, so here one fingerprint of the whole package decides: change one kernel, and all are compiled anew
into a directory of their own. The first of these places that is writable, or was filled before, is used: the directory
in NUMBA_CACHE_DIR (an image bakes it in and need not be able to write to it), the package's own ``__pycache__``, the
user's cache.
"""

import contextlib
import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self

import numba
import numpy as np
from numba.core import caching, codegen, compiler, config

PACKAGE = Path(__file__).parent
WITHOUT_KERNELS = frozenset({"__init__.py", "__main__.py", "cache.py", "warm.py"})
"""Files of the package that decide nothing about what a kernel compiles to."""
_CONFIG: Any = config
_RESULT: Any = compiler.CompileResult
_LLVM: Any = codegen.ll  # type: ignore[attr-defined]  # numba's own door to llvmlite
_BASE: Any = caching._CacheLocator


@cache
def fingerprint() -> str:
    """Return a digest of all kernel sources and of the versions that compile them."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for path in sorted(PACKAGE.glob("*.py")):
        if path.name not in WITHOUT_KERNELS:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def directory() -> Path | None:
    """Return the directory that compiled kernels are loaded from; None if there is none to be had."""
    places = [Path(_CONFIG.CACHE_DIR)] if _CONFIG.CACHE_DIR else []
    places.append(PACKAGE / "__pycache__")
    with contextlib.suppress(RuntimeError):
        places.append(Path.home() / ".cache" / "kai")
    candidates = [place / f"kernels-{fingerprint()}" for place in places]
    filled = (path for path in candidates if any(path.glob("*.nbi")))
    return next(filled, None) or next((path for path in candidates if is_writable(path)), None)


@cache
def is_writable(path: Path) -> bool:
    """Say whether files can be written to ``path``, making it if need be; asked once for each path."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe-{id(path)}"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError:
        return False
    return True


class KernelCache(_BASE):  # type: ignore[misc]  # numba ships no types for it
    """Tells numba where the compiled form of a kernel is and whether it is good."""

    def __init__(self, function: Callable[..., object], path: Path) -> None:
        """Remember the function and the directory."""
        self._line = function.__code__.co_firstlineno
        self._path = path

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> Self | None:
        """Return a locator for functions of this package; None for others, which numba then looks after itself."""
        path = directory()
        return cls(py_func, path) if path is not None and Path(py_file).parent == PACKAGE else None

    def get_cache_path(self) -> str:
        """Return the directory."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return what the sources of all kernels were."""
        return fingerprint()

    def get_disambiguator(self) -> str:
        """Return what tells functions of one name apart."""
        return str(self._line)


def install() -> bool:
    """Make numba ask here first; return whether compiled kernels can be kept at all."""
    ours = f"{__name__}.{KernelCache.__name__}"
    theirs = "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
    if not _CONFIG.CACHE_LOCATOR_CLASSES:
        _CONFIG.CACHE_LOCATOR_CLASSES = f"{ours},{theirs}"
    return directory() is not None


def spare(dispatcher: Any, *, called_by_python: bool) -> None:
    """Keep numba from doing what serves nobody: writing where it cannot, and parsing what is compiled already."""
    if not hasattr(dispatcher, "_cache"):
        return
    kept = dispatcher._cache
    kept.save_overload = partial(_save, kept.save_overload)
    if called_by_python:
        kept._load_overload = partial(_load, kept)


_EMPTY: Final[bytes] = _LLVM.parse_assembly("").as_bitcode()
_replaced: Final[set[str]] = set()
"""Kernels that were loaded here, and of which another process has put another compilation in their place since."""


def _save(save: Callable[[object, object], None], signature: object, compiled: object) -> None:
    """Keep what was compiled, where it can be kept and is good for others.

    After something was replaced, it is good for this process only: what is compiled with a kernel must hold that
    kernel's code, and here it may name what nobody else has loaded.
    """
    path = directory()
    if not _replaced and (path is None or is_writable(path)):
        save(signature, compiled)


def _load(kept: Any, signature: object, context: Any) -> Any:
    """Load a kernel that Python can call, but not the bitcode beside its machine code: None if it is not there.

    Bitcode is for compiling the kernel into others, so a process that compiles nothing never needs it. Parsed, that of
    all kernels takes a second and 80 MB, which stay.
    """
    key = kept._index_key(signature, context.codegen())
    data = kept._cache_file.load(key)
    if data is None:
        return None
    (name, form, content), described, *rest = data
    if form != "object":
        return _RESULT._rebuild(context, *data)
    symbols = (described.llvm_func_name, described.llvm_cpython_wrapper_name, described.llvm_cfunc_wrapper_name)
    context.codegen()._engine._defined_symbols.update(symbols)
    loaded = _RESULT._rebuild(context, (name, form, (content[0], _EMPTY)), described, *rest)
    loaded.library._shared_module = None
    loaded.library._get_module_for_linking = partial(
        _linkable, loaded.library, described.llvm_func_name, partial(kept._cache_file.load, key)
    )
    return loaded


def _linkable(library: Any, symbol: str, read: Callable[[], Any]) -> Any:
    """Return a kernel in the form in which it is compiled into others, read when first asked for.

    Symbols are numbered by each process as it compiles, so another's compilation is no stand-in: without the right one,
    what is compiled here refers to the machine code that is loaded.
    """
    if library._shared_module is None:
        data = read()
        if data is None or data[1].llvm_func_name != symbol:
            _replaced.add(symbol)
            library._shared_module = _LLVM.parse_bitcode(_EMPTY)
        else:
            library._shared_module = _LLVM.parse_bitcode(data[0][2][1])
            library.codegen._engine._load_defined_symbols(library._shared_module)
    return library._shared_module


__all__ = ["KernelCache", "directory", "fingerprint", "install", "spare"]
