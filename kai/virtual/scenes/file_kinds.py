"""How files are called, and what they hold: what tells a trace, or a result, before it is read as one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TRACES: Final = (".csv", ".csv.gz", ".parquet", ".psv", ".txt", ".json.gz")
"""What the names of traces end in; Philly's log has a name of its own."""
_PHILLY: Final = "cluster_job_log"


def is_trace(path: str) -> bool:
    """Return whether a path is called as traces are."""
    name = Path(path).name
    return name.endswith(TRACES) or name.startswith(_PHILLY)


def is_result(values: object) -> bool:
    """Return whether a document is the result of a run over time."""
    return isinstance(values, Mapping) and values.get("kind") == "SimulationResult" and "horizonSeconds" in values
