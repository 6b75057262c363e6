"""Refusal codes that plugins bring, with their texts.

A plugin refuses with an instance of ``Words`` where the engine refuses with a ``Code``:

    RACK_IS_FULL = Words(code="RackIsFull", text=lambda facts: f"rack {facts['rack']} has no power left")

    return Verdict.refused(RACK_IS_FULL, rack="a")

The texts are made of the facts of the refusal, only when they are read.
"""

from collections.abc import Callable, Mapping, Sequence

import attrs

Facts = Mapping[str, object]


@attrs.frozen
class Detail:
    """One part of a refusal that is told on its own, before the refusal: what a single domain lacks."""

    subject: str
    lines: tuple[str, ...]
    reason: str
    """The reason under which conditions on pod groups carry it."""


@attrs.frozen(kw_only=True, eq=False)
class Words:
    """A refusal code with its texts; one instance for each code, in the plugin's folder."""

    code: str
    """What metrics and documents call it."""
    text: Callable[[Facts], str]
    """The message of conditions and events on pod groups."""
    plain: Callable[[Facts], str] | None = None
    """One line for people, as ``kai simulate`` prints it; ``text`` if it is left out."""
    plain_code: str = ""
    """The code of that line, where it differs: how a plugin tells what does not fit now from what never can."""
    details: Callable[[Facts], Sequence[Detail]] | None = None
    """What is told on its own."""
    wire: str = "PodSchedulingErrors"
    """The reason under which conditions on pod groups carry it."""

    @property
    def value(self) -> str:
        """The code as text, as codes of the engine have it."""
        return self.code

    def __str__(self) -> str:
        return self.code


__all__ = ["Detail", "Facts", "Words"]
