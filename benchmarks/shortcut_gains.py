"""Measure what each shortcut of the engine gains alone: ``python -m benchmarks.shortcut_gains [NAME...]``.

Two schedulers live side by side on the workload that justifies the shortcut. One of them leaves it out, and both decide
the same. Their warm cycles are measured in turn, so that a busy machine slows both. The least of some rounds counts.
Prints the rows of the table in ``docs/design/0013-shortcuts.md``; ends with code 1 where a shortcut gains less than 5 %
or where the two decide differently.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from attrs import evolve

from benchmarks import engine
from benchmarks.catalogue import FOUR, find_workload, four_queues
from benchmarks.clock import Stopwatch
from benchmarks.events import Batch, arriving, leaving, listed
from benchmarks.manifests import NOW
from benchmarks.measure import rehearse
from benchmarks.workload import (
    Expected,
    Nodes,
    Pending,
    Running,
    Workload,
)
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.shortcuts import TABLE, Shortcut
from kai.framework import Bools, Extension, NodeFilter, NodeRows, PluginUse, PodRow, SessionView
from kai.framework.hooks import Dependence

ROUNDS = 5
LEAST_GAIN = 0.05
AROUND = ("deltas", "snapshot", "encode")
"""Phases that are not part of deciding."""


@attrs.frozen
class LooksAtGroups:
    """A plugin whose answer may differ from group to group, and which lets every pod go everywhere."""

    def open(self, session: SessionView, /) -> Sequence[Extension]:
        """Return one filter."""

        def everywhere(_: PodRow, nodes: NodeRows) -> Bools:
            return np.ones(len(nodes), np.bool_)

        del session
        return (NodeFilter(everywhere, depends=Dependence.GROUP),)


@attrs.frozen(kw_only=True)
class Case:
    """A workload that justifies a shortcut, with what its generator cannot make."""

    workload: Workload
    rewrite: Callable[[Batch], Batch] = attrs.field(default=lambda batch: batch)
    plugins: tuple[PluginUse, ...] = ()
    use_signatures: bool = True
    never: tuple[str, ...] = ()
    """Shortcuts that both schedulers leave out, because they would do what this one does."""
    is_at_rest: bool = False
    """No news come between cycles."""

    def profile(self, without: tuple[str, ...] = ()) -> Profile:
        """Return the default profile, with the case's plugins, that leaves out the shortcuts of these names."""
        profile = engine.profile_of(self.workload)
        left_out = (*self.never, *without)
        parameters = evolve(profile.parameters, without=left_out, use_scheduling_signatures=self.use_signatures)
        return evolve(profile, plugins=(*profile.plugins, *self.plugins), parameters=parameters)


def case_of(shortcut: Shortcut) -> Case | None:
    """Return the case in which the gain of ``shortcut`` is measured; None where a unit test has the cluster."""
    asking = (PluginUse(name="looks-at-groups", plugin=LooksAtGroups()),)
    match shortcut.name:
        case "same-try" | "hopeless":
            return None
        case "one-answer":
            return Case(workload=find_workload("w1"), plugins=asking)
        case "rated":
            return Case(workload=find_workload("w2"), plugins=asking)
        case "held":
            return Case(workload=find_workload("sockets-reclaim"), never=("transitions",))
        case "prospects":
            return Case(workload=_at_limits(), use_signatures=False)
        case "full-queues":
            return Case(workload=_full_queue(), rewrite=_two_sizes)
        case "unchanged":
            return Case(workload=find_workload(shortcut.workload), is_at_rest=True)
        case _:
            return Case(workload=find_workload(shortcut.workload))


def _at_limits() -> Workload:
    workload = find_workload("w9")
    held = 2500 // len(FOUR)
    queues = tuple(evolve(queue, gpu_limit=held) if queue.name in FOUR else queue for queue in workload.queues)
    return evolve(workload, id="w9-limits", queues=queues, pending=Pending(200, FOUR, gpus=8))


def _full_queue() -> Workload:
    nodes = Nodes(100)
    queues = tuple(
        evolve(queue, gpu_limit=200) if queue.name == FOUR[0] else queue for queue in four_queues(nodes.total_gpus)
    )
    return Workload(
        id="full-queue",
        title="100 nodes, 1,000 gangs of two sizes that take turns, of a full queue",
        nodes=nodes,
        queues=queues,
        running=Running(200, FOUR[:1], per_node=2),
        pending=Pending(1000, FOUR[:1], pods=3),
        expected=Expected(),
    )


