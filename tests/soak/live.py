"""A soak of the real thing: one process of kai with all roles, on a real API server, under jobs that come and go.

A crowd of pods runs all the time, and a few nodes are fought for by jobs of which none has a name that another had.
What the process holds is sampled: memory of its own, descriptors, threads, series. A line is fitted to what follows the
warm-up; growth of more than one percent an hour is too much, unless it could be chance (three standard errors).

What a process holds follows its load: connections that a burst of calls opened stay for up to two minutes. So every ten
minutes the load rests until these are closed, and a sample is taken then. A second line goes through the samples at
rest: what is never given back shows in them, and bursts do not.

The process begins from nothing, as a pod does. So its first minutes grow: compiled kernels are loaded once there is
work for them, objects that refer to each other wait for the collector, which comes by after 50,000 new ones, and
memories fill up to their bound. Most of that depends on how much work has passed. So jobs come as fast as they can
during the warm-up, and at the pace that is measured afterwards.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from tests.integration import programs
from tests.integration.chaos.load import Load
from tests.integration.controlplane import ControlPlane, DiedError
from tests.integration.etcd import put
from tests.integration.installation import install
from tests.integration.processes import Program, fetch
from tests.integration.stage import Stage, an_object, node, queue, staged
from tests.soak.slopes import Slope, slope
from tests.unit.deploy.rendering import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.integration.client import Manifest

_GPUS: Final = 8
_FOUGHT_FOR: Final = 12
"""Nodes for which jobs compete."""
_ON_A_NODE: Final = 100
_SINCE: Final = "2026-01-01T12:00:00Z"
_MOST_PERCENT: Final = 1.0
_CHANCE: Final = 3.0
_MOST_NAMED: Final = 5
_PERIOD: Final = "1s"
"""How far cycles are apart, as they are in a Deployment that does not say otherwise."""
_HASTE: Final = 0.05
"""Seconds from turn to turn of the load during the warm-up; with none at all it would never make room for a rest."""
_FEWEST: Final = 3
"""So many samples have a line and an error."""
_POINTS: Final = 13
"""So many samples of each figure are printed, evenly apart."""


@attrs.frozen(kw_only=True)
class Plan:
    """How long, and how large. Units: seconds."""

    seconds: float
    warm_up: float
    pods: int
    """How many pods the crowd has, beside the jobs."""
    apart: float = 10.0
    seed: int = 1
    """What jobs come is drawn from it."""
    rests_apart: float = 600.0
    rest: float = 130.0
    """How long the load rests: a connection without a call stays for one to two minutes."""
    samples: Path | None = None
    """The file that what was sampled is written to."""


@attrs.define
class Samples:
    """What a process held, over time."""

    times: list[float] = attrs.field(factory=list)
    values: dict[str, list[float]] = attrs.field(factory=dict)
    shown: list[Counter[str]] = attrs.field(factory=list)
    """How many series each metric had."""

    def take(self, program: Program) -> None:
        """Look at the process once; it tells nothing where it has no time to answer."""
        folder = Path(f"/proc/{program.daemon.pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        try:
            shown = series_of(fetch(program.metrics_port, "/metrics").decode())
        except OSError:
            return
        found = {
            "memory (KiB)": float(status["RssAnon"].split()[0]),  # files that are mapped belong to all
            "threads": float(status["Threads"]),
            "descriptors": float(len(list((folder / "fd").iterdir()))),
            "series": float(shown.total()),
        }
        self.shown.append(shown)
        self.times.append(time.monotonic())
        for name, value in found.items():
            self.values.setdefault(name, []).append(value)

    def as_json(self) -> dict[str, object]:
        """Return all samples: those of each figure, and of how many series each metric had."""
        return {"times": self.times, **self.values, "metrics": self.shown}

    def slopes(self, since: float) -> list[Slope]:
        """Return the line of each figure since a moment; none where there are fewer than three samples."""
        first = self._first(since)
        if len(self.times) - first < _FEWEST:
            return []
        return [slope(name, self.times[first:], values[first:]) for name, values in self.values.items()]

    def curve(self, name: str) -> str:
        """Return a figure over time, in words: a few of its samples, evenly apart, from the first to the last."""
        values, last = self.values[name], len(self.times) - 1
        rows = sorted({round(last * point / (_POINTS - 1)) for point in range(_POINTS)})
        return ", ".join(f"{(self.times[row] - self.times[0]) / 60.0:.0f} min {values[row]:.0f}" for row in rows)

    def more_series(self, since: float) -> list[tuple[str, int]]:
        """Return which metrics have more series at the end than at a moment, and how many more."""
        return (self.shown[-1] - self.shown[self._first(since)]).most_common(_MOST_NAMED) if self.shown else []

    def _first(self, since: float) -> int:
        return next((row for row, at in enumerate(self.times) if at >= since), 0)


def series_of(text: str) -> Counter[str]:
    """Count the series of each metric that a process shows."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return Counter(line.partition("{")[0].partition(" ")[0] for line in lines)


def soak(plan: Plan) -> int:
    """Carry out a plan and say what grew; 1 if something grew by more than it may."""
    with unwinding(), tempfile.TemporaryDirectory(prefix="kai-soak-") as folder:
        plane = ControlPlane.start(programs.find_or_build(), Path(folder) / "plane", controllers=())
        try:
            install(plane, DEPLOY / "base")
            with staged(plane, Path(folder)) as stage:
                return _soak(stage, plan)
        finally:
            plane.stop()


@contextmanager
def unwinding() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does: what was started is ended, and temporary files go.

    By default the signal ends a process where it stands, and what it started goes on. A second one changes nothing.
    """

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _soak(stage: Stage, plan: Plan) -> int:
    stage.open()
    stage.is_patient = True
    _furnish(stage, plan.pods)
    program = stage.start("kai", flags=("--leader-elect", f"--schedule-period={_PERIOD}"))
    warm = time.monotonic() + plan.warm_up
    load = Load(stage, random.Random(plan.seed), _FOUGHT_FOR * _GPUS)
    samples, at_rest = Samples(), Samples()
    load.start()
    bad = False
    try:
        _sample(program, load, plan, samples, at_rest)
        _say(f"{program.cycles():.0f} cycles")
    except DiedError as error:  # what it held until then is told none the less
        _say(f"kai died: {error}")
        bad = True
    finally:
        load.stop()
    if plan.samples is not None:
        plan.samples.write_text(json.dumps({**samples.as_json(), "at rest": at_rest.as_json()}))
    _say(f"{len(samples.times)} samples, {len(at_rest.times)} at rest, {load.submitted} pods of jobs came")
    for when, taken in (("", samples), ("at rest, ", at_rest)):
        for each in taken.slopes(warm):
            grows = each.percent > _MOST_PERCENT and each.an_hour > _CHANCE * each.error
            bad |= grows
            _say(f"{when}{each}{': TOO MUCH' if grows else ''}")
        for name in taken.values:
            _say(f"{when}{name}: {taken.curve(name)}")
    for name, more in samples.more_series(warm):
        _say(f"{name}: {more} series more")
    for problem in load.problems[:3]:
        _say(f"load: {problem}")
    return int(bad)


def _sample(program: Program, load: Load, plan: Plan, samples: Samples, at_rest: Samples) -> None:
    """Sample a process until the plan is over, under load, and from time to time at rest."""
    begin, pace = time.monotonic(), load.apart
    warm, next_rest = begin + plan.warm_up, begin + plan.rests_apart
    load.apart = _HASTE
    while (now := time.monotonic()) < warm + plan.seconds:
        if now >= warm:
            load.apart = pace
        if now < next_rest:
            samples.take(program)
            time.sleep(plan.apart)
            continue
        with load.resting():
            time.sleep(plan.rest)
            at_rest.take(program)
        next_rest = now + plan.rests_apart


def _furnish(stage: Stage, pods: int) -> None:
    """Create nodes, queues and the crowd."""
    names = [f"crowd-{number}" for number in range(-(-pods // _ON_A_NODE))]
    for manifest in (node(f"n{number}", gpu=_GPUS) for number in range(_FOUGHT_FOR)):
        stage.create(manifest)
    for name in names:
        stage.create(node(name))
    for manifest in (queue("top"), queue("team", "top")):
        stage.create(manifest)
    stage.create(queue("owner", "top", gpu={"quota": _FOUGHT_FOR * _GPUS // 2}))
    stage.api.create(an_object("v1", "Namespace", "crowd"))

    # Past the API server, which would take minutes for each 10,000 of them.
    crowd = (_one_of_the_crowd(number, names[number // _ON_A_NODE]) for number in range(pods))
    put(stage.plane, {f"/registry/pods/crowd/{each['metadata']['name']}": each for each in crowd})


def _one_of_the_crowd(number: int, node_name: str) -> Manifest:
    container = {"name": "main", "image": "work", "resources": {"requests": {"cpu": "10m"}}}
    metadata = {"namespace": "crowd", "uid": str(uuid.UUID(int=number)), "creationTimestamp": _SINCE}
    spec = {"nodeName": node_name, "containers": [container], "schedulerName": "others"}
    status = {"phase": "Running", "startTime": _SINCE}
    return an_object("v1", "Pod", f"pod-{number}", metadata=metadata, spec=spec, status=status)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
