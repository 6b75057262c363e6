"""Showing what a source holds: once, or again whenever it changed; for people, for machines, or as names."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from kai.cli.console import Console
from kai.cli.envelope import envelope, write_document
from kai.cli.failures import flush_out, report_error
from kai.cli.sources import Source
from kai.errors import UnreachableError

if TYPE_CHECKING:
    from kai.simulation.request import Result

PAUSE_SECONDS = 2.0
LIVE_PAUSE_SECONDS = 5.0
"""Each look at a cluster lists all that the scheduler reads."""
_CLEAR = "\x1b[H\x1b[J"


class View(Protocol):
    """One answer, in every form."""

    @property
    def kind(self) -> str:
        """The kind of the document."""
        ...

    def fields(self) -> dict[str, Any]:
        """Return the fields of the document, behind its envelope."""
        ...

    def names(self) -> Sequence[str]:
        """Return what ``-o name`` writes, in kubectl's form."""
        ...

    def text(self, console: Console) -> str:
        """Return what people read."""
        ...


@attrs.frozen(kw_only=True)
class Watching:
    """How long a watch waits between two looks, and when it ends."""

    pause: Callable[[float], None] = time.sleep
    goes_on: Callable[[], bool] = lambda: True


def show(
    source: Source, console: Console, view_of: "Callable[[Result], View]", watching: Watching | None = None
) -> int:
    """Decide on the source and write the view of it; with ``-w`` again and again, where something changed."""
    if not source.watch:
        _write(source, console, view_of, None)
        return 0
    watch = Watching() if watching is None else watching
    last: object = None
    while watch.goes_on():
        try:
            last = _write(source, console, view_of, last)
        except UnreachableError as error:
            # A cluster that is away for a while comes back; a first look that fails is an answer.
            if last is None:
                raise
            report_error(error)
        watch.pause(LIVE_PAUSE_SECONDS if source.is_live else PAUSE_SECONDS)
    return 0


def _write(source: Source, console: Console, view_of: "Callable[[Result], View]", last: object) -> object:
    """Write a view unless it says the same as ``last``; return what it says."""
    result = source.decide()
    view = view_of(result)
    fields = view.fields()
    said = (fields, view.text(console) if console.output in {"table", "wide"} else "")
    if said == last:
        return said
    if last is None:
        _say_notes(result, console)
    if console.output in {"json", "yaml"}:
        write_document({**envelope(view.kind, result.case.origin), **fields}, console)
    elif console.output == "name":
        for name in view.names():
            console.write(name)
    else:
        redraws = source.watch and sys.stdout.isatty()
        console.write((_CLEAR if redraws else "") + said[1])
    flush_out()
    return said


def _say_notes(result: "Result", console: Console) -> None:
    for note in result.notes:
        console.talk(f"note: {note}", level=1)
