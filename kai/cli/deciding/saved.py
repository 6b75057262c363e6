"""Results that were saved: in a file, or in a folder that ``kai demo --save`` left, whose run is asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.virtual.scenes.file_kinds import is_result

if TYPE_CHECKING:
    from kai.cli.deciding.runs import Wanted

FILES: Final = "scene"
RESULT, TIMELINE, END = "result.json", "timeline.json", "end.zip"


def asked_again(place: str, wanted: Wanted) -> tuple[str, Wanted]:
    """Return the workload of a saved folder, with horizon, seed and cluster of its run; any other place as it is."""
    folder = Path(place)
    scene = folder / FILES
    result = result_in(folder / RESULT) if scene.is_dir() else None
    if result is None:
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


def document_in(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that a file holds; None for any other file."""
    if path.suffix != ".json":
        return None
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def result_in(path: Path) -> dict[str, Any] | None:
    """Return the result of a run over time that a file holds; None for any other file."""
    found = document_in(path)
    return found if is_result(found) else None
