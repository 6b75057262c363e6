"""Results that were saved: in a file, or in a folder that ``kai demo --save`` left, whose run is asked for again.

What a run was made of is kept in an archive beside its result: workload, cluster and policies, and in ``runs.json`` how
each run used them. A run follows from these alone, so any moment of it can be looked at again.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.cli.deciding.runsfiles import INPUTS, RUNS, inputs_beside
from kai.errors import InputError
from kai.lenient import mappings_of
from kai.virtual.scenes.file_kinds import is_result

if TYPE_CHECKING:
    from kai.cli.deciding.runs import Wanted
    from kai.virtual.experiments import Experiment

FILES: Final = "scene"
RESULT, TIMELINE, END = "result.json", "timeline.json", "end.zip"
_NUMBER: Final = re.compile(r"(?:result|timeline|end)-([0-9]+)\.(?:json|zip)")


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


# --- What runs were made of ----------------------------------------------------------------------------------------


def run_at(place: str) -> Experiment | None:
    """Return the run whose result is at a place, ready to be repeated; None where there is no result of a run.

    Raises: InputError for inputs that are missing or cannot be read, and for the results of several runs.
    """
    path = Path(place)
    folder = path if path.is_dir() else path.parent
    numbered = _NUMBER.fullmatch(path.name)
    for at in (inputs_beside(path), folder / INPUTS):
        if (path.is_dir() or path.suffix in {".json", ".parquet"}) and at.is_file():
            return _repeated(at, int(numbered[1]) if numbered is not None else None, place)
    if path.is_dir() and (path / FILES).is_dir() and result_in(path / RESULT) is not None:
        return _of_a_demo(place)
    if result_in(path) is not None or (path.is_dir() and result_in(path / RESULT) is not None):
        wanted = f"them at {inputs_beside(path)}: kai simulate --out keeps them"
        raise InputError(f"{place}: found no inputs of its run, expected {wanted}")
    return None


def start_in(place: str, name: str) -> float | None:
    """Return when a job started in the run whose result is at a place, in seconds; None where that is not known."""
    path = Path(place)
    values = result_in(path / RESULT if path.is_dir() else path)
    found = next((each for each in mappings_of(values, "jobs") if each.get("name") == name), {}).get("startSeconds")
    return float(found) if isinstance(found, int | float) else None


def _repeated(at: Path, number: int | None, place: str) -> Experiment:
    """Return a run of those whose inputs are kept in an archive.

    Raises: InputError for what is no such archive, and where it is not said which of several runs is meant.
    """
    try:
        with zipfile.ZipFile(at) as archive:
            runs = mappings_of(json.loads(archive.read(RUNS)), "runs")
            if number is None and len(runs) > 1:
                names = ", ".join(f"result-{index}.json ({run.get('name')})" for index, run in enumerate(runs, start=1))
                raise InputError(f"{place}: found {len(runs)} runs, expected one of them: --from {place}/{names}")
            run = dict(enumerate(runs, start=1))[1 if number is None else number]
            folder = tempfile.mkdtemp(prefix="kai-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            archive.extractall(folder)
        return _experiment(run, folder)
    except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile, zlib.error, RecursionError) as error:
        raise InputError(f"{at}: found no inputs of a run ({error}), expected what kai simulate --out keeps") from None


def _experiment(run: Mapping[str, Any], folder: str) -> Experiment:
    from kai.cli.deciding.runs import swept, under
    from kai.manifests.adoption import Adoption
    from kai.virtual.experiments import Experiment

    def at(name: str) -> str | None:
        found = run.get(name)
        return str(Path(folder) / found) if isinstance(found, str) else None

    until = run.get("untilSeconds")
    base = Experiment(
        workload=at("workload") or "",
        cluster=at("cluster"),
        until=inf if until is None else float(until),
        seed=int(run.get("seed") or 0),
        since=run.get("since"),
        skips_bad_rows=run.get("skipsBadRows") is True,
        adoption=Adoption(
            schedulers=frozenset(run.get("schedulers") or ()), queue_from=str(run.get("queueFrom") or "")
        ),
    )
    policy = at("policy")
    chosen = base if policy is None else under(base, policy)
    for change in run.get("changes") or ():
        (chosen,) = swept([chosen], [change])
    return chosen


def _of_a_demo(place: str) -> Experiment:
    from kai.cli.deciding.runs import Wanted, experiments_of

    workload, wanted = asked_again(place, Wanted())
    return experiments_of(workload, wanted)[0]
