"""Arguments of commands: paths, and label selectors in kubectl's syntax.

An empty path is a typing error. Whether a file is readable is left to its reader, which reports it better.

Selectors: ``a=x``, ``a!=x``, ``a in (x,y)``, ``a notin (x)``, ``a``, ``!a``.
"""

import re
from collections.abc import Mapping

import attrs
import click

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
