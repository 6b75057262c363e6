"""Runs over virtual time: experiments from the command line, and their results as text, documents and files.

A saved result is one file, or the folder of ``kai demo --save``, whose run can be repeated from it.

The inputs of runs are archived beside the results: workload, cluster and policies, and ``runs.json`` with the use that
each run made of them. A run is deterministic in its inputs, so any moment of it can be looked at again.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import re
import shlex
import shutil
import tempfile
import zipfile
import zlib
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.basics.errors import CommandLineError, InputError
from kai.basics.parsing import mappings_of
from kai.cli.deciding.runsfiles import INPUTS, RUNS, inputs_beside
from kai.cli.failures import INPUT
from kai.lab.virtual.scenes.file_kinds import is_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kai.cli.console import Console
    from kai.lab.virtual.experiments import Done, Experiment
    from kai.manifests.adoption import Adoption


OWN = "default"


@attrs.frozen(kw_only=True)
class Wanted:
    """The request of a command line for runs over virtual time."""

    until: str | None = None
    cluster: str | None = None
    policies: tuple[str, ...] = ()
    seed: int = 0
    sweeps: tuple[str, ...] = ()
    out: str | None = None
    report: str | None = None
    history: str | None = None
    engine: str | None = None
    """Where runs are carried out; None for this machine."""
    skips_bad_rows: bool = False
    since: str | None = None
    """The time at which to start reading a trace."""
    schedulers: tuple[str, ...] = ()
    queue_from: str | None = None
    beside: str | None = None
    """A folder to look for policies in; None for that of the workload."""

    @property
    def adoption(self) -> Adoption:
        """Return the workloads to adopt from other schedulers."""
        from kai.manifests.adoption import Adoption

        return Adoption(schedulers=frozenset(self.schedulers), queue_from=self.queue_from or "")

    def is_over_time(self, path: str) -> bool:
        """Return whether to run over virtual time rather than decide at one moment."""
        from kai.lab.virtual.scenes.file_kinds import is_trace

        asked = (self.until, self.cluster, self.out, self.report, self.history)
        return any(each is not None for each in asked) or bool(self.policies or self.sweeps) or is_trace(path)

    def again(self, *words: str) -> str:
        """Return the command that repeats this run."""
        seed = str(self.seed) if self.seed else None
        given = {"--cluster": self.cluster, "--until": self.until, "--since": self.since, "--seed": seed}
        given["--queue-from"] = self.queue_from
        several = {"--policy": self.policies, "--sweep": self.sweeps, "--scheduler-name": self.schedulers}
        flags = [part for flag, value in given.items() if value is not None for part in (flag, value)]
        flags += [part for flag, values in several.items() for value in values for part in (flag, value)]
        return shlex.join(["kai", *words, *flags, *(["--skip-bad-rows"] if self.skips_bad_rows else [])])


def simulate_over_time(paths: Sequence[str], wanted: Wanted, console: Console, again: str) -> int:
    """Carry out the runs and write their results; ``again`` is the command that repeats them."""
    from kai.cli.deciding.runsfiles import check_places, save_histories, save_runs, write_report
    from kai.cli.failures import finding_text

    check_places(wanted.out, wanted.report, wanted.engine, wanted.history)
    if len(paths) != 1:
        raise InputError(f"{' '.join(paths)}: found {len(paths)} workloads, expected one: a folder, a file or a trace")
    experiments = swept(experiments_of(paths[0], wanted), wanted.sweeps)
    # Only a folder has a place for the cluster as it is at the end of a run.
    is_folder = wanted.out is not None and not wanted.out.endswith((".json", ".parquet"))
    keeps = wanted.history is not None
    experiments = [attrs.evolve(each, keeps_end=is_folder, keeps_history=keeps) for each in experiments]
    done = carried_out(experiments, wanted)
    for text in dict.fromkeys(finding_text(finding) for each in done for finding in each.findings):
        console.talk(text)
    write_runs(done, console)
    results = [each.result for each in done]
    if wanted.out is not None:
        save_runs(Path(wanted.out), done, experiments, console)
    if wanted.history is not None:
        save_histories(Path(wanted.history), done, console)
    if wanted.report is not None:
        write_report(wanted.report, results, again, console)
    return INPUT if any(finding.is_refusal for each in done for finding in each.findings) else 0


def carried_out(experiments: Sequence[Experiment], wanted: Wanted) -> tuple[Done, ...]:
    """Return the results of experiments, run on this machine or on the Dask cluster that the command line names.

    Raises: as the experiments, and UnreachableError for a Dask cluster that does not answer.
    """
    from kai.answers.cases.files import STANDARD_INPUT

    is_piped = any(each.workload == STANDARD_INPUT for each in experiments)
    if is_piped and (len(experiments) > 1 or wanted.engine is not None):
        where = "several runs" if wanted.engine is None else "runs on other machines"
        raise InputError(f"standard input: it is read once, and here alone, expected a file or a folder for {where}")
    if wanted.engine is None:
        from kai.lab.virtual.experiments import carry_out_all

        return carry_out_all(experiments)
    from kai.answers.documents.document import DISTRIBUTION, installed
    from kai.lab.virtual.remote import carry_out_on

    return carry_out_on(wanted.engine, experiments, installed(DISTRIBUTION))


def experiments_of(path: str, wanted: Wanted) -> list[Experiment]:
    """Return one experiment for each policy; without policies, one under the cluster's own.

    Raises: InputError and ConfigError that name what is wrong.
    """
    from kai.lab.virtual.experiments import Experiment

    base = Experiment(
        workload=path,
        cluster=wanted.cluster,
        until=until_of(wanted.until),
        seed=wanted.seed,
        skips_bad_rows=wanted.skips_bad_rows,
        since=since_of(wanted.since),
        adoption=wanted.adoption,
    )
    return [under(base, policy, wanted.beside) for policy in wanted.policies] or [base]


def under(experiment: Experiment, policy: str, place: str | None = None) -> Experiment:
    """Return an experiment under another policy; its file is also looked for beside the workload or in ``place``."""
    from kai.cli.deciding.policy import load_policy
    from kai.lab.virtual.results.metrics import PolicyInput

    if policy == OWN:
        return experiment
    beside = Path(place or experiment.workload) / policy
    path = str(beside) if not Path(policy).exists() and beside.exists() else policy
    if path == f"{OWN}.yaml" and not Path(path).exists():
        return experiment
    read = load_policy(path)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return attrs.evolve(
        experiment,
        configuration=read.configuration,
        settings=dict(read.settings),
        scheduler=read.scheduler_name,
        document=read.document,
        policy=PolicyInput(name=Path(path).stem, path=path, sha256=digest),
    )


def swept(experiments: Sequence[Experiment], sweeps: Sequence[str]) -> list[Experiment]:
    """Return each experiment with every value of each sweep: ``plugins.binpack.gpu=0,1,2``.

    Raises: CommandLineError for a sweep without values, or with an unknown path.
    """
    from kai.lab.virtual.experiments import with_value

    found = list(experiments)
    for sweep in sweeps:
        path, equals, values = sweep.partition("=")
        if not equals or not path or not values:
            raise CommandLineError.about("command line", "--sweep", found=sweep, wanted="PATH=VALUE,VALUE")
        found = [with_value(each, path, _value(text)) for each in found for text in values.split(",")]
    return found


def _value(text: str) -> object:
    """Return a value parsed as YAML: a number, a boolean or a text."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def until_of(text: str | None) -> float:
    """Return the seconds of ``--until``; infinite without it.

    Raises: CommandLineError.
    """
    from math import inf

    from kai.basics import parsing

    if text is None:
        return inf
    try:
        seconds = parsing.seconds(text)
    except parsing.DurationError as error:
        raise CommandLineError.about("command line", "--until", found=text, wanted=error.wanted) from None
    if seconds <= 0:
        raise CommandLineError.about("command line", "--until", found=text, wanted="more than 0")
    return seconds


