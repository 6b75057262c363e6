"""Read the command line: ``fill`` measures pods that come while a scheduler runs, ``idle`` one without work.

``lone`` measures how soon one pod is bound where nothing else happens, ``steady`` pods that come at a rate, ``start``
how soon a process is ready beside pods that run.
``shards`` measures several schedulers beside each other. ``reality`` compares the times of a simulation with those of a
real API server.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import cattrs
import click

from benchmarks.campaign import describe_machine
from benchmarks.live.cluster import (
    Binds,
    Scheduler,
    Size,
    bare_control_plane,
    control_plane,
    create_lone_pod,
    create_pods,
    kai,
    kube_scheduler,
    run_pods,
)
from benchmarks.live.counting import Usage, last_write, requests, slope, when_quiet, writes
from benchmarks.live.hour import HOUR, hour, write_hour
from benchmarks.live.playing import Player, set_up
from benchmarks.live.reality import Comparison, compare, reality_table
from benchmarks.live.shards import fill_shards, schedulers
from benchmarks.live.start import run_starts
from benchmarks.live.steady import Pace, run_steadily
from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.lab.virtual.results.metrics import percentile
from kai.lab.virtual.running.simulation import Simulation
from kai.lab.virtual.scenes.loading import load
from kai.roles.scheduler.settings import SchedulerSettings
from kai.roles.scheduler.wakeups import Rhythm
from tests.integration.controlplane import ControlPlane
from tests.integration.kubelet import RESERVED, Kubelet

_LIMIT = 600.0
_LOOK_EVERY = 30.0
_PARTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}

_nodes = click.option("--nodes", default=500, show_default=True, type=click.IntRange(min=1))
_gpus = click.option("--gpus", default=8, show_default=True, help="GPUs of each node.")
_pods = click.option("--pods", default=4000, show_default=True, type=click.IntRange(min=1), help="Of one GPU each.")
_gang = click.option("--gang", default=1, show_default=True, help="Pods that start together.")
_program = click.option(
    "--kube-scheduler", type=click.Path(exists=True, path_type=Path), help="Measure this program of Kubernetes instead."
)
_flags = click.option("--flag", "flags", multiple=True, help="A flag for kai, as in --flag=--bind-events=none.")
_folder = click.option("--keep", type=click.Path(path_type=Path), help="A new folder for logs, which are kept then.")


@click.group(
    help="Measure the program as it runs, on a real API server (python -m tests.integration.programs builds it)."
)
def main() -> None:
    """Offer the commands."""


@main.command(help="Create pods while a scheduler runs: how long until all are bound, and what that costs.")
@_nodes
@_gpus
@_pods
@_gang
@_program
@_flags
@_folder
def fill(
    nodes: int, gpus: int, pods: int, gang: int, kube_scheduler: Path | None, flags: tuple[str, ...], keep: Path | None
) -> None:
    """Print one JSON object."""
    size = Size(nodes=nodes, gpus=gpus, pods=pods, gang=gang)
    with _staged(size, keep, kube_scheduler, flags) as (plane, found):
        click.echo(json.dumps(_fill(plane, found, size), indent=2))


@main.command(help="Create one pod after the other on an idle cluster: how soon is each bound?")
@_nodes
@_gpus
@click.option("--pods", default=60, show_default=True, type=click.IntRange(min=2), help="One after the other.")
@click.option("--apart", default=1.0, show_default=True, help="Seconds between a binding and the next pod.")
@_program
@_flags
@_folder
def lone(
    *,
    nodes: int,
    gpus: int,
    pods: int,
    apart: float,
    kube_scheduler: Path | None,
    flags: tuple[str, ...],
    keep: Path | None,
) -> None:
    """Print one JSON object."""
    with _staged(Size(nodes=nodes, gpus=gpus, pods=pods), keep, kube_scheduler, flags) as (plane, found):
        when_quiet(plane.admin)
        pid = found.daemon.pid
        before, binds, waits = Usage.of(pid), Binds(plane.admin, pods), []
        for number in range(pods):
            time.sleep(apart)
            since = time.monotonic()
            create_lone_pod(plane.admin, number, found.name)
            waits.append(1000 * (binds.next(_LIMIT) - since))
        used = Usage.of(pid).cpu_seconds - before.cpu_seconds
    report = {
        "scheduler": found.name,
        "nodes": nodes,
        "pods": pods,
        "create_to_bind_ms": {name: round(percentile(waits, part) or 0.0, 1) for name, part in _PARTS.items()},
        "cpu_ms_per_pod": round(1000 * used / pods, 1),
    }
    click.echo(json.dumps(report, indent=2))


@main.command(help="Create pods at a rate, each of which goes after a while: does anything fall behind?")
@_nodes
@_gpus
@click.option("--rate", default=200.0, show_default=True, type=click.FloatRange(min=0.1), help="Pods a second.")
@click.option("--seconds", default=600.0, show_default=True, type=click.FloatRange(min=1.0), help="How long they come.")
@click.option("--stay", default=10.0, show_default=True, help="Seconds after which a pod is deleted.")
@_program
@_flags
@_folder
def steady(
    *,
    nodes: int,
    gpus: int,
    rate: float,
    seconds: float,
    stay: float,
    kube_scheduler: Path | None,
    flags: tuple[str, ...],
    keep: Path | None,
) -> None:
    """Print one JSON object."""
    pace = Pace(rate=rate, seconds=seconds, stay=stay)
    with _staged(Size(nodes=nodes, gpus=gpus, pods=pace.pods), keep, kube_scheduler, flags) as (plane, found):
        click.echo(json.dumps(run_steadily(plane, found, pace), indent=2))


@main.command(help="Create pods while several schedulers run, each with nodes and queues of its own.")
@click.option("--shards", default=2, show_default=True, type=click.IntRange(min=1), help="Schedulers, and node pools.")
@_nodes
@_gpus
@_pods
@_gang
@_folder
def shards(*, shards: int, nodes: int, gpus: int, pods: int, gang: int, keep: Path | None) -> None:
    """Print one JSON object."""
    size = Size(nodes=nodes, gpus=gpus, pods=pods, gang=gang, pools=shards)
    with (
        _foldered(keep) as folder,
        control_plane(folder / "plane", size) as plane,
        schedulers(plane, folder, shards) as found,
    ):
        click.echo(json.dumps(fill_shards(plane, found, size), indent=2))


@main.command(help="Let pods run and nothing change: what kai does then.")
@_nodes
@_gpus
@_pods
@_gang
@_flags
@_folder
@click.option("--minutes", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="How long to look.")
def idle(
    nodes: int, gpus: int, pods: int, gang: int, flags: tuple[str, ...], keep: Path | None, minutes: float
) -> None:
    """Print one JSON object."""
    size = Size(nodes=nodes, gpus=gpus, pods=pods, gang=gang)
    with _staged(size, keep, None, flags) as (plane, found):
        binds = Binds(plane.admin, size.pods)
        create_pods(plane.admin, size, found.name)
        binds.wait(_LIMIT)
        run_pods(plane.admin)
        click.echo(json.dumps(_idle(plane, found, 60.0 * minutes), indent=2))


@main.command(help="Start kai beside pods that run, then a second replica that takes over: how soon, and how large.")
@click.option("--nodes", default=5000, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--pods", default=40_000, show_default=True, type=click.IntRange(min=0), help="That run, of one GPU each."
)
@_folder
def start(nodes: int, pods: int, keep: Path | None) -> None:
    """Print one JSON object."""
    with _foldered(keep) as folder, control_plane(folder / "plane", Size(nodes=0)) as plane:
        click.echo(json.dumps(run_starts(plane, folder, nodes=nodes, pods=pods), indent=2))


@main.command(
    help="Have an hour of Jobs, made shorter, happen in virtual time and on a real API server: when do they start?"
)
@click.option("--divisor", default=20.0, show_default=True, type=click.FloatRange(min=1.0), help="So much shorter.")
@click.option("--jobs", default=30, show_default=True, type=click.IntRange(min=1), help="Of the hour.")
@click.option("--seed", default=0, show_default=True, help="Another hour.")
@click.option(
    "--output", default="table", show_default=True, type=click.Choice(["table", "json"]), help="What to print."
)
@_flags
@_folder
def reality(*, divisor: float, jobs: int, seed: int, output: str, flags: tuple[str, ...], keep: Path | None) -> None:
    """Print both times of each job, and how far apart they are."""
    with _foldered(keep) as folder:
        found = _both(folder, divisor, jobs, seed, flags)
    report = {"machine": describe_machine(), "divisor": divisor, "seed": seed, **cattrs.unstructure(found)}
    click.echo(json.dumps(report, indent=2) if output == "json" else reality_table(found))


def _both(folder: Path, divisor: float, jobs: int, seed: int, flags: tuple[str, ...]) -> Comparison:
    workload, cluster = write_hour(folder, divisor, jobs=jobs, seed=seed)
    scene = load(str(workload), str(cluster)).scene
    grace = GRACE_SECONDS / divisor
    settings = SchedulerSettings()
    rhythm = Rhythm.of_service(settings)
    simulation = Simulation(scene, make_profile(default_configuration()), scene.settings, inf, rhythm)
    simulation.workloads.grace = grace
    virtual = simulation.run().records.jobs
    manifests = {each["metadata"]["name"]: each for each in hour(divisor, jobs=jobs, seed=seed)}
    with bare_control_plane(folder / "plane") as plane:
        set_up(plane.admin, scene)
        kubelet = Kubelet(plane.admin, plane.account(RESERVED, RESERVED), lingers=True)
        kubelet.start()
        try:
            with kai(plane, folder, flags):
                when_quiet(plane.admin)
                real = Player(plane.admin, scene, manifests, grace).play(4 * HOUR / divisor)
        finally:
            kubelet.stop()
    return compare(virtual, real, settings.period_seconds)


@contextmanager
def _foldered(keep: Path | None) -> Iterator[Path]:
    """Yield a folder to keep, or one that goes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


