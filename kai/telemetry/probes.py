"""What a kubelet asks: whether the loop turns, and whether the process can do its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from kai.telemetry.connections import Response
from kai.telemetry.listener import Route

_LONGEST: Final = 500

Check: TypeAlias = Callable[[], str]
"""Returns in words what is not right; "" if all is."""


@attrs.define
class Probes:
    """The checks of all roles of a process."""

    _checks: dict[str, Check] = attrs.field(factory=dict)
    _notes: dict[str, Check] = attrs.field(factory=dict)

    def add(self, name: str, check: Check) -> None:
        """Let readiness depend on a check."""
        self._checks[name] = check

    def add_note(self, name: str, note: Check) -> None:
        """Show what is not right, although readiness does not depend on it."""
        self._notes[name] = note

    def problems(self) -> Mapping[str, str]:
        """Return what is not right, by the name of its check."""
        found = {name: check() for name, check in self._checks.items()}
        return {name: problem for name, problem in found.items() if problem}

    def routes(self) -> Mapping[str, Route]:
        """Return the paths that a kubelet may ask for; the peer's ``/healthz`` among them."""
        return {
            "/livez": Route(answer=self._live),
            "/healthz": Route(answer=self._live),
            "/readyz": Route(answer=self._ready),
        }

    async def _live(self) -> Response:
        # That this runs at all says it: an answer needs a turn of the loop.
        return Response(body=b"ok")

    async def _ready(self) -> Response:
        problems = self.problems()
        if not problems:
            notes = {name: note() for name, note in self._notes.items()}
            lines = [f"{name}: {_on_one_line(notes[name])}" for name in sorted(notes) if notes[name]]
            return Response(body="\n".join(["ok", *lines]).encode())
        # Any client may ask, and a reason may quote what it stumbled over: so much of it, on one line.
        lines = [f"not ready: {', '.join(sorted(problems))}"]
        lines += [f"{name}: {_on_one_line(problems[name])}" for name in sorted(problems)]
        return Response(status=503, body=("\n".join(lines) + "\n").encode())


def _on_one_line(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}…"
