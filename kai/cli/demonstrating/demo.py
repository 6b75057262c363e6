"""``kai demo``: watch a simulated cluster decide.

`demonstrate` runs a scene from beginning to end: playing it, then the closing words and the saved files.

With ``--dashboard`` a thread serves the pages of the service, for this machine only; the run hands over each cycle and
goes on. It also writes its history to a temporary file, which the pages on the past read.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import attrs
import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from kai.answers.cases.case import Case
from kai.answers.cases.origin import Origin
from kai.answers.offline.run import Outcome
from kai.basics.errors import CommandLineError, ConfigError
from kai.basics.wording import shown
from kai.cli.console import Console, console_options
from kai.cli.deciding.runlines import run_text
from kai.cli.deciding.runs import until_of
from kai.cli.deciding.runsfiles import document
from kai.cli.demonstrating.drawing import LEAST_COLUMNS, line_text
from kai.cli.demonstrating.playing import Pacing, Player, Watched
from kai.cli.demonstrating.scenes import NAMES, DemoScene, prepare, save, scene_named
from kai.cli.failures import flush_out
from kai.cli.running.endpoints import Board, Place
from kai.cli.tables import wrapped
from kai.cluster.clock import SystemClock
from kai.cluster.process.listener import is_local, read_address
from kai.dashboard.access import LocalAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import EndedCycle, Feed, Past
from kai.dashboard.pages import make_pages
from kai.dashboard.server import Dashboard
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.framework.decisions import Bind
from kai.history.database import MEMORY
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import Run, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kai.deciding.engine.cycle import Profile
    from kai.lab.virtual.scenes.scene import Scene


@attrs.frozen
class ServedDemo:
    """A running dashboard server."""

    url: str
    feed: Feed
    portal: BlockingPortal

    def show(self, outcome: Outcome) -> None:
        """Show a cycle on the dashboard."""
        cycle = EndedCycle(outcome=outcome, took=0.0, groups=_groups(outcome))
        self.portal.start_task_soon(self.feed.show, cycle)


@contextmanager
def served(text: str, history: str = "") -> Iterator[ServedDemo]:
    """Serve a dashboard at an address of this machine; ``history`` is the file that the run writes, "" for none.

    Raises: CommandLineError for an address that others can reach, ConfigError for one that is taken.
    """
    address = read_address(text, "--dashboard")
    if address is None or not (address.host == "localhost" or is_local(address.host)):
        raise CommandLineError(
            f"--dashboard: found {shown(text)}, expected an address of this machine such as 127.0.0.1:8085"
        )
    with start_blocking_portal() as portal:
        feed = Feed()
        board = Board(Place(address=address, asks_for_tokens=False, certificate=None), feed, _dashboard(feed, history))
        try:
            serving, port = portal.start_task(board.run)
        except ExceptionGroup as group:
            known, _ = group.split(ConfigError)
            raise (group if known is None else known.exceptions[0]) from None
        try:
            yield ServedDemo(url=f"http://{address.host}:{port}/", feed=feed, portal=portal)
        finally:
            serving.cancel()


def _dashboard(feed: Feed, history: str) -> Dashboard:
    clock = SystemClock()
    answers, access = AnswerCache(feed, clock), LocalAccess()
    pages = make_pages(answers, access, clock, _facts, Past(history, clock))
    return Dashboard(answers=answers, access=access, pages=pages)


def _facts() -> Sequence[tuple[str, str, bool]]:
    return [("demonstration", "no cluster, virtual time", True)]


def _groups(outcome: Outcome) -> dict[str, tuple[int, int]]:
    """Return for each action the number of groups that it bound, and of groups that it decided anything for."""
    snapshot = outcome.last.snapshot
    bound: Counter[str] = Counter()
    acted: Counter[str] = Counter()
    for group, kind in {(int(snapshot.pod_group[each.pod]), type(each)) for each in outcome.last.decisions}:
        if group >= 0:
            acted["all"] += 1
            bound["all"] += kind is Bind
    return {name: (bound[name], acted[name]) for name in acted}


_SLOWEST: Final = 0.1


@attrs.frozen(kw_only=True)
class Wanted:
    """The request of a ``kai demo`` command line."""

    speed: str | None
    until: str | None
    seed: int
    dashboard: str | None
    save: str | None
    step: bool


def demonstrate(name: str, wanted: Wanted, console: Console) -> int:
    """Play a scene, and sum up what happened.

    Raises: InputError for an invalid flag.
    """
    scene = scene_named(name)
    until, speed = until_of(wanted.until or scene.until), _speed(wanted.speed, scene.speed)
    if wanted.save is not None:
        prepare(wanted.save, scene)
    with _history(wanted.dashboard) as history:
        watched = watch_of(scene.load(wanted.seed).scene, until, history)
        with _board(wanted.dashboard, watched, console, history) as address:
            watched.begin()
            at = _watch(scene, wanted, watched, console, speed=speed, note=address)
        ended = watched.run.finish(at)
    _report_end(ended, console)
    if wanted.save is not None:
        save(wanted.save, scene, ended, console)
    if not console.is_for_machines:
        _say_what_next(scene, wanted.save, console)
    return 0


def watch_of(scene: Scene, until: float, history: str = "") -> Watched:
    """Return a run of a scene under the default policy, ready to be watched; it writes a file where one is named."""
    profile = make_profile(default_configuration())
    run = Simulation(scene, profile, scene.settings, until, keeps_history=bool(history), history_at=history or MEMORY)
    return Watched(run=run, until=until, outcome=_outcome_of(scene, profile))


def _watch(scene: DemoScene, wanted: Wanted, watched: Watched, console: Console, *, speed: float, note: str) -> float:
    """Play a run on the terminal, or write it line by line; return the instant at which watching ended."""
    if console.is_for_machines or not (sys.stdout is not None and sys.stdout.isatty()):
        # A page is watched live, so with --dashboard the lines keep the scene's pace; otherwise they need none.
        return _print_lines(scene, watched, console, speed=inf if wanted.dashboard is None else speed)
    from kai.cli.demonstrating.playing import opened

    with opened(console) as stage:
        pacing = Pacing(speed=speed, clock=stage.now(), is_paused=wanted.step)
        explain = _explainer(console)
        player = Player(title=scene.name, watched=watched, stage=stage, pacing=pacing, explain=explain, note=note)
        try:
            return player.play()
        except KeyboardInterrupt:
            return min(pacing.virtual, watched.until)


def _print_lines(
    scene: DemoScene, watched: Watched, console: Console, *, speed: float, pause: Callable[[float], None] = time.sleep
) -> float:
    """Write the events of a run as lines, at ``speed``, or as fast as it can be decided."""
    if not console.is_for_machines:
        console.talk(wrapped(f"{scene.title}. {scene.watch}", console.width))
    try:
        while watched.run.next < inf:
            pause(max(0.0, watched.run.next - watched.run.now) / speed)
            for line in watched.step():
                if not console.is_for_machines:
                    console.write(line_text(line, console).rstrip())
            if speed < inf:
                flush_out()  # lines are read live, even through a pipe
    except KeyboardInterrupt:
        return watched.run.now
    return watched.until


def _outcome_of(scene: Scene, profile: Profile) -> Callable[[Simulation], Outcome]:
    """Return a function that makes the outcome of a run's last cycle, for the reading commands."""
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
        assert run.last is not None  # noqa: S101 - called only after a cycle
        known = attrs.evolve(case, objects=run.last_saw, now=run.last.snapshot.now)
        return Outcome(case=known, profile=profile, cycles=(run.last,))

    return outcome


