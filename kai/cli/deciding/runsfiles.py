"""Files of runs over virtual time: results as documents and tables, timelines, and the page of charts."""

import json
import os
import shlex
import zipfile
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kai.basics.errors import CommandLineError, ConfigError, InputError
from kai.basics.wording import found_by
from kai.cli.console import Console

INPUTS: Final = "inputs.zip"
"""The archive of the inputs of runs, beside their results."""
RUNS: Final = "runs.json"
"""In that archive: how each run used the inputs."""

if TYPE_CHECKING:
    from kai.lab.virtual.experiments import Done, Experiment
    from kai.lab.virtual.results.result import SimulationResult


def check_places(out: str | None, page: str | None, engine: str | None, history: str | None = None) -> None:
    """Check before any run that the libraries which write the files are installed, and that the places are writable.

    Raises: UsageError that says what to install, CommandLineError for an invalid Dask scheduler address, InputError for
    a folder that does not exist, or is none.
    """
    if engine is not None:
        from kai.lab.virtual.remote import SCHEME, require_dask

        if not engine.startswith(SCHEME):
            raise CommandLineError.about("command line", "--on", found=engine, wanted="dask://HOST:PORT")
        _require(require_dask)
    if page is not None:
        from kai.lab.report.page import require_plotly

        _require(require_plotly)
        _check_folder(Path(page))
    if history is not None:
        _check_folder(Path(history))
    if out is not None and out.endswith((".json", ".parquet")):
        _check_folder(Path(out))
        if out.endswith(".parquet"):
            from kai.lab.virtual.results.documents import require_pyarrow

            _require(require_pyarrow)
    elif out is not None:
        _check_place(Path(out))


def _require(library: Callable[[], object]) -> None:
    try:
        library()
    except ConfigError as error:
        raise click.UsageError(str(error).replace("; install it with ", "\n")) from None


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path}: found no folder {path.parent}, expected one to write to")
    _check_right(path, path.parent)


