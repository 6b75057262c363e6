"""Events and effects of a watch, between `watch`, which decides, and `watching`, which makes the calls."""

from __future__ import annotations

from typing import TypeAlias

import attrs

# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Started:
    """The watch begins."""


@attrs.frozen(kw_only=True)
class PageCame:
    """A page of the list was put into the cache; ``rest`` is the token of the next one."""

    version: str
    rest: str = ""


@attrs.frozen(kw_only=True)
class VersionCame:
    """The server reported its version."""

    version: int


@attrs.frozen(kw_only=True)
class Refused:
    """A list or a watch failed with a status, or got no answer (status 0)."""

    status: int
    retry_after: float | None = None
    message: str = ""


@attrs.frozen
class Opened:
    """The stream is open."""


@attrs.frozen(kw_only=True)
class Heard:
    """The stream delivered something; ``version`` is the last version in it."""

    version: str = ""


@attrs.frozen(kw_only=True)
class Failed:
    """The stream delivered an error."""

    code: int
    message: str = ""


@attrs.frozen(kw_only=True)
class Ended:
    """The stream ended; ``message`` says how it was interrupted, if it was."""

    message: str = ""


@attrs.frozen
class TimeCame:
    """The time named by `Pause` or `OpenStream` has come."""


@attrs.frozen
class RefreshWanted:
    """A caller wants a list that begins from now on; the next other event starts it."""


Event: TypeAlias = (
    Started | PageCame | VersionCame | Refused | Opened | Heard | Failed | Ended | TimeCame | RefreshWanted
)


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReadPage:
    """Read a page of the list with a quorum; ``is_first`` begins a new list."""

    variant: int
    limit: int
    rest: str = ""
    is_first: bool = True


@attrs.frozen(kw_only=True)
class AskVersion:
    """Ask the server for its version with a quorum read."""

    variant: int


@attrs.frozen(kw_only=True)
class OpenStream:
    """Watch from a version."""

    variant: int
    version: str
    seconds: float


@attrs.frozen
class KeepReading:
    """Read on from the stream."""


@attrs.frozen(kw_only=True)
class Pause:
    """Do nothing until ``until``; close an open stream."""

    until: float
    is_asked_for: bool = False
    """Whether the server asked for the pause; any other pause may end early once the server answers again."""


@attrs.frozen
class Vanish:
    """The kind is not served: its cache becomes complete and empty; then go on with the next effect."""


Effect: TypeAlias = ReadPage | AskVersion | OpenStream | KeepReading | Pause | Vanish