def _two_sizes(batch: Batch) -> Batch:
    """Take the third pod from every other gang."""

    def is_kept(manifest: dict[str, Any]) -> bool:
        name = manifest["metadata"]["name"]
        return not (batch.kind == "Pod" and name.endswith("-002") and int(name.split("-")[1]) % 2)

    def change(manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if name.startswith("waiting-") and int(name.split("-")[1]) % 2:
            manifest["spec"]["minMember"] = 2

    return _rewritten(batch, change if batch.kind == "PodGroup" else None, is_kept)


def _rewritten(
    batch: Batch,
    change: Callable[[dict[str, Any]], None] | None,
    is_kept: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> Batch:
    """Return ``batch`` with its manifests changed in place, without those that are not kept."""
    bodies = []
    for body in batch.bodies:
        sent = json.loads(body)
        manifest = sent if batch.form == "list" else sent["object"]
        if change is not None:
            change(manifest)
        if is_kept(manifest):
            bodies.append(json.dumps(sent).encode())
    return evolve(batch, bodies=tuple(bodies))


@attrs.frozen(kw_only=True)
class Gain:
    """Processor milliseconds that deciding takes without a shortcut and with it, the least of some warm cycles."""

    without_ms: float
    with_ms: float
    is_same: bool
    """Whether both decided the same in each cycle."""

    @property
    def is_enough(self) -> bool:
        """Whether the shortcut gains as much as it has to."""
        return self.with_ms <= (1 - LEAST_GAIN) * self.without_ms


def measure(case: Case, shortcut: Shortcut, rounds: int = ROUNDS) -> Gain:
    """Return what ``shortcut`` gains in ``case``."""
    engine.warm()
    rehearse(engine.Live())
    both = (engine.Live(profile=case.profile((shortcut.name,))), engine.Live(profile=case.profile()))
    _hear(both, listed(case.workload), case)
    now = NOW.timestamp()
    for each in both:
        each.cycle(now, Stopwatch())
        each.settle()
    times: tuple[list[float], list[float]] = ([], [])
    is_same = True
    for round_ in range(rounds):
        if not case.is_at_rest:
            _hear(both, leaving(case.workload, round_), case)
        for each in both:
            each.cycle(now := now + 1, Stopwatch())
        if not case.is_at_rest:
            _hear(both, arriving(case.workload, round_ + 1), case)
        gc.collect()
        turn = (0, 1) if round_ % 2 else (1, 0)
        now += 1
        bodies: list[tuple[bytes, ...]] = []
        for which in turn:
            took, outcome = _timed(both[which], now)
            times[which].append(took)
            bodies.append(outcome.bodies)
        is_same &= bodies[0] == bodies[1]
    return Gain(without_ms=min(times[0]), with_ms=min(times[1]), is_same=is_same)


def _hear(schedulers: Sequence[engine.Live], news: Iterator[Batch], case: Case) -> None:
    for batch in news:
        rewritten = case.rewrite(batch)
        for each in schedulers:
            each.take(rewritten)


def _timed(scheduler: engine.Live, now: float) -> tuple[float, engine.Outcome]:
    watch = Stopwatch()
    with watch.phase("total"):
        outcome = scheduler.cycle(now, watch)
    around = sum(watch.phases_ms.get(phase, 0.0) for phase in AROUND)
    return watch.phases_ms["total"] - around, outcome


def _shown(milliseconds: float) -> str:
    """Return three digits, which is more than a busy machine repeats."""
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def main(names: Sequence[str]) -> int:
    """Print a row for each shortcut; return 1 where one gains too little or decides differently."""
    wrong = 0
    for shortcut in TABLE:
        case = case_of(shortcut)
        if case is None or (names and shortcut.name not in names):
            continue
        gain = measure(case, shortcut)
        note = "" if gain.is_same else " decides differently"
        note += "" if gain.is_enough else " gains less than 5 %"
        wrong |= bool(note)
        row = f"| `{shortcut.name}` | {shortcut.workload} | {_shown(gain.without_ms)} → {_shown(gain.with_ms)} |{note}"
        print(row, flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
