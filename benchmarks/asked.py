"""Measure what a person waits for: commands of ``kai`` in fresh processes: ``python -m benchmarks.asked``.

A budget is processor time over the calibration of this process, as in ``ranges.yaml``, and the most memory that was
resident. With ``--check`` a command that exceeds one ends with code 1; ``--against TREE`` measures the program in the
folder TREE in turns with this one.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import click
import yaml
from attrs import Factory, frozen

from benchmarks.campaign import ROOT
from benchmarks.catalogue import FOUR, four_queues
from benchmarks.clock import calibrate
from benchmarks.generate import write
from benchmarks.workload import Expected, Nodes, Pending, Running, Workload

PATH = Path(__file__).with_name("asked.yaml")
_LAB = ROOT / "kai" / "cli" / "demonstrating" / "scenes" / "lab"
_NODES = Nodes(5000)
_MANY = Workload(
    id="40k",
    title="5,000 nodes, 39,800 pods that run, 500 that wait",
    nodes=_NODES,
    queues=four_queues(_NODES.total_gpus),
    running=Running(39_800, FOUR, striped=True),
    pending=Pending(100, FOUR, pods=5),
    expected=Expected(),
)
_SIZES = [(1, 1)] * 50 + [(1, 2)] * 15 + [(1, 4)] * 10 + [(1, 8)] * 15 + [(2, 8)] * 6 + [(4, 8)] * 3 + [(8, 8)]
"""Pods, and GPUs of each, in the mix of a trace."""
_WEEK = 7 * 86_400.0


def _lab(folder: Path) -> None:
    (folder / "lab").symlink_to(_LAB)


def _files(folder: Path) -> None:
    """Write 1,000 files of a Job and one of queues."""
    for index in range(1000):
        (folder / f"job-{index:04d}.yaml").write_text(_job(index), encoding="utf-8")
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    queues = [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": dict.fromkeys(("gpu", "cpu", "memory"), free)} | above,
        }
        for name, above in (("top", {}), *((f"q{index}", {"parentQueue": "top"}) for index in range(4)))
    ]
    (folder / "queues.yaml").write_text(yaml.safe_dump_all(queues), encoding="utf-8")


def _job(index: int) -> str:
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": 1}
    container = {
        "name": "main",
        "image": f"registry.example/train:{index}",
        "command": ["python", "train.py", "--seed", str(index)],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
    }
    labels = {"kai.scheduler/queue": f"q{index % 4}"}
    pod = {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]}
    metadata = {"name": f"train-{index}", "namespace": f"team-{index % 20}", "labels": labels}
    spec = {"parallelism": 4, "completions": 4, "template": {"metadata": {"labels": dict(labels)}, "spec": pod}}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def _archive(folder: Path) -> None:
    write(_MANY, folder / "cluster")
    _kai(ROOT, ("snapshot", str(folder / "40k.zip"), "-f", str(folder / "cluster")), folder)


def _trace(folder: Path) -> None:
    """Write 1,000 jobs of a week, which ask for 1.1 times the GPUs that there are, and the cluster."""
    chance, gpus = Random(1), 1000
    jobs = [
        (
            chance.random() * _WEEK,
            chance.lognormvariate(0, 1.2),
            *chance.choice(_SIZES),
            chance.randrange(10),
            chance.random() < 0.2,
        )
        for _ in range(1000)
    ]
    longer = 1.1 * gpus * _WEEK / sum(lasts * pods * each for _, lasts, pods, each, _, _ in jobs)
    lines = ["arrival_s,duration_s,pods,gpus_per_pod,min_member,queue,priority"]
    for arrives, lasts, pods, each, queue, is_urgent in sorted(jobs):
        priority = "build" if is_urgent else "train"
        lines.append(f"{arrives:.1f},{max(1, lasts * longer):.1f},{pods},{each},{pods},q{queue},{priority}")
    (folder / "trace.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    queues = {"all": {"quota": gpus}} | {f"q{index}": {"parent": "all", "quota": gpus // 10} for index in range(10)}
    cluster = {"shapes": {"h100x8": {"gpu": 8, "memory": "80Gi", "count": gpus // 8}}, "queues": queues}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster), encoding="utf-8")


@frozen
class Asked:
    """A command, and what makes the files that it reads."""

    arguments: tuple[str, ...]
    make: Callable[[Path], None]


ASKED: Mapping[str, Asked] = {
    "why-all": Asked(("why", "--all", "-f", "lab"), _lab),
    "queues-lab": Asked(("queues", "-f", "lab"), _lab),
    "lint-1000": Asked(("lint", "."), _files),
    "queues-40k": Asked(("queues", "-f", "40k.zip"), _archive),
    "why-40k": Asked(("why", "waiting-000001", "-f", "40k.zip"), _archive),
    "simulate-1000": Asked(("simulate", "trace.csv", "--cluster", "cluster.yaml", "--until", "7d"), _trace),
}


@frozen
class Bound:
    """What a command should take, and may take."""

    target_s: float
    budget_ratio: float
    target_mb: float | None = None
    budget_mb: float | None = None
    observed: Mapping[str, float | str] = Factory(dict)


@frozen
class Took:
    """What a command took: seconds of processor time and megabytes, the least of its runs."""

    seconds: float
    ratio: float
    mb: float

    def exceeds(self, bound: Bound) -> bool:
        """Return whether it took more than it may."""
        return self.ratio > bound.budget_ratio or (bound.budget_mb is not None and self.mb > bound.budget_mb)


def read_bounds(path: Path = PATH) -> Mapping[str, Bound]:
    """Read what commands may take, by their ids."""
    return {id_: Bound(**fields) for id_, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items()}


def _kai(tree: Path, arguments: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Run the program in ``tree``; return seconds of processor time, and the most that was resident in megabytes.

    Raises: click.ClickException where it fails.
    """
    shell = (
        "import resource as r, subprocess as s, sys; d = s.run([sys.executable, '-m', 'kai', *sys.argv[1:]], stdout=-3)"
    )
    report = "u = r.getrusage(r.RUSAGE_CHILDREN); print(d.returncode, u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
    # Plugins come from the entry points of an environment, and another revision may have others.
    own = tree / ".venv" / "bin" / "python"
    python = str(own) if tree != ROOT and own.exists() else sys.executable
    done = subprocess.run(
        [python, "-c", f"{shell}; {report}", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    code, seconds, mb = done.stdout.split() if done.stdout else ("1", "0", "0")
    if code != "0":
        raise click.ClickException(f"kai {' '.join(arguments)}: code {code}: {done.stderr.strip()[-500:]}")
    return float(seconds), float(mb)


def measured(ids: tuple[str, ...], trees: tuple[Path, ...], runs: int) -> Iterator[tuple[str, list[Took]]]:
    """Yield what each command took with the programs in ``trees``, measured in turns."""
    for id_ in ids:
        with tempfile.TemporaryDirectory(prefix="kai-asked-") as made:
            ASKED[id_].make(Path(made))
            found: list[list[Took]] = [[] for _ in trees]
            for _ in range(runs):
                for at, tree in enumerate(trees):
                    calibration = calibrate() / 1000
                    seconds, mb = _kai(tree, ASKED[id_].arguments, Path(made))
                    found[at].append(Took(seconds, seconds / calibration, mb))
            yield id_, [min(each, key=lambda took: took.ratio) for each in found]


@click.command(help="Measure commands in fresh processes; all of them if none is named.")
@click.argument("ids", nargs=-1, type=click.Choice(list(ASKED)))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(min=1), help="Fresh processes of each.")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another tree of kai.")
@click.option("--check", is_flag=True, help="End with code 1 where a budget is exceeded.")
def main(*, ids: tuple[str, ...], runs: int, against: Path | None, check: bool) -> None:
    """Print a line for each command."""
    bounds = read_bounds()
    trees = (ROOT,) if against is None else (against.resolve(), ROOT)
    is_over = False
    for id_, taken in measured(ids or tuple(ASKED), trees, runs):
        now, bound = taken[-1], bounds[id_]
        over = now.exceeds(bound)
        is_over = is_over or over
        before = "" if against is None else f"  before {taken[0].seconds:.2f} s {taken[0].mb:.0f} MB"
        line = f"{id_:<14} {now.seconds:7.2f} s  ratio {now.ratio:6.1f} of {bound.budget_ratio:g}  {now.mb:5.0f} MB"
        click.echo(f"{line}  target {bound.target_s:g} s{before}{'  over its budget' if over else ''}")
    if check and is_over:
        sys.exit(1)


if __name__ == "__main__":
    main()
