"""Write a workload as manifest files that any scheduler, ``kubectl`` and ``kai simulate`` can read.

One file per kind, numbered in the order in which they must be applied; every line of a file is one JSON object.
"""

import json
from pathlib import Path

from attrs import frozen

from benchmarks.manifests import KINDS
from benchmarks.workload import Workload


@frozen
class Written:
    """How many objects of one kind a file holds."""

    path: Path
    objects: int


def write(workload: Workload, directory: Path) -> list[Written]:
    """Write ``workload`` into ``directory`` and say what was written; kinds without objects get no file."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for index, (kind, make) in enumerate(KINDS.items()):
        path = directory / f"{index}-{kind}.json"
        objects = 0
        with path.open("w", encoding="utf-8") as file:
            for manifest in make(workload):
                file.write(json.dumps(manifest, separators=(",", ":")))
                file.write("\n")
                objects += 1
        if objects:
            written.append(Written(path, objects))
        else:
            path.unlink()
    return written
