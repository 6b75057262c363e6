"""The kinds of files, recognized by their names and first bytes: traces and results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TRACES: Final = (".csv", ".csv.gz", ".parquet", ".psv", ".txt", ".json.gz")
"""File extensions of traces; Philly's log has a name of its own."""
_PHILLY: Final = "cluster_job_log"


_BEGIN: Final = re.compile(rb'\s*\{\s*"(?:jobs|meta|errors|warnings)"\s*:|#?JobID(?:\s{2,}|[|,;\t]|$)')
"""The first bytes of sacct's output, as JSON or as a table."""


def is_trace(path: str) -> bool:
    """Return whether a path is named like a trace, or its content begins like the output of sacct."""
    name = Path(path).name
    return name.endswith(TRACES) or name.startswith(_PHILLY) or _BEGIN.match(_begin_of(Path(path))) is not None


def _begin_of(path: Path) -> bytes:
    """Return the first bytes of a file; empty where there is no file."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b""


def is_result(values: object) -> bool:
    """Return whether a document is the result of a run over time."""
    return isinstance(values, Mapping) and values.get("kind") == "SimulationResult" and "horizonSeconds" in values
