"""Where an error came from: the innermost place of kai or of a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from traceback import walk_tb
from types import TracebackType


def place_of(error: Exception, origins: frozenset[str]) -> str:
    """Return what failed and where, on one line, without what it was about.

    Where: the innermost place in one of the packages ``origins``, since the library beneath it is seldom at fault.
    """
    causes: list[BaseException] = [error]
    # An error may be raised from itself, or from one that came of it.
    while (cause := causes[-1].__cause__) is not None and all(cause is not each for each in causes):
        causes.append(cause)
    places = list(_places(causes[-1].__traceback__)) or list(_places(error.__traceback__))
    mine = [place for place in places if place[0].partition(".")[0] in origins]
    module, function, line = (mine or places)[-1]
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{message} (at {function} in {module}, line {line})"


def _places(trace: TracebackType | None) -> Iterable[tuple[str, str, int]]:
    for frame, line in walk_tb(trace):
        yield str(frame.f_globals.get("__name__", "")), frame.f_code.co_name, line
