"""A folder that ``kai demo --save`` left: where things are in it, and how its run is asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.virtual.names import is_result

if TYPE_CHECKING:
    from kai.cli.deciding.runs import Wanted

FILES: Final = "scene"
RESULT, TIMELINE, END = "result.json", "timeline.json", "end.zip"


def asked_again(place: str, wanted: Wanted) -> tuple[str, Wanted]:
    """Return the workload of a saved folder, with horizon, seed and cluster of its run; any other place as it is."""
    folder = Path(place)
    scene = folder / FILES
    try:
        result: Any = json.loads((folder / RESULT).read_bytes()) if scene.is_dir() else None
    except (OSError, ValueError, RecursionError):
        return place, wanted
    if not is_result(result):
        return place, wanted
    inputs = result.get("inputs") or {}
    cluster, workload = (scene / Path(str(inputs.get(key))).name for key in ("cluster", "workload"))
    changed = attrs.evolve(
        wanted,
        until=wanted.until or f"{result['horizonSeconds']}s",
        seed=wanted.seed or int(inputs.get("seed") or 0),
        cluster=wanted.cluster or (str(cluster) if cluster.is_file() else None),
        beside=place,
    )
    return str(workload if workload.is_file() else scene), changed


__all__ = ["END", "FILES", "RESULT", "TIMELINE", "asked_again"]
