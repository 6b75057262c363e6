"""How much of everything a process holds: objects, entries of what they keep, caches, tasks, series.

What the collector knows is looked through for classes of kai, and each of their attributes that holds others is
measured by its entries, however deep they lie. So a cache that is never emptied has a name here: its class and its
attribute.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kai.api.codec.pod_templates import Recent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import CollectorRegistry

_HOLDERS: Final = (dict, list, set, frozenset, tuple, deque)
_DEEPEST: Final = 6


_OLDER: Final[list[Any]] = []
"""What of kai's was there before, in a process that has much else."""


@contextmanager
def counting() -> Iterator[None]:
    """Keep a census short beside the millions of objects that a process of tests holds.

    What is there now is looked through once, for what of it could grow; the collector passes over it then.
    """
    gc.unfreeze()
    gc.collect()
    objects: list[Any] = gc.get_objects()
    _OLDER.extend(each for each in objects if _is_ours(each) or _is_cache(each) or isinstance(each, Recent))
    gc.freeze()
    try:
        yield
    finally:
        _OLDER.clear()
        gc.collect()
        gc.freeze()


def census() -> Counter[str]:
    """Count what kai holds in this process, by name, once what nothing refers to is collected."""
    _empty_bounded()
    gc.collect()
    found: Counter[str] = Counter()
    for each in _objects():
        cls = type(each)
        if _is_ours(each):
            name = f"{cls.__module__}.{cls.__qualname__}"
            found[name] += 1
            for attribute, value in _attributes(each):
                found[f"{name}.{attribute}"] += _entries(value)
        elif _is_cache(each):
            found[f"{each.__module__}.{each.__qualname__}()"] += each.cache_info().currsize
    for name, module in tuple(sys.modules.items()):
        if name.startswith("kai."):
            for attribute, value in tuple(vars(module).items()):
                if isinstance(value, _HOLDERS) and not attribute.startswith("__"):
                    found[f"{name}:{attribute}"] += _entries(value)
    return Counter({name: count for name, count in found.items() if count})


def _objects() -> list[Any]:
    return [*_OLDER, *gc.get_objects()]


def _is_ours(each: object) -> bool:
    return str(type(each).__module__).startswith("kai.")


def _is_cache(each: Any) -> bool:
    return isinstance(each, functools._lru_cache_wrapper) and str(each.__module__).startswith("kai.")


def _empty_bounded() -> None:
    """Empty the caches that forget by themselves what was not used lately: what they hold is no leak, and hides one."""
    for each in _objects():
        if isinstance(each, Recent):
            each._young, each._old, each._size = {}, {}, 0
        elif _is_cache(each) and each.cache_parameters()["maxsize"] is not None:
            each.cache_clear()


def series(registry: CollectorRegistry) -> Counter[str]:
    """Count the series of each metric."""
    return Counter({f"metric {metric.name}": len(metric.samples) for metric in registry.collect()})


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return what is more than before, with both counts."""
    return {name: (before.get(name, 0), count) for name, count in sorted(after.items()) if count > before.get(name, 0)}


def _attributes(each: object) -> Iterator[tuple[str, Any]]:
    yield from tuple(getattr(each, "__dict__", {}).items())
    for cls in type(each).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor = cls.__dict__.get(name)
            if name not in {"__dict__", "__weakref__"} and hasattr(descriptor, "__get__"):
                try:
                    yield name, descriptor.__get__(each, type(each))
                except AttributeError:
                    continue


def _entries(value: object, depth: int = 0) -> int:
    """Return how many entries something holds, with those of its entries."""
    if not isinstance(value, _HOLDERS) or depth > _DEEPEST:
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return len(value) + sum(_entries(each, depth + 1) for each in tuple(inner) if isinstance(each, _HOLDERS))
