"""A run that is watched: virtual time follows the clock, keys change how, and every moment is drawn.

The terminal and the clock are behind ``Stage``; here is what they are used for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

import attrs

from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.cli.demonstrating.drawing import Frame, clock_text
from kai.cli.demonstrating.happenings import EVICTED, Happenings, Line
from kai.cli.demonstrating.pacing import Pacing
from kai.cli.demonstrating.picture import Picture, picture_of
from kai.simulation.deciding.run import Outcome
from kai.simulation.outcomes.overview import Overview, overview
from kai.virtual.running.simulation import Simulation

FRAME_SECONDS: Final = 0.2
_KEPT: Final = 200
_TIMES: Final = 2.0
_UNKNOWN: Final = "(no end time is known)"
UP, DOWN, ESCAPE = "up", "down", "escape"


class Stage(Protocol):
    """What a run is watched on."""

    def now(self) -> float:
        """Return the time of a clock that never goes back, in seconds."""
        ...

    def wait(self, seconds: float) -> str:
        """Wait so long for a key, and return it; "" for none."""
        ...

    def draw(self, frame: Frame) -> None:
        """Show a frame."""
        ...

    def columns(self) -> int:
        """Return how many places a line has."""
        ...


@attrs.define(eq=False)
class Watched:
    """A run with what is told of it. It goes from one instant to the next when it is told to."""

    run: Simulation
    until: float
    outcome: Callable[[Simulation], Outcome]
    """Makes an outcome of the last cycle, which answers are made of."""
    onlooker: Callable[[Outcome], None] = lambda _: None
    """Is given each cycle."""
    overview: Overview | None = None
    lines: deque[Line] = attrs.field(factory=lambda: deque(maxlen=_KEPT))
    happenings: Happenings = attrs.field(factory=Happenings)
    cycle: int = 0

    def begin(self) -> None:
        """Have the run begin, with nothing in the cluster yet."""
        self.run.begin()
        self.happenings.since(self.run, None)

    def step(self) -> list[Line]:
        """Go to the next instant, and return what happened there."""
        self.run.step()
        last = self.run.last
        if last is not None and last.number != self.cycle:
            self.cycle = last.number
            outcome = self.outcome(self.run)
            self.overview = overview(outcome)
            self.onlooker(outcome)
        found = self.happenings.since(self.run, self.overview)
        self.lines.extend(found)
        return found

    def picture(self, at: float) -> Picture:
        """Return the cluster as it is at an instant between two steps."""
        return picture_of(self.run, self.overview, at)


@attrs.define(eq=False)
class Player:
    """Plays a run on a stage, until it is over or the user has seen enough."""

    title: str
    watched: Watched
    stage: Stage
    pacing: Pacing
    explain: Callable[[Outcome, str, int], str]
    """Returns why the job with a key waits, in lines of so many places."""
    note: str = ""
    """What the last line says in place of what comes next."""
    _page: str = ""
    """The page that is open: "", why or evictions."""
    _chosen: int = 0
    _turns: int = 0
    """How often the page was turned over."""
    _asked: tuple[int, str, int] = (-1, "", 0)
    """Cycle and job of the last explanation, and its width."""
    _told: str = ""

    def play(self) -> float:
        """Play, and return the instant at which it ended."""
        run = self.watched.run
        self._draw()  # the empty cluster, before the first cycle has the terminal wait
        while run.next < inf:
            self._catch_up()
            self._draw()
            key = self.stage.wait(min(FRAME_SECONDS, self.pacing.wait_for(run.next)))
            self.pacing.follow(self.stage.now(), most=run.next)
            if key in {"q", ESCAPE} and not self._page:
                return min(self.pacing.virtual, self.watched.until)
            if key:
                self._pressed(key)
        self.pacing.jump(self.watched.until)
        self._draw()
        return self.watched.until

    def _catch_up(self) -> None:
        """Have everything happen that is due by now, for no longer than a frame."""
        run, pacing = self.watched.run, self.pacing
        began = self.stage.now()
        pacing.follow(began, most=run.next)
        while run.next <= pacing.virtual and self.stage.now() - began <= FRAME_SECONDS:
            self._step()
            pacing.follow(self.stage.now(), most=run.next)

    def _step(self) -> None:
        for line in self.watched.step():
            if line.watch:
                self.pacing.slow_down(line.watch, self.watched.run.now + GRACE_SECONDS)

    def _pressed(self, key: str) -> None:
        pacing = self.pacing
        if self._page:
            self._turned(key)
        elif key == " ":
            pacing.is_paused = not pacing.is_paused
        elif key == ".":
            pacing.is_paused = True
            self._one_cycle()
        elif key in {"+", "="}:
            pacing.faster(_TIMES)
        elif key == "-":
            pacing.faster(1 / _TIMES)
        elif key in {"w", "e"}:
            self._page, self._chosen, self._turns = {"w": "why", "e": "evictions"}[key], 0, 0

    def _turned(self, key: str) -> None:
        """Turn a page that is open, choose another job, or close it."""
        if key == " ":
            self._turns += 1
        elif key in {UP, DOWN, "j", "k"} and self._page == "why":
            self._chosen += 1 if key in {DOWN, "j"} else -1
            self._turns = 0
        else:
            self._page = ""

    def _one_cycle(self) -> None:
        """Go on to the next cycle."""
        before, run = self.watched.cycle, self.watched.run
        while self.watched.cycle == before and run.next < inf:
            self._step()
        self.pacing.jump(run.now)

    # --- What is shown -----------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        picture = self.watched.picture(self.pacing.virtual)
        self.stage.draw(self._frame(picture, self._page_text(picture)))

    def _frame(self, picture: Picture, page: str) -> Frame:
        pacing = self.pacing
        state = "paused" if pacing.is_paused else f"slowed: {pacing.why_slow}" if pacing.why_slow else ""
        return Frame(
            title=self.title,
            picture=picture,
            lines=tuple(self.watched.lines),
            pace=pacing.pace,
            state=state,
            page=page,
            turned=self._turns,
            note=self.note,
        )

    def _page_text(self, picture: Picture) -> str:
        if self._page == "evictions":
            return self._evictions()
        if self._page != "why":
            return ""
        waiting = [job for job in picture.jobs if job.waits]
        run = self.watched.run
        if not waiting or run.last is None:
            return "No job waits."
        job = waiting[self._chosen % len(waiting)]
        place = f"{self._chosen % len(waiting) + 1} of {len(waiting)} jobs that wait"
        asked = (run.last.number, job.key, self.stage.columns())
        if self._asked != asked:
            # What helps is decided again, change by change: on a busy machine that takes seconds.
            before = self._told if self._asked[1] == job.key else f"{job.name} waits."
            self.stage.draw(self._frame(picture, f"{before}\n\n{place}; deciding what would help ..."))
            self._told = self.explain(self.watched.outcome(run), job.key, asked[2])
            self._asked = asked
        # The line below says which job ends next: in a demonstration that is known.
        told = self._told.replace(_UNKNOWN, "(next end: see below)") if picture.upcoming else self._told
        return f"{told}\n\n{place}"

    def _evictions(self) -> str:
        """Return the last evictions, each with the numbers that allowed it."""
        lines, out = list(self.watched.lines), []
        for at, line in enumerate(lines):
            if line.sign != EVICTED:
                continue
            why = lines[at + 1].text if at + 1 < len(lines) and not lines[at + 1].subject else ""
            out += [f"{clock_text(line.at)}  {line.subject}: {line.text}", *([f"         {why}"] if why else [])]
        return "\n".join(out[-_KEPT:]) or "No pod was evicted so far."
