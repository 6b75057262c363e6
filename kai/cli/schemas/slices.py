"""The MIG slices of a node, as ``kai nodes`` and ``kai why node/NAME`` write them; see ``kai.cli.schemas.kinds``."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class UserOfSlices:
    """A pod with MIG slices of one profile."""

    job: str
    namespace: str
    queue: str | None
    pod: str
    count: int
    state: str


@attrs.frozen(kw_only=True)
class SlicesItem:
    """The MIG slices of one profile on a node; ``resource`` is what pods ask for."""

    resource: str
    total: int
    used: int
    held: int
    leaving: int
    free: int
    users: tuple[UserOfSlices, ...]