def _check_place(folder: Path) -> None:
    """Check that a folder exists or can be made; it is made when something is written."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: found a file, expected a folder, or a name that ends in .json or .parquet")
    _check_right(folder, next(each for each in (folder, *folder.parents) if each.exists()))


def _check_right(path: Path, above: Path) -> None:
    if not above.is_dir():
        raise InputError(f"{path}: found {above}, a file, expected a folder to write to")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{path}: found no right to write to {above}, expected a place to write to")


def document(result: "SimulationResult") -> dict[str, Any]:
    """Return a result in its envelope."""
    from kai.answers.cases.origin import Origin
    from kai.answers.documents.document import enveloped
    from kai.lab.virtual.results.documents import document_of
    from kai.lab.virtual.scenes.file_kinds import is_trace

    origin = Origin(type="manifests", sha256=result.inputs.workload_sha256)
    if is_trace(result.inputs.workload):
        origin = attrs.evolve(origin, type="trace")
    return enveloped("SimulationResult", document_of(result), origin)


def save_runs(place: Path, done: "Sequence[Done]", experiments: "Sequence[Experiment]", console: Console) -> None:
    """Write results into a folder with their timelines, or into one file: documents line by line, or tables.

    The inputs of the runs go beside them, so that ``kai why --at`` can look at any moment.

    Raises: InputError where a file cannot be written.
    """
    results = [each.result for each in done]
    try:
        if place.suffix == ".parquet":
            from kai.lab.virtual.results.documents import write_tables

            names = write_tables(place, results)
            console.talk(f"saved {place}: one row for each job; beside it {', '.join(names)}")
        elif place.suffix == ".json":
            _write_json(place, [document(result) for result in results])
            console.talk(f"saved {place}")
        else:
            _save_folder(place, done, console)
        kept = keep(place, experiments, results)
        if kept is not None:
            console.talk(f"kept {kept}: the inputs, for kai why JOB --at 3h --from {shlex.quote(str(place))}", level=1)
    except OSError as error:
        raise InputError(f"{place}: found {found_by(error)}, expected a place to write to") from None


def _save_folder(folder: Path, done: "Sequence[Done]", console: Console) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(done, start=1):
        stem = "" if len(done) == 1 else f"-{number}"
        _write_json(folder / f"result{stem}.json", [document(each.result)])
        _write_json(folder / f"timeline{stem}.json", [{"traceEvents": each.result.trace()}])
        if each.end is not None:
            (folder / f"end{stem}.zip").write_bytes(each.end)
    console.talk(
        f"saved {folder}: results (result*.json), timelines (timeline*.json) that Perfetto opens, and the cluster at "
        "the end (end*.zip)"
    )


def save_histories(place: Path, done: "Sequence[Done]", console: Console) -> None:
    """Write the history of each run into a file; those of several runs are numbered, as their results are.

    Raises: InputError where a file cannot be written.
    """
    for number, each in enumerate(done, start=1):
        at = place if len(done) == 1 else place.with_name(f"{place.stem}-{number}{place.suffix}")
        try:
            at.write_bytes(each.history or b"")
        except OSError as error:
            raise InputError(f"{at}: found {found_by(error)}, expected a file to write") from None
        named = "" if len(done) == 1 else f" of {each.result.policy}"
        console.talk(f"history: {at}: usage{named}, for kai report jobs --file {shlex.quote(str(at))}")


def keep(place: Path, experiments: "Sequence[Experiment]", results: "Sequence[SimulationResult]") -> Path | None:
    """Archive the inputs of runs beside their results; return the archive, None for inputs from standard input.

    Raises: OSError for a place that cannot be written to.
    """
    from kai.answers.cases.files import STANDARD_INPUT
    from kai.lab.virtual.scenes.loading import files_of

    if any(each.workload == STANDARD_INPUT for each in experiments):
        return None
    at = inputs_beside(place)
    known: dict[str, str] = {}
    with zipfile.ZipFile(at, "w", zipfile.ZIP_DEFLATED) as archive:

        def kept(path: str | None) -> str | None:
            """Return the path of a file or folder inside the archive, adding it the first time."""
            if path is None or not files_of(Path(path)):
                return None
            if path not in known:
                known[path] = f"{len(known) + 1}/{Path(path).resolve().name}"
                for file in files_of(Path(path)):
                    below = file.relative_to(path) if file != Path(path) else ""
                    archive.write(file, f"{known[path]}/{below}" if below else known[path])
            return known[path]

        runs = [
            {
                "workload": kept(each.workload),
                "cluster": kept(each.cluster),
                "policy": kept(each.policy.path) if each.policy.sha256 is not None else None,
                "changes": list(each.policy.changes),
                "untilSeconds": None if each.until == inf else each.until,
                "seed": each.seed,
                "since": each.since,
                "skipsBadRows": each.skips_bad_rows,
                "schedulers": sorted(each.adoption.schedulers),
                "queueFrom": each.adoption.queue_from,
                "name": result.policy,
            }
            for each, result in zip(experiments, results, strict=True)
        ]
        archive.writestr(RUNS, json.dumps({"runs": runs}))
    return at


def inputs_beside(place: Path) -> Path:
    """Return the path of the inputs archive beside results at ``place``, a folder or one file."""
    if place.suffix in {".json", ".parquet"}:
        return place.with_name(f"{place.stem}-{INPUTS}")
    return place / INPUTS


def _write_json(path: Path, documents: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for each in documents:
            json.dump(each, file)
            file.write("\n")


def write_report(path: str, results: "Sequence[SimulationResult]", command: str, console: Console) -> None:
    """Write the page of charts.

    Raises: InputError where it cannot be written.
    """
    from kai.answers.documents.document import DISTRIBUTION, installed
    from kai.lab.report.page import page_of

    text = page_of(results, command=f"{command} --report {shlex.quote(path)}", program=f"kai {installed(DISTRIBUTION)}")
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: found {found_by(error)}, expected a file to write") from None
    size = len(text.encode()) / 1e6
    console.talk(f"report: {path} ({size:.1f} MB; open it in any browser, no network needed)")
