"""Showing an answer: once, or again whenever it changes; as text, as a document, or as names."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from kai.answers.documents.document import enveloped
from kai.api.memory import growing, is_spared, paused
from kai.basics.errors import ConfigError, UnreachableError
from kai.basics.wording import counted
from kai.cli.console import Console, write_document
from kai.cli.failures import INPUT, flush_out, report_error, say_error, write_out
from kai.cli.sources import Source
from kai.cli.tables import shown_width

if TYPE_CHECKING:
    from kai.answers.cases.origin import Origin
    from kai.answers.why.own_jobs import OwnJobs
    from kai.cli.serving import Served
    from kai.lab.request import Result
    from kai.manifests import Finding

PAUSE_SECONDS = 2.0
LIVE_PAUSE_SECONDS = 5.0
"""Seconds between two looks at a cluster: each lists everything that the scheduler reads."""
CUT_SHORT = "not all evictions were tried: a job that waits may start at the expense of others; kai simulate tries all"
_CLEAR = "\x1b[H\x1b[J"
HEAD = frozenset({"apiVersion", "kind", "generatedAt", "source", "program"})
"""The fields of the envelope of every document."""


class Shown(Protocol):
    """One answer, as text and as names."""

    def names(self) -> Sequence[str]:
        """Return the output of ``-o name``, in kubectl's form."""
        ...

    def text(self, console: Console) -> str:
        """Return the text for people."""
        ...


class View(Shown, Protocol):
    """One answer, in every form."""

    @property
    def kind(self) -> str:
        """The kind of the document."""
        ...

    def fields(self) -> dict[str, Any]:
        """Return the fields of the document, without its envelope."""
        ...


