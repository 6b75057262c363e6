"""Memory of a process that holds very many objects: the collector, the allocator, pages of a library.

Manners with the C library's allocator where each cycle uses megabytes of columns and gives them back.

Manners with Python's cyclic garbage collector where very many objects are made and kept.

Giving back pages of a library that was needed once, and stays mapped for the rest of the process.

Half of LLVM is read to load compiled kernels (60 MB), and next to nothing of it afterwards.
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
"""Numbers of settings in glibc's malloc.h."""
_KEPT: Final = 256 << 20
_AT_ONCE: Final = 64 << 20
_LARGEST: Final = 32 << 20
"""The most that glibc takes: a larger block is mapped by itself in any case."""


def keep_freed() -> bool:
    """Have the process keep the memory that it frees, up to 256 MB, and return whether the C library can be told so.

    A cycle of 100,000 pods fills a hundred columns of a megabyte each and drops them. Left alone, glibc returns such
    memory at once and asks for it again, and the kernel clears each page anew: 3 microseconds for 4 KB, four times what
    filling the page takes. It is worst in threads other than the first: their memory lies in pieces of 64 MB, each of
    which is returned whole as soon as nothing of it is in use.
    """
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, which has its own ways
        return False
    settings = ((_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _AT_ONCE), (_MMAP_THRESHOLD, _LARGEST))
    return {tell(number, value) for number, value in settings} == {1}


def trim() -> None:
    """Give the memory that is free in whole pages back to the operating system, wherever it lies.

    What `keep_freed` keeps is used again, but not the same pages of it each time: over hours, ever more of them have
    been touched, and a process holds them all. What the next cycles need is asked for anew.

    Cost: 1 microsecond for 4 KB that go back, in which other threads wait where they ask the C library for memory.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library, which has its own ways
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Keep the collector from walking, again and again, through objects that all stay.

    Nothing that is read here contains cycles, so nothing is missed; without the pause a cold list of 50,000 pods takes
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
    """Pause the collector, and let it pass over all that there is afterwards until `settle` is called.

    Use it while a process fills up with objects that stay: the collector would look through them each time that the
    process has grown by a quarter. What is garbage by then is found by `settle`.
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
    """Spare a program that ends soon the looks of the collector: while it works, and at objects it leaves in the end.

    A short command makes some 140,000 objects, mostly classes and functions, and keeps nearly all of them to its end.
    One that goes on for longer is looked through like others, only after more objects.
    """
    gc.set_threshold(_SHORT)
    try:
        yield
    finally:
        gc.freeze()


_YOUNG: Final = 50_000
_MIDDLE: Final = 1
"""The generation of objects that one look has left; older ones are many, and few of them end."""


def settle() -> None:
    """Let the collector pass over everything that there is now, and look at what is new less often than it would.

    A service calls it once it has all objects of its cluster: they stay, and their lists are long. What it uses and
    gives back from then on, it uses again (`keep_freed`).
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
    keep_freed()


def collect_young() -> None:
    """Free what refers to itself and ended since the last look, if it began since then as well.

    A process that settled calls it now and then, at rest: each connection that ends leaves its transport to the
    collector, which refers to a method of its own.

    Cost: O(objects that came since the last look and are still there), for which all threads wait.
    """
    gc.collect(_MIDDLE)


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
