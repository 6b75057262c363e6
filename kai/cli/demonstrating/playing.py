"""Watching a run: virtual time follows the clock, keys control it, and every moment is drawn.

`Pacing` maps the clock to virtual time: at a speed, slower where much happens, not at all while paused. It is pure: the
caller passes the time of the clock.

`Player` is the main loop. It reaches the clock, the keys and the screen through ``Stage``, which `Terminal` implements
with raw key input and redrawn frames. `opened` restores the terminal however the watching ends.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, Protocol

import attrs

from kai.answers.offline.run import Outcome
from kai.answers.outcomes.overview import Overview, overview
from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.cli.console import Console
from kai.cli.demonstrating.drawing import Frame, clock_text, drawn
from kai.cli.demonstrating.happenings import EVICTED, Happenings, Line
from kai.cli.demonstrating.picture import Picture, picture_of
from kai.cli.failures import write_out
from kai.lab.virtual.running.simulation import Simulation

SLOW: Final = 5.0
"""Virtual seconds a second while slowed down for a notable event."""
_TINY: Final = 1e-6
_LEAST: Final = 1.0
_MOST: Final = 100_000.0


@attrs.define
class Pacing:
    """Virtual time in relation to the clock.

    Units: seconds of virtual time for ``virtual``, seconds of the clock for ``clock``.
    """

    speed: float
    clock: float
    virtual: float = 0.0
    is_paused: bool = False
    why_slow: str = ""
    """The event that time is slowed down for; "" for none."""
    _slow_until: float = -inf

    @property
    def pace(self) -> float:
        """Seconds of virtual time that pass in one of the clock."""
        return min(self.speed, SLOW) if self.why_slow else self.speed

    def follow(self, clock: float, most: float = inf) -> None:
        """Set the clock and advance virtual time with it, up to ``most``."""
        passed, self.clock = max(0.0, clock - self.clock), clock
        if not self.is_paused:
            reached = self.virtual + passed * self.pace
            # Snap to ``most`` within rounding error: a coarse clock may never show the rest.
            self.virtual = max(self.virtual, most if reached > most - _TINY else reached)
        if self.virtual >= self._slow_until:
            self.why_slow = ""

    def wait_for(self, virtual: float) -> float:
        """Return the seconds of the clock until an instant of virtual time."""
        if self.is_paused:
            return inf
        return max(0.0, virtual - self.virtual) / self.pace

    def slow_down(self, why: str, until: float) -> None:
        """Slow down until an instant of virtual time."""
        self.why_slow, self._slow_until = why, until

    def faster(self, times: float) -> None:
        """Multiply the speed by ``times``, and stop slowing down."""
        self.speed = min(_MOST, max(_LEAST, self.speed * times))
        self.why_slow = ""

    def jump(self, virtual: float) -> None:
        """Advance virtual time to an instant at once."""
        self.virtual = max(self.virtual, virtual)


FRAME_SECONDS: Final = 0.2
_KEPT: Final = 200
_TIMES: Final = 2.0
_UNKNOWN: Final = "(no end time is known)"
UP, DOWN, ESCAPE = "up", "down", "escape"


class Stage(Protocol):
    """What a run is played on: a clock, keys and a screen."""

    def now(self) -> float:
        """Return the time of a monotonic clock, in seconds."""
        ...

    def wait(self, seconds: float) -> str:
        """Wait up to ``seconds`` for a key, and return it; "" for none."""
        ...

    def draw(self, frame: Frame) -> None:
        """Show a frame."""
        ...

    def columns(self) -> int:
        """Return the width of a line in characters."""
        ...


@attrs.define(eq=False)
class Watched:
    """A run and its log lines. `step()` moves it to its next event."""

    run: Simulation
    until: float
    outcome: Callable[[Simulation], Outcome]
    """Makes the outcome of the last cycle, for explanations."""
    onlooker: Callable[[Outcome], None] = lambda _: None
    """Receives each cycle."""
    overview: Overview | None = None
    lines: deque[Line] = attrs.field(factory=lambda: deque(maxlen=_KEPT))
    happenings: Happenings = attrs.field(factory=Happenings)
    cycle: int = 0

    def begin(self) -> None:
        """Start the run with an empty cluster."""
        self.run.begin()
        self.happenings.since(self.run, None)

    def step(self) -> list[Line]:
        """Move to the next instant, and return its events."""
        self.run.step()
        last = self.run.last
        # Most steps decide nothing: an overview for each of them would take longer than the run.
        if last is not None and last.number != self.cycle:
            self.cycle = last.number
            outcome = self.outcome(self.run)
            self.overview = overview(outcome)
            self.onlooker(outcome)
        found = self.happenings.since(self.run, self.overview)
        self.lines.extend(found)
        return found

    def picture(self, at: float) -> Picture:
        """Return the cluster at an instant between two steps."""
        return picture_of(self.run, self.overview, at)


@attrs.define(eq=False)
class Player:
    """Plays a run on a stage, until it is over or the user quits."""

    title: str
    watched: Watched
    stage: Stage
    pacing: Pacing
    explain: Callable[[Outcome, str, int], str]
    """Returns why the job with a key waits, wrapped to a width."""
    note: str = ""
    """The text of the last line in place of the next event."""
    _page: str = ""
    """The open page: "" for none, why or evictions."""
    _chosen: int = 0
    _turns: int = 0
    """How often the user turned the page."""
    _asked: tuple[int, str, int] = (-1, "", 0)
    """Cycle and job of the last explanation, and its width."""
    _explanation: str = ""

    def play(self) -> float:
        """Play, and return the instant at which it ended."""
        run = self.watched.run
        self._draw()  # show the empty cluster, since the first cycle takes a moment
        while run.next < inf:
            self._catch_up()
            self._draw()
            key = self.stage.wait(min(FRAME_SECONDS, self.pacing.wait_for(run.next)))
            # Up to the next event at most: virtual time must not pass an event that has not happened.
            self.pacing.follow(self.stage.now(), most=run.next)
            if key in {"q", ESCAPE} and not self._page:
                return min(self.pacing.virtual, self.watched.until)
            if key:
                self._pressed(key)
        self.pacing.jump(self.watched.until)
        self._draw()
        return self.watched.until

    def _catch_up(self) -> None:
        """Process all events that are due by now, for no longer than a frame."""
        run, pacing = self.watched.run, self.pacing
        began = self.stage.now()
        pacing.follow(began, most=run.next)
        # At high speed more events are due than a frame can hold. Keys and
        # the screen come first, and the run lags behind.
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
        """Handle a key while a page is open: next part, another job, or close."""
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
            # Each suggested change is verified by a decision of its own, which takes seconds on a busy machine.
            before = self._explanation if self._asked[1] == job.key else f"{job.name} waits."
            self.stage.draw(self._frame(picture, f"{before}\n\n{place}; deciding what would help ..."))
            self._explanation = self.explain(self.watched.outcome(run), job.key, asked[2])
            self._asked = asked
        # The reason says that the next end is unknown, but the simulation knows it: the line below shows it.
        explanation = (
            self._explanation.replace(_UNKNOWN, "(next end: see below)") if picture.upcoming else self._explanation
        )
        return f"{explanation}\n\n{place}"

    def _evictions(self) -> str:
        """Return the last evictions, each with the figures that allowed it."""
        lines, out = list(self.watched.lines), []
        for at, line in enumerate(lines):
            if line.sign != EVICTED:
                continue
            why = lines[at + 1].text if at + 1 < len(lines) and not lines[at + 1].subject else ""
            out += [f"{clock_text(line.at)}  {line.subject}: {line.text}", *([f"         {why}"] if why else [])]
        return "\n".join(out[-_KEPT:]) or "No pod was evicted so far."


_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_KEYS: Final = {b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"\x1b": ESCAPE}
_KEY: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)
"""Matches the bytes of one key. A held key and a wheel send several at once."""
_MOST_TYPED: Final = 1024


@attrs.define
class Terminal:
    """The terminal of this process, as a stage."""

    console: Console
    keyboard: int | None
    """The file descriptor that keys come from; None without a keyboard."""
    _typed: deque[bytes] = attrs.field(factory=deque)
    """Further keys that were read together with the last one."""

    def now(self) -> float:
        """Return the time of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float) -> str:
        """Wait up to ``seconds`` for a key."""
        if self.keyboard is None:
            time.sleep(seconds)
            return ""
        if not self._typed and select.select([self.keyboard], [], [], seconds)[0]:
            self._typed.extend(_KEY.findall(os.read(self.keyboard, _MOST_TYPED)))
        if not self._typed:
            return ""
        key = self._typed.popleft()
        return _KEYS.get(key) or key.decode("ascii", "replace")

    def columns(self) -> int:
        """Return the width of a line in characters."""
        return shutil.get_terminal_size().columns

    def draw(self, frame: Frame) -> None:
        """Draw a frame over the one before."""
        size = shutil.get_terminal_size()
        lines = drawn(frame, self.console, size.columns, size.lines)
        text = "\r\n".join(line + _REST_OF_LINE for line in lines)
        write_out(_HOME + self.console.plainly(text) + _REST_OF_SCREEN)
        sys.stdout.flush()


@contextmanager
def opened(console: Console) -> Iterator[Terminal]:
    """Switch the terminal to raw input and an own screen, and restore both at the end."""
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    before = None if keyboard is None else termios.tcgetattr(keyboard)
    write_out(_ENTER)
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        yield Terminal(console=console, keyboard=keyboard)
    finally:
        if keyboard is not None and before is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        write_out(_LEAVE)
        sys.stdout.flush()
