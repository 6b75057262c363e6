"""Giving back pages of a library that was needed once, and stays mapped for the rest of the process.

Half of LLVM is read to load compiled kernels (60 MB), and next to nothing of it afterwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

COMPILER: Final = "libllvmlite.so"
"""The library that loads compiled kernels, and compiles them."""
_DONTNEED: Final = 4
"""The number of this advice in Linux's mman.h."""
_MAPS: Final = Path("/proc/self/smaps")


class Mapping(NamedTuple):
    """Pages of a file that are mapped into this process to be read or run."""

    start: int
    length: int


def give_back(library: str) -> int:
    """Take pages of a library out of this process, and return how many bytes of address space that concerns.

    The system keeps them, for all who map the file, as long as it has room; what is used again is mapped again.

    Holds: what the process reads is the same before and after. Only pages are given back that are as they are in the
        file.
    Cost: some milliseconds; later half a microsecond for 64 KB that are used again.
    """
    try:
        advise = ctypes.CDLL(None).madvise
        with _MAPS.open(encoding="utf-8", errors="surrogateescape") as lines:
            mappings = tuple(unchanged(library, lines))
    except (AttributeError, OSError, TypeError):  # another system, which has its own ways
        return 0
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(each.length for each in mappings if advise(each.start, each.length, _DONTNEED) == 0)


def unchanged(library: str, smaps: Iterable[str]) -> Iterator[Mapping]:
    """Return where a library is mapped so that nothing can be written, and nothing was written before.

    A loader writes addresses into some pages and then forbids to write there: these are no more what the file has.
    """
    mapping: Mapping | None = None
    for line in smaps:
        first, *rest = line.split()
        if not first.endswith(":"):
            start, _, end = first.partition("-")
            is_meant = len(rest) > 4 and Path(rest[4]).name == library and "w" not in rest[0]
            mapping = Mapping(int(start, 16), int(end, 16) - int(start, 16)) if is_meant else None
        elif first == "Anonymous:" and mapping is not None and rest[0] == "0":
            yield mapping