def _explainer(console: Console) -> Callable[[Outcome, str, int], str]:
    def explain(outcome: Outcome, key: str, width: int) -> str:
        from kai.answers.documents.explanations import ExplanationItem
        from kai.answers.outcomes.overview import overview
        from kai.answers.why.explanation import Explainer
        from kai.cli.explaining.explanations import block

        seen = overview(outcome)
        jobs = [job for job in seen.jobs if job.key == key and job.waiting_reason is not None]
        folds = list(Explainer(outcome, seen).folded(jobs, lambda job: job.key))
        if not folds:
            return "It came after the last cycle; the next one decides about it."
        return block(ExplanationItem.of(folds[0]), attrs.evolve(console, columns=max(LEAST_COLUMNS, width)))

    return explain


@contextmanager
def _history(address: str | None) -> Iterator[str]:
    """Yield the path of a temporary file for the pages on the past; "" without a dashboard."""
    if address is None:
        yield ""
        return
    with TemporaryDirectory(prefix="kai-demo-") as folder:
        yield str(Path(folder) / "history.db")


@contextmanager
def _board(address: str | None, watched: Watched, console: Console, history: str) -> Iterator[str]:
    """Serve the dashboard while a run is watched; yield a line about it."""
    if address is None:
        yield ""
        return

    with served(address, history) as board:
        watched.onlooker = board.show
        console.talk(f"dashboard: {board.url}")
        yield f"dashboard: {board.url}"


# --- Afterwards ----------------------------------------------------------------------------------------------------


def _report_end(ended: Run, console: Console) -> None:
    result = result_of(ended)
    if console.is_for_machines:
        from kai.cli.console import write_document

        write_document(document(result), console)
    else:
        console.write("\n" + run_text(result, console))


def _say_what_next(scene: DemoScene, saved: str | None, console: Console) -> None:
    """Suggest the next command: the same scene as figures, questions about it, or the next scene."""
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


EPILOG = """\
Nothing but this process is needed: no cluster, no GPU, no network. On a terminal it is drawn as it goes, and
keys change how fast: space, . (one cycle), + and -, w (why does it wait?), e (evictions), q. Otherwise one line
is written for each thing that happens, and the command ends with the scene.

\b
  kai demo
  kai demo reclaim --speed 30x
  kai demo lab --save lab --until 2h | tail
"""
_ADDRESS = "127.0.0.1:8085"


@click.command(epilog=EPILOG)
@click.argument("scene", required=False, default=NAMES[0], type=click.Choice(NAMES))
@click.option("--speed", metavar="TIMES", help="Times the pace of the clock: 300x. Each scene has its own.")
@click.option("--until", metavar="DURATION", help="How long the scene is: 2h. Each scene has its own.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of all that is drawn by chance.")
@click.option("--step", is_flag=True, help="Begin paused; . goes on by one cycle.")
@click.option(
    "--dashboard",
    is_flag=False,
    flag_value=_ADDRESS,
    default=None,
    metavar="[ADDRESS]",
    help=f"Serve the dashboard as well, on this machine only: {_ADDRESS}.",
)
@click.option("--save", type=click.Path(), metavar="DIR", help="Folder for the files of the scene, its result and end.")
@console_options(("table", "json", "yaml"))
def demo(scene: str, console: Console, **wanted: object) -> int:
    """Watch a cluster in this process: queues, nodes, jobs, and each decision with its reason."""
    return demonstrate(scene, Wanted(**wanted), console)  # type: ignore[arg-type]  # the flags by the names of fields
