"""Measure workloads again and again, each time in a fresh process, and sum up what came out.

Rounds go over all workloads before the next round begins, so that a slow minute of the machine touches every workload
a little rather than one of them wholly.
"""

import datetime as dt
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import cattrs
from attrs import evolve, frozen

from benchmarks.growth import Axis, Curve, Point
from benchmarks.results import Arrivals, Cycle, Range, Report, Sample, Spread, Summary, Timing
from benchmarks.sampling import Profile
from benchmarks.workload import Workload

ROOT: Final = Path(__file__).resolve().parent.parent
_SHOWN_OF_ERROR = 2000


@frozen
class Plan:
    """What to measure, how often, and how long one process may take."""

    workloads: tuple[Workload, ...]
    runs: int
    rounds: int
    timeout_seconds: float
    ranges: Mapping[str, Range]


class RunFailedError(RuntimeError):
    """A measuring process did not deliver a sample."""


def run(plan: Plan, say: Callable[[str], None]) -> Report:
    """Measure everything in ``plan``; a workload whose process fails is reported and not tried again."""
    samples = defaultdict[str, list[Sample]](list)
    failures: dict[str, str] = {}
    for round_ in range(plan.runs):
        for workload in plan.workloads:
            if workload.id in failures:
                continue
            try:
                sample = _sample(workload.id, plan.rounds, plan.timeout_seconds)
            except RunFailedError as error:
                failures[workload.id] = str(error)
                say(f"{workload.id} run {round_ + 1}: failed, {str(error).splitlines()[-1]}")
                continue
            samples[workload.id].append(sample)
            best = min(cycle.cpu_ms for cycle in sample.warm)
            say(f"{workload.id} run {round_ + 1} of {plan.runs}: warm {best:.1f} ms, cold {sample.cold.cpu_ms:.1f} ms")
    results = tuple(
        summarize(workload, samples[workload.id], plan.ranges.get(workload.id, Range()))
        for workload in plan.workloads
        if workload.id not in failures
    )
    return Report(machine=describe_machine(), runs=plan.runs, rounds=plan.rounds, results=results, failures=failures)


def grow(axis: Axis, sizes: Sequence[int], plan: Plan, say: Callable[[str], None]) -> Curve:
    """Measure an axis at ``sizes``, as ``plan`` says but for its workloads."""
    points = []
    for size in sizes:
        workload = axis.make(size)
        samples = [_sample(workload.id, plan.rounds, plan.timeout_seconds) for _ in range(plan.runs)]
        summary = summarize(workload, samples, Range())
        say(f"{workload.id}: warm {summary.warm.cpu_ms.min:.1f} ms, cold {summary.cold.cpu_ms.min:.1f} ms")
        points.append(Point(size, summary.warm, summary.cold, summary.peak_rss_mb, summary.problems))
    return Curve(axis.id, axis.title, axis.axis, tuple(points))


def profile(workload: Workload, timeout_seconds: float) -> Profile:
    """Profile ``workload`` in a fresh process.

    Raises: RunFailedError where that fails.
    """
    found = cattrs.structure(_started("benchmarks.profiled", [workload.id], timeout_seconds), Profile)
    return evolve(found, machine=describe_machine())


def _sample(workload: str, rounds: int, timeout_seconds: float) -> Sample:
    return take_sample(workload, rounds, timeout_seconds)


def take_sample(workload: str, rounds: int, timeout_seconds: float, root: Path = ROOT) -> Sample:
    """Measure ``workload`` in a fresh process of the program in ``root``.

    Raises: RunFailedError where that fails.
    """
    return cattrs.structure(_started("benchmarks.once", [workload, str(rounds)], timeout_seconds, root), Sample)


