"""What ``kai run ROLE --help`` says: the flags of roles, their defaults and what each sets. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from kai.cli.running.flagrows import INERT, OWN, ROLES, SHARED, Row
from kai.cli.running.meanings import MEANINGS

_WIDEST: Final = 100
_COLUMN: Final = 30


def help_of(roles: Sequence[str], width: int = _WIDEST) -> str:
    """Return the help of roles: first the flags that only they have, then those that others share with them."""
    out = click.HelpFormatter(width=min(width, _WIDEST))
    out.write_usage("kai run", f"{' '.join(roles)} [FLAG...]")
    for role in roles:
        with out.section(f"Flags of {role}"):
            out.write_dl(list(_lines(OWN[role])), col_max=_COLUMN)
    shared = [row for takers, rows in SHARED.items() if not set(takers).isdisjoint(roles) for row in rows]
    with out.section("Flags of several roles"):
        out.write_dl(list(_lines(shared)), col_max=_COLUMN)
    names = [name for name, *_ in (*shared, *(row for role in roles for row in OWN[role]))]
    idle = [(f"--{name}", INERT[name]) for name in names if name in INERT]
    if idle:
        with out.section("Accepted without effect, because"):
            out.write_dl(idle, col_max=_COLUMN)
    return out.getvalue().rstrip("\n")


def roles_in(words: Sequence[str]) -> tuple[str, ...]:
    """Return the roles that a command line names, each once, in its order."""
    return tuple(dict.fromkeys(word for word in words if word in ROLES))


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for name, kind, default in rows:
        if name not in INERT:
            shown = _shown(kind, default)
            yield f"--{name}", MEANINGS[name] + (f"  [{shown}]" if shown else "")


def _shown(kind: str, default: object) -> str:
    """Return a default as a person would write it; "" where none is to be shown."""
    if kind == "truth":
        return "true" if default else "false"
    if kind == "duration":
        return f"{default:g}s"
    if kind in {"json", "labels"}:
        return ""
    return str(default)