def since_of(text: str | None) -> float | None:
    """Return the instant of ``--since``; None without it.

    Raises: CommandLineError.
    """
    from kai.lab.traces.columns import instant_of

    try:
        return None if text is None else instant_of(text)
    except ValueError:
        wanted = "a time as the trace has it, such as 2026-01-31, 2026-01-31T12:00:00 or 1769860800"
        raise CommandLineError.about("command line", "--since", found=text, wanted=wanted) from None


# --- Results -------------------------------------------------------------------------------------------------------


def write_runs(done: Sequence[Done], console: Console) -> None:
    """Write results: documents for machines; for people a page, or a table for several runs."""
    results = [each.result for each in done]
    if console.is_for_machines:
        from kai.cli.console import write_document
        from kai.cli.deciding.runsfiles import document

        for result in results:
            write_document(document(result), console)
        return
    from kai.cli.deciding.runlines import run_text, runs_table

    if len(results) == 1:
        console.write(run_text(results[0], console))
        return
    console.write(runs_table(results, console))


FILES: Final = "scene"
RESULT, TIMELINE, END = "result.json", "timeline.json", "end.zip"
_NUMBER: Final = re.compile(r"(?:result|timeline|end)-([0-9]+)\.(?:json|zip)")


def asked_again(place: str, wanted: Wanted) -> tuple[str, Wanted]:
    """Return the workload of a saved folder, with horizon, seed and cluster of its run; other places unchanged."""
    folder = Path(place)
    scene = folder / FILES
    result = result_in(folder / RESULT) if scene.is_dir() else None
    if result is None:
        return place, wanted
    inputs = result.get("inputs") or {}
    # The folder may have moved since the run: of the recorded paths only the names still hold.
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
    """Return the JSON object in a file; None for any other file."""
    if path.suffix != ".json":
        return None
    try:
        found = json.loads(path.read_bytes())
    # Any JSON of the user may be looked at here, and deep nesting ends the parser with RecursionError.
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def result_in(path: Path) -> dict[str, Any] | None:
    """Return the result of a run over virtual time in a file; None for any other file."""
    found = document_in(path)
    return found if is_result(found) else None


