"""Showing what a source holds: once, or again whenever it changed; for people, for machines, or as names."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from kai.api.collector import paused
from kai.cli.console import Console
from kai.cli.failures import flush_out, report_error, write_out
from kai.cli.sources import Source
from kai.cli.writing import write_document
from kai.documents.envelope import envelope
from kai.errors import UnreachableError

if TYPE_CHECKING:
    from kai.cli.serving import Served
    from kai.simulation.case import Origin
    from kai.simulation.own import OwnJobs
    from kai.simulation.request import Result

PAUSE_SECONDS = 2.0
LIVE_PAUSE_SECONDS = 5.0
"""Each look at a cluster lists all that the scheduler reads."""
CUT_SHORT = "not all evictions were tried: a job that waits may start at the expense of others; kai simulate tries all"
_CLEAR = "\x1b[H\x1b[J"
_HEAD = frozenset({"apiVersion", "kind", "generatedAt", "source", "program"})


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
class ServedView:
    """A view whose document is that of the service."""

    shown: View
    document: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the document."""
        return str(self.document["kind"])

    def fields(self) -> dict[str, Any]:
        """Return the fields of the document, behind its envelope."""
        return {name: value for name, value in self.document.items() if name not in _HEAD}

    def names(self) -> Sequence[str]:
        """Return what ``-o name`` writes."""
        return self.shown.names()

    def text(self, console: Console) -> str:
        """Return what people read."""
        return self.shown.text(console)


@attrs.frozen(kw_only=True)
class Watching:
    """How long a watch waits between two looks, and when it ends."""

    pause: Callable[[float], None] = time.sleep
    goes_on: Callable[[], bool] = lambda: True


@attrs.frozen(kw_only=True)
class _Look:
    """What one look at a source shows."""

    view: View
    origin: "Origin"
    notes: Sequence[str]
    remark: str = ""
    """What is said last."""


def show(
    source: Source,
    console: Console,
    view_of: "Callable[[Result], View]",
    own_view_of: "Callable[[OwnJobs], View] | None" = None,
    *,
    served_view_of: "Callable[[Served], View] | None" = None,
    watching: Watching | None = None,
) -> int:
    """Decide on the source and write the view of it; with ``-w`` again and again, where something changed.

    ``served_view_of`` and ``own_view_of`` make a view for users who may not see the whole cluster: of what the service
    answers them, or of their own jobs.
    """

    # What is imported and read for one look stays until it is written, so a collector would find nothing.
    @paused()
    def look() -> _Look:
        if source.service and served_view_of is not None:
            return _served(source, served_view_of)
        try:
            result = source.decide()
        except UnreachableError as error:
            if not error.missing or (own_view_of is None and served_view_of is None):
                raise
            try:
                if served_view_of is not None:
                    return _served(source, served_view_of)
            except UnreachableError as refusal:
                console.talk(f"note: {refusal}", level=1)
            if own_view_of is None:
                raise
            own = source.read_own(error)
            return _Look(view=own_view_of(own), origin=own.origin, notes=own.notes, remark=own.remark)
        said = [source.chosen.line(result.case.origin)] if source.is_live else []
        remark = "\n".join([*said, *([CUT_SHORT] if result.was_cut_short else [])])
        return _Look(view=view_of(result), origin=result.case.origin, notes=result.notes, remark=remark)

    if not source.watch:
        _write(look(), source, console, None)
        return 0
    watch = Watching() if watching is None else watching
    last: object = None
    while watch.goes_on():
        try:
            last = _write(look(), source, console, last)
        except UnreachableError as error:
            # A cluster that is away for a while comes back; a first look that fails is an answer.
            if last is None:
                raise
            report_error(error)
        watch.pause(LIVE_PAUSE_SECONDS if source.is_live else PAUSE_SECONDS)
    return 0


def show_view(view: View, source: Source, console: Console, *, remark: str) -> int:
    """Write one view that was not made of the source itself; ``remark`` says what it was made of."""
    from kai.simulation.case import Origin

    origin = Origin(type="decisions", complete=False)
    _write(_Look(view=view, origin=origin, notes=(), remark=remark), source, console, None)
    return 0


def _served(source: Source, view_of: "Callable[[Served], View]") -> _Look:
    """Return what the service answers.

    Raises: UnreachableError where it does not.
    """
    served = source.served
    view = view_of(served)
    return _Look(view=view, origin=served.origin, notes=(), remark=served.remark)


def _write(seen: _Look, source: Source, console: Console, last: object) -> object:
    """Write a view unless it says the same as ``last``; return what it says."""
    view = seen.view
    # Only what is written is made: the fields of thousands of jobs take time as well.
    fields = view.fields() if console.is_for_machines else {}
    names = view.names() if console.output == "name" else ()
    text = view.text(console) if console.output in {"table", "wide"} else ""
    said = (fields, names, text)
    if said == last:
        return said
    if last is None:
        for note in seen.notes:
            console.talk(f"note: {note}", level=1)
    if console.is_for_machines:
        write_document({**envelope(view.kind, seen.origin), **fields}, console)
    elif console.output == "name":
        for name in names:
            console.write(name)
    else:
        if source.watch and sys.stdout.isatty():
            write_out(_CLEAR)
        console.write(text)
    flush_out()
    if seen.remark:
        console.talk(seen.remark)
    return said
