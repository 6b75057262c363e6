"""How often the same failure is written to the log: the first few times, then now and then with a count.

A line that says why something went wrong (the fact ``why``), or whose level is above info, is one of many where a
cluster is in trouble. Lines are the same that differ in names and numbers only.

Holds: of one event and reason, `_FIRST` lines and then one every `_EVERY` seconds; of one event, whatever its reasons,
`_MOST` in as many seconds. What was left out is counted in the next line that is written (``suppressed``). Other lines
are never held back.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import attrs
import structlog

_FIRST: Final = 5
_EVERY: Final = 30.0
_MOST: Final = 30
_REMEMBERED: Final = 2000
_LONGEST: Final = 300
_TROUBLE: Final = frozenset({"warning", "error", "critical", "exception"})
_NAMES: Final = re.compile(r'"[^"]*"|\'[^\']*\'|\S*[\d/]\S*')


@attrs.define
class _Count:
    """How many lines were written since a time, and how many were not."""

    since: float
    written: int = 0
    suppressed: int = 0


@attrs.define
class Limits:
    """A processor of structlog that drops lines of which enough were written."""

    clock: Callable[[], float] = time.monotonic
    _counts: dict[tuple[str, ...], _Count] = attrs.field(factory=dict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    """Lines come from the threads of cycles and of pages as well."""

    def __call__(self, logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Return a line, or drop it.

        Raises: DropEvent.
        """
        del logger
        why = line.get("why")
        if why is None and method not in _TROUBLE:
            return line
        with self._lock:
            return self._limited(str(line.get("event")), method, str(why), line)

    def _limited(self, event: str, method: str, why: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        same = self._count((event, method, _NAMES.sub("…", why[:_LONGEST])))
        all_of_it = self._count((event,))
        now = self.clock()
        if now - same.since >= _EVERY:
            same.since, same.written = now, min(same.written, _FIRST - 1)
        if now - all_of_it.since >= _EVERY:
            all_of_it.since, all_of_it.written = now, 0
        if same.written >= _FIRST or all_of_it.written >= _MOST:
            same.suppressed += 1
            raise structlog.DropEvent
        same.written += 1
        all_of_it.written += 1
        if same.suppressed:
            line["suppressed"], same.suppressed = same.suppressed, 0
        return line

    def _count(self, key: tuple[str, ...]) -> _Count:
        """Return what is known of a key, which becomes the one used last."""
        found = self._counts.pop(key, None) or _Count(self.clock())
        self._counts[key] = found
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        return found
