"""The envelope of every document for machines: what it is, when and from what it was made, and by which kai."""

import datetime as dt
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kai.documents.distribution import DISTRIBUTION, installed

if TYPE_CHECKING:
    from kai.simulation.cases.origin import Origin

API_VERSION = "output.kai/v1"


def enveloped(kind: str, fields: Mapping[str, Any], origin: "Origin | None" = None) -> dict[str, Any]:
    """Return a document: what every one begins with, and its own fields; ``origin`` is None where nothing was read."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "generatedAt": _now(),
        "source": None if origin is None else _source(origin),
        "program": {"version": installed(DISTRIBUTION)},
        **fields,
    }


def _source(origin: "Origin") -> dict[str, Any]:
    return {
        "type": origin.type,
        "cluster": origin.cluster,
        "revision": origin.revision,
        "sha256": origin.sha256,
        "complete": origin.complete,
    }


def _now() -> str:
    """Return the present time; SOURCE_DATE_EPOCH stands for it where the same input must give the same bytes."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(fixed) if fixed.isdecimal() else int(time.time())
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