def _started(module: str, arguments: Sequence[str], timeout_seconds: float, root: Path = ROOT) -> object:
    """Run a module of ``root`` in a fresh process and return the JSON on its last line."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"not finished after {timeout_seconds:g} s"
        raise RunFailedError(message) from error
    if done.returncode:
        message = f"exit code {done.returncode}: {done.stderr.strip()[-_SHOWN_OF_ERROR:]}"
        raise RunFailedError(message)
    return json.loads(done.stdout.splitlines()[-1])


def summarize(workload: Workload, samples: Sequence[Sample], limits: Range) -> Summary:
    """Sum up ``samples`` of ``workload`` and judge them by ``limits`` and by the peer."""
    last = samples[-1]
    warm = _timing([(cycle, sample.calibration_ms) for sample in samples for cycle in sample.warm])
    middle = warm.cpu_ms.median
    memory = max(sample.peak_rss_mb for sample in samples)
    problems = tuple(dict.fromkeys(problem for sample in samples for problem in sample.problems))
    if len({(sample.placed, sample.pipelined, sample.moved, sample.evicted) for sample in samples}) > 1:
        problems += ("runs disagree about how many pods were placed, promised a place, moved or evicted",)
    peer = workload.peer
    return Summary(
        workload=workload.id,
        title=workload.title,
        nodes=workload.nodes.count,
        pods_pending=workload.pending_pods,
        pods_running=workload.running_pods,
        warm=warm,
        cold=_timing([(sample.cold, sample.calibration_ms) for sample in samples]),
        calibration_ms=Spread.over(sample.calibration_ms for sample in samples),
        listing_us=_each_us([sample.listed for sample in samples]) or 0.0,
        arriving_us=_each_us([arrivals for sample in samples for arrivals in sample.arrived]),
        pods_per_second=(last.placed + last.pipelined) / middle * 1000,
        rss_mb=max(sample.rss_mb for sample in samples),
        peak_rss_mb=memory,
        placed=last.placed,
        pipelined=last.pipelined,
        moved=last.moved,
        evicted=last.evicted,
        outcome="wrong" if problems else "right",
        problems=problems,
        range=limits,
        within_target=None if limits.target_ms is None else middle <= limits.target_ms,
        within_memory=None if limits.target_rss_mb is None else memory <= limits.target_rss_mb,
        within_budget=None if limits.budget_ratio is None else warm.ratio.median <= limits.budget_ratio,
        peer_cycle_ms=peer.cycle_ms if peer else None,
        peer_note=peer.note if peer else "",
        times_faster=min(peer.cycle_ms) / middle if peer else None,
        samples=tuple(samples),
    )


def _timing(cycles: Sequence[tuple[Cycle, float]]) -> Timing:
    """Sum up cycles, each with the calibration of its process."""
    phases = dict.fromkeys(name for cycle, _ in cycles for name in cycle.phases_ms)
    return Timing(
        wall_ms=Spread.over(cycle.wall_ms for cycle, _ in cycles),
        cpu_ms=Spread.over(cycle.cpu_ms for cycle, _ in cycles),
        ratio=Spread.over(cycle.cpu_ms / calibration for cycle, calibration in cycles),
        phases_ms={name: Spread.over(cycle.phases_ms.get(name, 0.0) for cycle, _ in cycles).median for name in phases},
    )


def _each_us(arrivals: Sequence[Arrivals]) -> float | None:
    """Return the middle time for one object, in microseconds; None where none came."""
    times = [each.cpu_ms / each.objects * 1000 for each in arrivals if each.objects]
    return Spread.over(times).median if times else None


def describe_machine() -> dict[str, str]:
    """Say what the figures were measured on, as far as it matters to them."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in ("numpy", "numba", "kai-scheduler")},
        "commit": _commit(),
        "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": f"{os.getloadavg()[0]:.2f}",
    }


def _cpu_model() -> str:
    source = Path("/proc/cpuinfo")
    if source.exists():
        for line in source.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Name the commit that is checked out, and whether it was changed; "unknown" outside of a repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],  # noqa: S607 - git as the developer has it
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
