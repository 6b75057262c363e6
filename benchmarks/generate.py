"""Write a workload as manifest files that any scheduler, ``kubectl`` and ``kai simulate`` can read.

One file per kind, numbered in the order in which they must be applied. A file is one ``kind: List`` in JSON with an
item on each line: readers of JSON take it whole and fast, a person or a script can go through it line by line.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from benchmarks.manifests import KINDS, Manifest
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
        if objects := _write_list(path, make(workload)):
            written.append(Written(path, objects))
        else:
            path.unlink()
    return written


def _write_list(path: Path, manifests: Iterator[Manifest]) -> int:
    """Write ``manifests`` one by one as the items of a list and count them."""
    objects = 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"apiVersion":"v1","kind":"List","items":[')
        for manifest in manifests:
            file.write(",\n" if objects else "\n")
            file.write(json.dumps(manifest, separators=(",", ":")))
            objects += 1
        file.write("\n]}\n")
    return objects
