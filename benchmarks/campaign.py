"""Measure workloads again and again, each time in a fresh process, and sum up what came out.

Rounds go over all workloads before the next round begins, so that a slow minute of the machine touches every workload
a little rather than one of them wholly.
"""

import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import cattrs
from attrs import frozen

from benchmarks.results import Range, Report, Sample, Spread, Summary
from benchmarks.workload import Workload

_ROOT = Path(__file__).resolve().parent.parent
_SHOWN_OF_ERROR = 2000


@frozen
class Plan:
    """What to measure, how often, and how long one process may take."""

    workloads: tuple[Workload, ...]
    runs: int
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
                sample = _sample(workload.id, plan.timeout_seconds)
            except RunFailedError as error:
                failures[workload.id] = str(error)
                say(f"{workload.id} run {round_ + 1}: failed, {str(error).splitlines()[-1]}")
                continue
            samples[workload.id].append(sample)
            say(f"{workload.id} run {round_ + 1} of {plan.runs}: {sample.cycle_ms:.1f} ms")
    results = tuple(
        summarize(workload, samples[workload.id], plan.ranges.get(workload.id, Range()))
        for workload in plan.workloads
        if workload.id not in failures
    )
    return Report(machine=describe_machine(), runs=plan.runs, results=results, failures=failures)


def _sample(workload: str, timeout_seconds: float) -> Sample:
    command = [sys.executable, "-m", "benchmarks.once", workload]
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired as error:
        message = f"not finished after {timeout_seconds:g} s"
        raise RunFailedError(message) from error
    if done.returncode:
        message = f"exit code {done.returncode}: {done.stderr.strip()[-_SHOWN_OF_ERROR:]}"
        raise RunFailedError(message)
    return cattrs.structure(json.loads(done.stdout.splitlines()[-1]), Sample)


def summarize(workload: Workload, samples: Sequence[Sample], limits: Range) -> Summary:
    """Sum up ``samples`` of ``workload`` and judge them by ``limits`` and by the peer."""
    last = samples[-1]
    cycle = Spread.over(sample.cycle_ms for sample in samples)
    ratio = Spread.over(sample.cycle_ms / sample.calibration_ms for sample in samples)
    problems = tuple(dict.fromkeys(problem for sample in samples for problem in sample.problems))
    if len({(sample.placed, sample.pipelined, sample.evicted) for sample in samples}) > 1:
        problems += ("runs disagree about how many pods were placed, pipelined or evicted",)
    peer = workload.peer.cycle_ms if workload.peer else None
    return Summary(
        workload=workload.id,
        title=workload.title,
        pods_pending=workload.pending_pods,
        pods_running=workload.running_pods,
        cycle_ms=cycle,
        snapshot_ms=Spread.over(sample.snapshot_ms for sample in samples),
        phases_ms={name: Spread.over(sample.phases_ms.get(name, 0.0) for sample in samples) for name in last.phases_ms},
        ratio=ratio,
        calibration_ms=Spread.over(sample.calibration_ms for sample in samples),
        cpu_seconds=Spread.over(sample.cpu_seconds for sample in samples),
        pods_per_second=(last.placed + last.pipelined) / cycle.median * 1000,
        peak_rss_mb=max(sample.peak_rss_mb for sample in samples),
        rss_before_mb=max(sample.rss_before_mb for sample in samples),
        placed=last.placed,
        pipelined=last.pipelined,
        evicted=last.evicted,
        outcome="wrong" if problems else "right",
        problems=problems,
        range=limits,
        within_target=None if limits.target_ms is None else cycle.median <= limits.target_ms,
        within_budget=None if limits.budget_ratio is None else ratio.median <= limits.budget_ratio,
        peer_cycle_ms=peer,
        times_faster=None if peer is None else min(peer) / cycle.median,
        samples=tuple(samples),
    )


def describe_machine() -> dict[str, str]:
    """Say what the figures were measured on, as far as it matters to them."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in ("numpy", "numba", "kai-scheduler")},
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
