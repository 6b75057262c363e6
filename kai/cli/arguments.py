"""Arguments of commands: paths, label selectors in kubectl's syntax, names with a kind, and flags without effect.

An empty path is a typing error. Whether a file is readable is left to its reader, which reports it better.

Selectors: ``a=x``, ``a!=x``, ``a in (x,y)``, ``a notin (x)``, ``a``, ``!a``.

Names: ``deployment/chat``, ``queue/vision``, or ``chat``, which names no kind.

A flag that has no effect on the inputs at hand is refused, not ignored (`refuse_given`).
"""

import re
from collections.abc import Mapping
from typing import Final

import attrs
import click
from click.core import ParameterSource

from kai.answers.cases.origin import MOST_CYCLES
from kai.basics.errors import CommandLineError


class GivenPath(click.Path):
    """A path of an option or an argument; an empty one, as from an unset shell variable, is refused."""

    def __init__(self, *, allow_dash: bool = False, dir_okay: bool = True) -> None:
        """Leave the check for readability to the reader of the file: that is wrong input, not wrong usage."""
        super().__init__(readable=False, allow_dash=allow_dash, dir_okay=dir_okay)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path; an empty one is wrong usage."""
        if value in {"", b""}:
            self.fail("found an empty path, expected a file or a folder", param, ctx)
        return str(super().convert(value, param, ctx))  # type: ignore[arg-type]  # a path of any sort


_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_SETS = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUALS = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})?\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")


@attrs.frozen
class Requirement:
    """One condition: the label has one of ``values`` (None: any value), or the negation of that."""

    key: str
    values: frozenset[str] | None
    is_wanted: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy the condition."""
        has = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return has is self.is_wanted


@attrs.frozen
class Selector:
    """A conjunction of conditions; an empty one matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy every condition."""
        return all(each.matches(labels) for each in self.requirements)


def read_selector(text: str) -> Selector:
    """Parse a selector.

    Raises: CommandLineError for an invalid selector.
    """
    if not text.strip():
        return Selector()
    return Selector(tuple(_requirement(part, text) for part in re.split(r",(?![^(]*\))", text)))


def _requirement(part: str, text: str) -> Requirement:
    if found := _SETS.fullmatch(part):
        values = frozenset(value.strip() for value in found[3].split(","))
        return Requirement(found[1], values, found[2] == "in")
    if found := _EQUALS.fullmatch(part):
        return Requirement(found[1], frozenset({found[3] or ""}), found[2] != "!=")
    if found := _EXISTS.fullmatch(part):
        return Requirement(found[2], None, not found[1])
    wanted = "a label selector such as app=x,tier!=y,env in (a,b)"
    raise CommandLineError.about("command line", "--selector", found=text, wanted=wanted)


KINDS = ("job", "queue", "node")
_PLURALS = {"jobs": "job", "queues": "queue", "nodes": "node", "podgroup": "job", "podgroups": "job", "pg": "job"}
SHORT: Final = {
    "cj": "cronjob",
    "deploy": "deployment",
    "ds": "daemonset",
    "lws": "leaderworkerset",
    "po": "pod",
    "rc": "replicationcontroller",
    "rs": "replicaset",
    "sts": "statefulset",
    "svc": "service",
}
"""kubectl's short names of the kinds of owners."""


def split_subject(text: str) -> tuple[str, str]:
    """Return the kind, "" for any, and the name; ``-o name`` writes a kind with its API group."""
    kind, _, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    kind = _PLURALS.get(kind, kind)
    return (kind, name) if kind in KINDS and name else ("", text)


def owner_subject(text: str) -> tuple[str, str]:
    """Return the kind of a pod or of an owner before the slash, in lower case, and the name after it.

    The kind is "" where there is none. Short names and plurals are those of kubectl.
    """
    kind, slash, name = text.partition("/")
    kind = kind.lower().partition(".")[0]
    if not slash or not kind or not name:
        return "", text
    return SHORT.get(kind, kind.removesuffix("s") if kind.endswith("s") else kind), name


cycles_option = click.option(
    "--cycles", type=click.IntRange(min=1, max=MOST_CYCLES), help="Number of scheduling cycles."
)


def is_given(name: str) -> bool:
    """Return whether a flag was typed, even with its default value."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(flags: Mapping[str, str], where: str, instead: str) -> None:
    """Refuse each of ``flags`` that was typed; it maps names of parameters to flags as they are written.

    Raises: UsageError.
    """
    refused = " and ".join(flag for name, flag in flags.items() if is_given(name))
    if refused:
        raise click.UsageError(f"{refused} cannot be used {where}\n{instead}")


def refuse_of_others(path: str) -> None:
    """Refuse flags about other schedulers' pods for a trace: its jobs name no scheduler, and its queues exist already.

    Raises: UsageError.
    """
    from kai.lab.virtual.scenes.file_kinds import is_trace

    if is_trace(path):
        flags = {"schedulers": "--scheduler-name", "queue_from": "--queue-from"}
        refuse_given(flags, "with a trace", f"the jobs of {path} name no scheduler, and their queues are made")


def refuse_of_traces(path: str) -> None:
    """Refuse --skip-bad-rows and --since for a workload that is no trace.

    Raises: UsageError.
    """
    from kai.lab.virtual.scenes.file_kinds import is_trace

    if not is_trace(path):
        refuse_given({"skips_bad_rows": "--skip-bad-rows", "since": "--since"}, "without a trace", f"{path} is none")
