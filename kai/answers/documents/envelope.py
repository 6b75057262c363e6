"""The envelope of every document for machines: its kind, time, source, and the version of kai.

`installed` gives versions of packages, and `span` durations as text of at most two units.
"""

import datetime as dt
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kai.api.fields import document_name

if TYPE_CHECKING:
    from kai.answers.cases.origin import Origin


DISTRIBUTION = "kai-scheduler"


def installed(name: str) -> str:
    """Return the version of an installed distribution, "not installed" if there is none."""
    from importlib import metadata  # noqa: PLC0415 - importing it takes as long as the rest of a help text

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def span(seconds: float) -> str:
    """Return a duration as text: ``45s``, ``12m``, ``1h05m``, ``3d4h``."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR}h"


API_VERSION = "output.kai/v1"


@attrs.frozen(kw_only=True)
class Source:
    """Where a document was made from."""

    type: str
    cluster: str | None
    revision: str | None
    sha256: str | None
    complete: bool


@attrs.frozen(kw_only=True)
class Program:
    """Which kai made a document."""

    version: str


@attrs.frozen(kw_only=True)
class Envelope:
    """What every document begins with."""

    api_version: str
    kind: str
    generated_at: str
    source: Source | None
    program: Program


def enveloped(kind: str, fields: Mapping[str, Any], origin: "Origin | None" = None) -> dict[str, Any]:
    """Return a document: the envelope and its own fields; ``origin`` is None where nothing was read."""
    envelope = Envelope(
        api_version=API_VERSION,
        kind=kind,
        generated_at=_now(),
        source=None if origin is None else _source(origin),
        program=Program(version=installed(DISTRIBUTION)),
    )
    return {**{document_name(name): value for name, value in attrs.asdict(envelope).items()}, **fields}


def _source(origin: "Origin") -> Source:
    return Source(**{name: getattr(origin, name) for name in attrs.fields_dict(Source)})


def _now() -> str:
    """Return the present time, or SOURCE_DATE_EPOCH, with which the same input gives the same bytes."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(fixed) if fixed.isdecimal() else int(time.time())
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
