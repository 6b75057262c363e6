"""What a question is about: a job, a queue or a node, found by the name that was typed."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kai.errors import InputError

if TYPE_CHECKING:
    from kai.cli.sources import Source
    from kai.simulation.jobs import JobLine
    from kai.simulation.overview import Job, Overview
    from kai.simulation.request import Result

KINDS = ("job", "queue", "node")
_PLURALS = {"jobs": "job", "queues": "queue", "nodes": "node", "podgroup": "job", "podgroups": "job", "pg": "job"}


class NoSubjectError(InputError):
    """A name belongs to nothing in the source; ``help`` is what may have been meant."""

    def __init__(self, message: str, help: str = "") -> None:  # noqa: A002 - what the line is called that it fills
        super().__init__(message)
        self.help = help


@attrs.frozen(kw_only=True)
class Subject:
    """What is asked about: jobs, or the name of a queue or of a node."""

    kind: str
    name: str
    lines: "tuple[JobLine, ...]" = ()
    """The jobs; replicas of one owner are several."""


def find_subject(text: str, source: "Source", result: "Result") -> Subject:
    """Return what ``text`` names: ``NAME``, ``job/NAME``, ``job/NAMESPACE/NAME``, ``queue/NAME`` or ``node/NAME``.

    A name alone is looked for among jobs, owners of jobs, their pods, then queues, then nodes.

    Raises: NoSubjectError with the nearest name.
    """
    kind, name = split_subject(text)
    known = {each: _names(each, source, result) for each in KINDS}
    for each in [kind] if kind else KINDS:
        if each == "job":
            lines = _jobs(name, source, result)
            if lines:
                return Subject(kind=each, name=name, lines=lines)
        elif name in known[each]:
            return Subject(kind=each, name=name)
    raise _unknown(kind, name, known, source)


def split_subject(text: str) -> tuple[str, str]:
    """Return which kind is asked for, "" for any, and the name; ``-o name`` writes a kind with its API group."""
    kind, _, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    kind = _PLURALS.get(kind, kind)
    return (kind, name) if kind in KINDS and name else ("", text)


def _unknown(kind: str, name: str, known: "dict[str, list[str]]", source: "Source") -> NoSubjectError:
    choices = {f"{each}/{one}": one for each in ([kind] if kind else KINDS) for one in known[each]}
    near = difflib.get_close_matches(name, list(choices.values()), n=1)
    typed = next((long for long, short in choices.items() if near and short == near[0]), "")
    place = f" --from {source.place}" if source.place else ""
    hint = f"{source.command} {typed}{place}" if typed else f"kai {kind or 'job'}s{place} lists the {kind or 'job'}s"
    return NoSubjectError(f"found no {kind or 'job, queue or node'} {name}", hint)


def _jobs(name: str, source: "Source", result: "Result") -> "tuple[JobLine, ...]":
    """Return the jobs of this name: of one namespace where several have one."""
    if result.outcome is None:
        return ()
    case = source.case_of(result)
    lines = [line for line in result.lines if source.shows(case, line.job.namespace, line.labels)]
    return named_jobs(name, lines, source)


def named_jobs(name: str, lines: "Sequence[JobLine]", source: "Source") -> "tuple[JobLine, ...]":
    """Return those of ``lines`` that a name means.

    Raises: NoSubjectError where they are of several namespaces.
    """
    from kai.simulation.jobs import lines_named

    found = lines_named(name, lines)
    namespaces = sorted({line.job.namespace for line in found})
    if len(namespaces) > 1:
        hint = f"{source.command} {found[0].job.key}, or -n {namespaces[0]}"
        raise NoSubjectError(f"found {name} in the namespaces {', '.join(namespaces)}, expected one of them", hint)
    return found


def _names(kind: str, source: "Source", result: "Result") -> list[str]:
    outcome, seen = result.outcome, result.overview
    if outcome is None or seen is None:
        return []
    if kind == "job":
        return [job.title for job in _asked(seen, source, result)]
    if kind == "queue":
        return [each.metadata.name for each in outcome.case.objects.queues]
    return [each.name for each in outcome.last.snapshot.nodes]


def _asked(seen: "Overview", source: "Source", result: "Result") -> "Sequence[Job]":
    namespace = source.namespace_of(source.case_of(result))
    return [job for job in seen.jobs if namespace in {"", job.namespace}]


__all__ = ["KINDS", "NoSubjectError", "Subject", "find_subject", "named_jobs", "split_subject"]
