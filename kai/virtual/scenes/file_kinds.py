"""How files are called, and what they hold: what tells a trace, or a result, before it is read as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TRACES: Final = (".csv", ".csv.gz", ".parquet", ".psv", ".txt", ".json.gz")
"""What the names of traces end in; Philly's log has a name of its own."""
_PHILLY: Final = "cluster_job_log"


_BEGIN: Final = re.compile(rb'\s*\{\s*"(?:jobs|meta|errors|warnings)"\s*:|#?JobID(?:\s{2,}|[|,;\t]|$)')
"""How the output of sacct begins, as JSON or as a table."""


def is_trace(path: str) -> bool:
    """Return whether a path is called as traces are, or begins as what sacct writes."""
    name = Path(path).name
    return name.endswith(TRACES) or name.startswith(_PHILLY) or _BEGIN.match(_begin_of(Path(path))) is not None


def _begin_of(path: Path) -> bytes:
    """Return the first bytes of a file; none of what is no file."""
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
