"""The flags of every role, with the peer's names and defaults; ``docs/reference/flags.md`` explains them.

Source: the options of the peer's programs, cmd/*/app.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kai.cli.running.flagrows import (
    ADMISSION,
    BINDER,
    INERT,
    OWN,
    POD_GROUPS,
    PODGROUPER,
    QUEUES,
    ROLES,
    SCALE,
    SCHEDULER,
    SHARED,
    TOGETHER,
)
from kai.cli.running.flags import Flag


def _all() -> Iterator[Flag]:
    for roles, rows in (*SHARED.items(), *(((role,), rows) for role, rows in OWN.items())):
        for name, kind, default in rows:
            yield Flag(name=name, kind=kind, default=default, roles=frozenset(roles), inert=INERT.get(name, ""))


FLAGS: Final[Mapping[str, Flag]] = {flag.name: flag for flag in _all()}

LEASES: Final[Mapping[str, str]] = {
    BINDER: "2ad35f9c.kai.scheduler",
    PODGROUPER: "54dff599.kai.scheduler",
    POD_GROUPS: "o1x22tjj.kai.scheduler",
    QUEUES: "ov3xj497.kai.scheduler",
    SCALE: "7n7h49uc.kai.scheduler",
    ADMISSION: "ojptxr84.kai.scheduler",
}
"""The leases of roles that run alone. They are the peer's, so that its component and ours never work at once."""

REPORTED_AS: Final[Mapping[str, str]] = {PODGROUPER: "pod-grouper"}
"""What the events of a role that runs alone give as their source, where that is not its name: as the peer's do."""

__all__ = [
    "ADMISSION",
    "BINDER",
    "FLAGS",
    "LEASES",
    "PODGROUPER",
    "POD_GROUPS",
    "QUEUES",
    "REPORTED_AS",
    "ROLES",
    "SCALE",
    "SCHEDULER",
    "TOGETHER",
]
