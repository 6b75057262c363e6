"""What a watch hears of and what it does next, between `watch`, which decides, and `watching`, which calls."""

from __future__ import annotations

from typing import TypeAlias

import attrs

# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Started:
    """Nothing was asked yet."""


@attrs.frozen(kw_only=True)
class PageCame:
    """A page of the list came and was put into the cache; `rest` leads to the next one."""

    version: str
    rest: str = ""


@attrs.frozen(kw_only=True)
class VersionCame:
    """The server said how far it is."""

    version: int


@attrs.frozen(kw_only=True)
class Refused:
    """A list or a watch was answered with something else, or not at all (status 0)."""

    status: int
    retry_after: float | None = None
    message: str = ""


@attrs.frozen
class Opened:
    """The stream is open."""


@attrs.frozen(kw_only=True)
class Heard:
    """The stream brought something; `version` is the last one that it named."""

    version: str = ""


@attrs.frozen(kw_only=True)
class Failed:
    """The stream brought an error."""

    code: int
    message: str = ""


@attrs.frozen(kw_only=True)
class Ended:
    """The stream ended; `message` says how it was cut, if it was."""

    message: str = ""


@attrs.frozen
class TimeCame:
    """The time came that `Pause` or `OpenStream` named."""


@attrs.frozen
class RefreshWanted:
    """A caller wants a list that begins from now on; the next event of another kind leads to it."""


Event: TypeAlias = (
    Started | PageCame | VersionCame | Refused | Opened | Heard | Failed | Ended | TimeCame | RefreshWanted
)


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReadPage:
    """Read a page of the list, by quorum; `is_first` begins a new list."""

    variant: int
    limit: int
    rest: str = ""
    is_first: bool = True


@attrs.frozen(kw_only=True)
class AskVersion:
    """Ask the server, by quorum, how far it is."""

    variant: int


@attrs.frozen(kw_only=True)
class OpenStream:
    """Watch from a version."""

    variant: int
    version: str
    seconds: float


@attrs.frozen
class KeepReading:
    """Go on reading the stream."""


@attrs.frozen(kw_only=True)
class Pause:
    """Do nothing until then; a stream that is open is closed."""

    until: float
    is_asked_for: bool = False
    """Whether the server asked for it; another pause may be ended early, once the server answers others again."""


@attrs.frozen
class Vanish:
    """The kind is not served: take its cache for complete and empty, and go on with the next effect."""


Effect: TypeAlias = ReadPage | AskVersion | OpenStream | KeepReading | Pause | Vanish
