"""A demonstration from beginning to end: the scene, the watching, and what is said and saved afterwards."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Final

import attrs

from kai.cli.console import Console
from kai.cli.deciding.runlines import run_text
from kai.cli.deciding.runs import until_of
from kai.cli.deciding.runsfiles import document
from kai.cli.demonstrating.drawing import LEAST_COLUMNS, line_text
from kai.cli.demonstrating.pacing import Pacing
from kai.cli.demonstrating.playing import Player, Watched
from kai.cli.demonstrating.saving import prepare, save
from kai.cli.demonstrating.scenes import DemoScene, scene_named
from kai.cli.failures import flush_out
from kai.cli.tables import wrapped
from kai.configuration.profiles import make_profile
from kai.configuration.reading import default_configuration
from kai.errors import CommandLineError
from kai.simulation.cases.case import Case
from kai.simulation.cases.origin import Origin
from kai.simulation.deciding.run import Outcome
from kai.virtual.results.metrics import result_of
from kai.virtual.running.simulation import Run, Simulation

if TYPE_CHECKING:
    from kai.engine.profile import Profile
    from kai.virtual.scenes.scene import Scene

_SLOWEST: Final = 0.1


@attrs.frozen(kw_only=True)
class Wanted:
    """What the command line asks for."""

    speed: str | None
    until: str | None
    seed: int
    dashboard: str | None
    save: str | None
    step: bool


def demonstrate(name: str, wanted: Wanted, console: Console) -> int:
    """Have a scene watched, and say what happened.

    Raises: InputError for a flag that cannot be used.
    """
    scene = scene_named(name)
    until, speed = until_of(wanted.until or scene.until), _speed(wanted.speed, scene.speed)
    if wanted.save is not None:
        prepare(wanted.save, scene)
    watched = watch_of(scene.load(wanted.seed).scene, until)
    run = watched.run
    with _board(wanted.dashboard, watched, console) as address:
        watched.begin()
        at = _watch(scene, wanted, watched, console, speed=speed, note=address)
    ended = run.finish(at)
    _tell(ended, console)
    if wanted.save is not None:
        save(wanted.save, scene, ended, console)
    if not console.is_for_machines:
        _say_what_next(scene, wanted.save, console)
    return 0


def watch_of(scene: Scene, until: float) -> Watched:
    """Return a run of a scene under the default policy, ready to be watched."""
    profile = make_profile(default_configuration())
    run = Simulation(scene, profile, scene.settings, until)
    return Watched(run=run, until=until, outcome=_outcome_of(scene, profile))


def _watch(scene: DemoScene, wanted: Wanted, watched: Watched, console: Console, *, speed: float, note: str) -> float:
    """Have a run watched on the terminal, or told line by line; return the instant at which that ended."""
    if console.is_for_machines or not (sys.stdout is not None and sys.stdout.isatty()):
        # Lines are there to be read later. Pages are there to be watched, so they take their time.
        return _tell_lines(scene, watched, console, speed=inf if wanted.dashboard is None else speed)
    from kai.cli.demonstrating.terminal import opened

    with opened(console) as stage:
        pacing = Pacing(speed=speed, clock=stage.now(), is_paused=wanted.step)
        explain = _explainer(console)
        player = Player(title=scene.name, watched=watched, stage=stage, pacing=pacing, explain=explain, note=note)
        try:
            return player.play()
        except KeyboardInterrupt:
            return min(pacing.virtual, watched.until)


def _tell_lines(
    scene: DemoScene, watched: Watched, console: Console, *, speed: float, pause: Callable[[float], None] = time.sleep
) -> float:
    """Write what happens, at a speed, or as fast as it can be decided."""
    if not console.is_for_machines:
        console.talk(wrapped(f"{scene.title}. {scene.watch}", console.width))
    try:
        while watched.run.next < inf:
            pause(max(0.0, watched.run.next - watched.run.now) / speed)
            for line in watched.step():
                if not console.is_for_machines:
                    console.write(line_text(line, console).rstrip())
            if speed < inf:
                flush_out()  # what happens is read while it happens, though into a pipe
    except KeyboardInterrupt:
        return watched.run.now
    return watched.until


def _outcome_of(scene: Scene, profile: Profile) -> Callable[[Simulation], Outcome]:
    """Return what makes an outcome of the last cycle of a run, as every reading command takes one."""
    case = Case(
        name=scene.title,
        title=scene.title,
        objects=scene.objects,
        now=scene.began,
        configuration=default_configuration(),
        settings=scene.settings,
        origin=Origin(type="manifests"),
    )

    def outcome(run: Simulation) -> Outcome:
        assert run.last is not None  # noqa: S101 - it is asked for after a cycle only
        known = attrs.evolve(case, objects=run.last_saw, now=run.last.snapshot.now)
        return Outcome(case=known, profile=profile, cycles=(run.last,))

    return outcome


def _explainer(console: Console) -> Callable[[Outcome, str, int], str]:
    def explain(outcome: Outcome, key: str, width: int) -> str:
        from kai.cli.explaining.explanations import block
        from kai.documents.explanations import explanation
        from kai.simulation.explaining.explanation import Explainer
        from kai.simulation.outcomes.overview import overview

        seen = overview(outcome)
        jobs = [job for job in seen.jobs if job.key == key and job.words is not None]
        folds = list(Explainer(outcome, seen).folded(jobs, lambda job: job.key))
        if not folds:
            return "It came after the last cycle; the next one decides about it."
        return block(explanation(folds[0]), attrs.evolve(console, columns=max(LEAST_COLUMNS, width)))

    return explain


@contextlib.contextmanager
def _board(address: str | None, watched: Watched, console: Console) -> Iterator[str]:
    """Serve the dashboard while a run is watched; give what is said about it."""
    if address is None:
        yield ""
        return
    from kai.cli.demonstrating.board import served

    with served(address) as board:
        watched.onlooker = board.show
        console.talk(f"dashboard: {board.url}")
        yield f"dashboard: {board.url}"


# --- Afterwards ----------------------------------------------------------------------------------------------------


def _tell(ended: Run, console: Console) -> None:
    result = result_of(ended)
    if console.is_for_machines:
        from kai.cli.writing import write_document

        write_document(document(result), console)
    else:
        console.write("\n" + run_text(result, console))


def _say_what_next(scene: DemoScene, saved: str | None, console: Console) -> None:
    """Say what to type next: the same scene as figures, or with questions; the next scene."""
    from kai.cli.demonstrating.scenes import NAMES

    if saved is not None:
        end = f"{saved}/end.zip"
        compare = f"kai diff default.yaml no-reclaim.yaml --on {saved}"
        console.talk(
            f"next   kai jobs --state waiting --from {end}\n       kai why NAME --from {end}\n       {compare}"
        )
        return
    rest = NAMES[NAMES.index(scene.name) + 1 :] or NAMES[:1]
    console.talk(f"next   kai demo {rest[0]}\n       kai demo {scene.name} --save {scene.name}    files, result, end")


def _speed(text: str | None, own: float) -> float:
    if text is None:
        return own
    try:
        times = float(text.removesuffix("x"))
    except ValueError:
        times = 0.0
    if not _SLOWEST <= times < inf:
        raise CommandLineError.about("command line", "--speed", found=text, wanted=f"{_SLOWEST}x or more, such as 300x")
    return times
