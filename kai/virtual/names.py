"""How files are called: what tells a trace from manifests before it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TRACES: Final = (".csv", ".csv.gz", ".parquet", ".psv", ".txt", ".json.gz")
"""What the names of traces end in; Philly's log has a name of its own."""
_PHILLY: Final = "cluster_job_log"


def is_trace(path: str) -> bool:
    """Return whether a path is called as traces are."""
    name = Path(path).name
    return name.endswith(TRACES) or name.startswith(_PHILLY)


__all__ = ["TRACES", "is_trace"]
