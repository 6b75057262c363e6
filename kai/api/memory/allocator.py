"""Manners with the C library's allocator where each cycle uses megabytes of columns and gives them back."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

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
