"""Memory of a process that holds very many objects: the garbage collector, the allocator, and mapped libraries.

Allocator: each cycle takes megabytes of columns and frees them. Settings of the C library's allocator keep that memory
in the process.

Garbage collector: Python's cyclic collector is paused or frozen while very many objects are created and kept.

Mapped libraries: pages of a library that was needed once, and stays mapped, are given back. Half of LLVM (60 MB) is
read to load compiled kernels, and next to none of it afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
"""mallopt parameters of glibc's malloc.h."""
_KEPT: Final = 256 << 20
_AT_ONCE: Final = 64 << 20
_LARGEST: Final = 32 << 20
"""The largest threshold that glibc accepts; it maps larger blocks separately in any case."""


def keep_freed() -> bool:
    """Have the process keep up to 256 MB of freed memory; return whether the C library supports it.

    A cycle of 100,000 pods fills a hundred columns of a megabyte each and drops them. By default glibc returns such
    memory to the kernel at once and requests it again, and the kernel clears each page anew: 3 microseconds for 4 KB,
    four times what filling the page takes. Threads other than the first fare worst: their memory lies in heaps of 64
    MB; a block is returned whole as soon as it is unused.
    """
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, with its own policy
        return False
    settings = ((_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _AT_ONCE), (_MMAP_THRESHOLD, _LARGEST))
    return {tell(number, value) for number, value in settings} == {1}


def trim() -> None:
    """Return whole free pages to the operating system, wherever in the heap they lie.

    Memory that `keep_freed` keeps is reused, but not always the same pages: over hours ever more pages have been
    touched, and the process holds them all. The next cycles request the pages that they need anew.

    Cost: 1 microsecond for each 4 KB returned, during which other threads wait to allocate memory.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library, with its own policy
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pause the collector while objects are created that all stay.

    The objects read here contain no cycles, so no garbage is missed. Without the pause a cold list of 50,000 pods takes
    two to three times as long. A collector that was off stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """Pause the collector, and on exit exempt all objects that exist from collection until `settle` is called.

    Use it while a process fills up with objects that stay: the collector would traverse them each time that the process
    has grown by a quarter. `settle` finds the garbage among them.
    """
    is_ours = gc.isenabled()
    with paused():
        try:
            yield
        finally:
            if is_ours:
                gc.freeze()


_SHORT: Final = 1 << 19


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Spare a short-lived program the collector, while it works and over the objects that it leaves at exit.

    A short command makes some 140,000 objects, mostly classes and functions, and keeps nearly all of them to its end.
    In a program that runs on, the collector starts as usual, only after more objects.
    """
    gc.set_threshold(_SHORT)
    try:
        yield
    finally:
        gc.freeze()


def is_spared() -> bool:
    """Return whether this is a short-lived program, which ends without a collection."""
    return gc.get_threshold()[0] == _SHORT


_YOUNG: Final = 50_000
_MIDDLE: Final = 1
"""The generation of objects that survived one collection; the oldest generation is large, and little of it is garbage.
"""


def settle() -> None:
    """Exempt all present objects from collection, and collect new ones less often than by default.

    A service calls it once it has all objects of its cluster: they stay, and their lists are long. Memory that the
    service frees from then on is reused (`keep_freed`).
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
    keep_freed()


def collect_young() -> None:
    """Free cyclic garbage among the objects created since the last collection.

    A process that has called `settle` calls it from time to time when idle: each closed connection leaves its
    transport, which refers to a method of its own, to the collector.

    Cost: O(objects that came since the last collection and still exist), during which all threads wait.
    """
    gc.collect(_MIDDLE)


COMPILER: Final = "libllvmlite.so"
"""The library that compiles kernels and loads compiled ones."""
_DONTNEED: Final = 4
"""The number of MADV_DONTNEED in Linux's mman.h."""
_MAPS: Final = Path("/proc/self/smaps")


class Mapping(NamedTuple):
    """Pages of a file that are mapped into this process for reading or executing."""

    start: int
    length: int


def give_back(library: str) -> int:
    """Unload pages of a library from this process, and return how many bytes of address space they cover.

    The kernel keeps them in the page cache, for all processes that map the file, as long as it has room. A page that is
    used again is mapped again.

    Holds: the process reads the same bytes before and after. Only pages that equal the file are given back.
    Cost: some milliseconds; later half a microsecond for each 64 KB that is used again.
    """
    try:
        advise = ctypes.CDLL(None).madvise
        with _MAPS.open(encoding="utf-8", errors="surrogateescape") as lines:
            mappings = tuple(unchanged(library, lines))
    except (AttributeError, OSError, TypeError):  # not Linux
        return 0
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(each.length for each in mappings if advise(each.start, each.length, _DONTNEED) == 0)


def unchanged(library: str, smaps: Iterable[str]) -> Iterator[Mapping]:
    """Yield the mappings of a library that are read-only and were never written.

    The loader writes relocated addresses into some pages and then makes them read-only: these differ from the file.
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
