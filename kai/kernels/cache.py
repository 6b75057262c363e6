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
from functools import cache
from pathlib import Path
from typing import Any, Self

import numba
import numpy as np
from numba.core import caching, config

PACKAGE = Path(__file__).parent
WITHOUT_KERNELS = frozenset({"__init__.py", "__main__.py", "cache.py", "warm.py"})
"""Files of the package that decide nothing about what a kernel compiles to."""
_CONFIG: Any = config
_BASE: Any = caching._CacheLocator  # noqa: SLF001  numba names no public base for the classes that it asks for


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


def spare_writes(dispatcher: Any) -> None:  # noqa: ANN401  numba's own object
    """Keep numba from writing what it compiled where nothing can be written; loading goes on."""
    path = directory()
    if path is not None and not is_writable(path) and hasattr(dispatcher, "_cache"):
        dispatcher._cache.save_overload = _forget  # noqa: SLF001  there is no public switch for saving alone


def _forget(signature: object, data: object) -> None:
    del signature, data


__all__ = ["KernelCache", "directory", "fingerprint", "install", "spare_writes"]