# --- What runs were made of ----------------------------------------------------------------------------------------


def run_at(place: str) -> Experiment | None:
    """Return the run whose result is at ``place``, ready to be repeated; None where no run was saved.

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
    """Return when a job started in the run saved at ``place``, in seconds; None if unknown."""
    path = Path(place)
    values = result_in(path / RESULT if path.is_dir() else path)
    found = next((each for each in mappings_of(values, "jobs") if each.get("name") == name), {}).get("startSeconds")
    return float(found) if isinstance(found, int | float) else None


def _repeated(at: Path, number: int | None, place: str) -> Experiment:
    """Return run ``number`` of an archive of inputs.

    Raises: InputError for a file that is no such archive, and for several runs without a number.
    """
    try:
        with zipfile.ZipFile(at) as archive:
            runs = mappings_of(json.loads(archive.read(RUNS)), "runs")
            if number is None and len(runs) > 1:
                names = ", ".join(f"result-{index}.json ({run.get('name')})" for index, run in enumerate(runs, start=1))
                raise InputError(f"{place}: found {len(runs)} runs, expected one of them: --from {place}/{names}")
            run = dict(enumerate(runs, start=1))[1 if number is None else number]
            # The experiment reads the files when it is carried out, so they live as long as the process.
            folder = tempfile.mkdtemp(prefix="kai-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            archive.extractall(folder)
        return _experiment(run, folder)
    except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile, zlib.error, RecursionError) as error:
        raise InputError(f"{at}: found no inputs of a run ({error}), expected what kai simulate --out keeps") from None


def _experiment(run: Mapping[str, Any], folder: str) -> Experiment:
    from kai.lab.virtual.experiments import Experiment
    from kai.manifests.adoption import Adoption

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

    workload, wanted = asked_again(place, Wanted())
    return experiments_of(workload, wanted)[0]