@attrs.frozen(kw_only=True)
class ServedView:
    """A view whose document is the service's own."""

    shown: Shown
    document: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the document."""
        return str(self.document["kind"])

    def fields(self) -> dict[str, Any]:
        """Return the fields of the document, without its envelope."""
        return {name: value for name, value in self.document.items() if name not in HEAD}

    def names(self) -> Sequence[str]:
        """Return the output of ``-o name``."""
        return self.shown.names()

    def text(self, console: Console) -> str:
        """Return the text for people."""
        return self.shown.text(console)


@attrs.frozen(kw_only=True)
class Watching:
    """The pause of a watch between two looks, and its end condition."""

    pause: Callable[[float], None] = time.sleep
    goes_on: Callable[[], bool] = lambda: True


@attrs.frozen(kw_only=True)
class Ways:
    """Functions that make a view, by the kind of answer that is available."""

    decided: "Callable[[Result], View]"
    own: "Callable[[OwnJobs], View] | None" = None
    """For users who may not see the whole cluster: from their own jobs."""
    findings: "Callable[[Result], Iterable[Finding]] | None" = None
    """The findings about a file that belong to the answer; None for all that refuse something."""
    served: "Callable[[Served], View] | None" = None
    """For such users too: from the answers of the service."""
    soon: "Callable[[Served], View] | None" = None
    """The same view as ``decided``, from what a service has decided already. It is tried first; if the service does not
    answer soon, a note says so and the command decides itself.
    """


@attrs.frozen(kw_only=True)
class _Look:
    """The result of one look at a source."""

    view: View
    origin: "Origin"
    notes: Sequence[str]
    remark: str = ""
    """The closing line."""
    unused: Sequence[str] = ()
    """Contents of a file that play no part in the view; reported even without -v."""
    is_mute: bool = False
    """Whether a file holds workloads for this scheduler, but yielded no job."""
    findings: "Sequence[Finding]" = ()
    """Findings about a file."""


def show(source: Source, console: Console, ways: Ways, watching: Watching | None = None) -> int:
    """Decide on the source and write the view; with ``-w`` repeatedly, whenever it changed."""
    if not source.watch:
        # A command keeps what its only look leaves to the end, so the collector need not pass over it.
        with growing() if is_spared() else paused():
            seen = _look(source, console, ways)
        _write(seen, source, console, None)
        if seen.is_mute:
            say_error(f"{source.place}: found workloads for this scheduler, and no job came of them")
        return INPUT if seen.is_mute or any(each.is_refusal for each in seen.findings) else 0
    watch = Watching() if watching is None else watching
    last: object = None
    while watch.goes_on():
        try:
            last = _write(_look(source, console, ways), source, console, last)
        except UnreachableError as error:
            # While watching, an unreachable cluster is retried; on the first look it is an error.
            if last is None:
                raise
            report_error(error)
        watch.pause(LIVE_PAUSE_SECONDS if source.is_live else PAUSE_SECONDS)
    return 0


def show_view(view: View, source: Source, console: Console, *, remark: str) -> int:
    """Write one view that was not made from the source itself; ``remark`` names its origin."""
    from kai.answers.cases.origin import Origin

    origin = Origin(type="decisions", complete=False)
    _write(_Look(view=view, origin=origin, notes=(), remark=remark), source, console, None)
    return 0


# Objects that one look imports and reads live until it is written, so a garbage collection would find nothing.
@paused()
def _look(source: Source, console: Console, ways: Ways) -> _Look:
    """Return the present view of a source, from the first way that yields one.

    Raises: as ``Source.decide``.
    """
    if source.service and ways.served is not None:
        return _served(source, ways.served)
    if ways.soon is not None and not source.adopts:  # a service decides on its own pods
        try:
            return _served(source, ways.soon, is_optional=True)
        except (UnreachableError, ConfigError) as refusal:
            from kai.answers.documents.asking import SlowServiceError

            console.talk(f"note: {refusal}", level=0 if isinstance(refusal, SlowServiceError) else 1)
    try:
        result = source.decide()
    except UnreachableError as error:
        return _limited(source, console, ways, error)
    said = [*(f"note: {doubt}" for doubt in result.doubts)]
    said += [source.chosen.line(result.case.origin)] if source.is_live else []
    remark = "\n".join([*said, *([CUT_SHORT] if result.was_cut_short else [])])
    unused = tuple(map(str, result.unused))
    seen = _Look(view=ways.decided(result), origin=result.case.origin, notes=result.notes, remark=remark)
    if source.is_live:  # its workloads may be for other schedulers, or not grouped yet
        return attrs.evolve(seen, notes=(*result.notes, *unused))
    refusals = (each for each in result.findings if each.is_refusal)
    findings = tuple(dict.fromkeys(refusals if ways.findings is None else ways.findings(result)))
    return attrs.evolve(seen, unused=unused, is_mute=result.is_mute, findings=findings)


def _limited(source: Source, console: Console, ways: Ways, error: UnreachableError) -> _Look:
    """Return the view for a user who lacks a right to read the cluster.

    Raises: ``error`` itself if nothing is visible.
    """
    if not error.missing:
        raise error
    if ways.served is not None:
        try:
            return _served(source, ways.served)
        except UnreachableError as refusal:
            console.talk(f"note: {refusal}", level=1)
    if ways.own is None:
        raise error
    own = source.read_own(error)
    return _Look(view=ways.own(own), origin=own.origin, notes=own.notes, remark=own.remark)


def _served(source: Source, view_of: "Callable[[Served], View]", *, is_optional: bool = False) -> _Look:
    """Return the view from the service.

    Raises: UnreachableError where the service does not answer.
    """
    served = source.served(is_optional=is_optional)
    view = view_of(served)
    return _Look(view=view, origin=served.origin, notes=(), remark=served.remark)


def _write(seen: _Look, source: Source, console: Console, last: object) -> object:
    """Write a view unless it equals ``last``; return its contents for the next comparison."""
    view = seen.view
    # Only the requested form is made: the fields of thousands of jobs take time as well.
    fields = view.fields() if console.is_for_machines else {}
    names = view.names() if console.output == "name" else ()
    text = view.text(console) if console.output in {"table", "wide"} else ""
    said = (fields, names, text)
    if said == last:
        return said
    if last is None:
        from kai.cli.failures import finding_text

        for finding in seen.findings:
            console.talk(finding_text(finding))
        for note in seen.unused:
            console.talk(f"note: {note}")
        for note in seen.notes:
            console.talk(f"note: {note}", level=1)
    if console.is_for_machines:
        write_document(enveloped(view.kind, fields, seen.origin), console)
    elif console.output == "name":
        for name in names:
            console.write(name)
    else:
        if source.watch and sys.stdout.isatty():
            write_out(_CLEAR)
            text = _fitted(text, "" if console.quiet else seen.remark)
        console.write(text)
    flush_out()
    if seen.remark:
        console.talk(seen.remark)
    return said


def _fitted(text: str, remark: str) -> str:
    """Return the part of a text that fits on the screen above ``remark``: lines that scroll off cannot be redrawn.

    The cursor stands on the line after both.
    """
    screen = shutil.get_terminal_size()

    def height(line: str) -> int:
        return max(1, -(-shown_width(line) // max(1, screen.columns)))

    lines = text.split("\n")
    room = screen.lines - 1 - (sum(map(height, remark.split("\n"))) if remark else 0)
    if sum(map(height, lines)) <= room:
        return text
    taken, kept = 1, 0
    while kept < len(lines) and taken + height(lines[kept]) <= room:
        taken += height(lines[kept])
        kept += 1
    kept = max(1, kept)
    return "\n".join([*lines[:kept], f"… {counted(len(lines) - kept, 'more row')}"])
