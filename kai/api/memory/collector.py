"""Manners with Python's cyclic garbage collector where very many objects are made and kept."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

from kai.api.memory.allocator import keep_freed


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