@contextmanager
def _staged(
    size: Size, keep: Path | None, program: Path | None, flags: tuple[str, ...]
) -> Iterator[tuple[ControlPlane, Scheduler]]:
    """Run a cluster and its scheduler, with their files in a folder to keep, or in one that goes."""
    with _foldered(keep) as folder, control_plane(folder / "plane", size) as plane:
        chosen = kai(plane, folder, flags) if program is None else kube_scheduler(plane, folder, program)
        with chosen as scheduler:
            yield plane, scheduler


def _fill(plane: ControlPlane, scheduler: Scheduler, size: Size) -> dict[str, Any]:
    pids = {"scheduler": scheduler.daemon.pid, "apiserver": plane.apiserver.pid, "etcd": plane.etcd.pid}
    counts = when_quiet(plane.admin)
    before = {name: Usage.of(pid) for name, pid in pids.items()}
    binds = Binds(plane.admin, size.pods)
    since = time.monotonic()
    create_pods(plane.admin, size, scheduler.name)
    created = time.monotonic() - since
    bound = binds.wait(_LIMIT) - since
    used_until_bound = {
        name: round(Usage.of(pid).cpu_seconds - before[name].cpu_seconds, 2) for name, pid in pids.items()
    }
    made_until_bound = writes(requests(plane.admin) - counts)
    later, last = last_write(plane.admin, limit=_LIMIT)
    after = {name: Usage.of(pid) for name, pid in pids.items()}
    made = writes(later - counts)
    made -= Counter({"POST pods": size.pods, "POST jobs": size.pods})  # ours
    return {
        "scheduler": scheduler.name,
        "nodes": size.nodes,
        "pods": size.pods,
        "gang": size.gang,
        "created_seconds": round(created, 2),
        "bound_seconds": round(bound, 2),
        "written_seconds": round(max(bound, last - since), 2),
        "writes_per_pod": round(made.total() / size.pods, 3),
        "writes_by_kind": {what: round(count / size.pods, 3) for what, count in made.most_common()},
        "reads_by_kind": {
            what: round(count / size.pods, 3)
            for what, count in (later - counts).most_common()
            if what.startswith("GET") and count >= size.pods / 100
        },
        "cpu_seconds": {name: round(after[name].cpu_seconds - before[name].cpu_seconds, 2) for name in pids},
        "until_bound": {
            "cpu_seconds": used_until_bound,
            "writes_by_kind": {what: round(count / size.pods, 3) for what, count in made_until_bound.most_common()},
        },
        "rss_mb": round(after["scheduler"].rss_mb),
        "peak_rss_mb": round(after["scheduler"].peak_rss_mb),
    }


def _idle(plane: ControlPlane, scheduler: Scheduler, seconds: float) -> dict[str, Any]:
    pid = scheduler.daemon.pid
    counts = when_quiet(plane.admin, seconds=12.0)
    since = time.monotonic()
    looks = [(0.0, Usage.of(pid))]
    while looks[-1][0] < seconds:
        time.sleep(max(0.0, min(_LOOK_EVERY, seconds - looks[-1][0])))
        looks.append((time.monotonic() - since, Usage.of(scheduler.daemon.pid)))
    took, (first, last) = looks[-1][0], (looks[0][1], looks[-1][1])
    return {
        "seconds": round(took, 1),
        "cpu_percent": round(100 * (last.cpu_seconds - first.cpu_seconds) / took, 2),
        "writes": dict(writes(requests(plane.admin) - counts)),
        "rss_mb": {
            "before": round(first.rss_mb, 1),
            "after": round(last.rss_mb, 1),
            "peak": round(last.peak_rss_mb, 1),
        },
        "rss_mb_by_minute": {f"{at / 60:.1f}": round(usage.rss_mb, 1) for at, usage in looks},
        "rss_mb_growth_per_hour": round(3600 * slope([(at, usage.rss_mb) for at, usage in looks]), 2),
    }
