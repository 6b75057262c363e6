"""Fuzzing that is guided by coverage: what takes a new way through a decoder is kept, and changed further.

A way is a step from one line of kai to the next that it ran in the same frame. The interpreter tells each of them to
a trace function, so this needs no compiled library, and costs several times what decoding costs. Draws come from
seeds: a round gives the same inputs on each machine, as long as kai's lines stay the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.fuzz.mutation import mutated, mutated_bytes, mutated_within
from tests.fuzz.target import KAI, BrokenError, Target, place_of, try_out

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS: Final = Path(__file__).parent / "corpus"
STEPS: Final = 10_000_000
"""So many lines of kai may one input take. A cluster file may ask for 65,536 nodes of a shape, which is 3,000,000."""
LONGEST: Final = 4096
"""Longer inputs are not written to the corpus: most are snapshots and workloads, and a round finds the like again."""
_ROOM: Final = 4096  # an input may be longer than the longest sample by so much, else repeating wins every draw
_YOUNG: Final = 0.5  # half of the draws go to the newest inputs, which few others have followed yet
_NEWEST: Final = 16


class EndlessError(BaseException):
    """An input took more lines than it may; no `except Exception` on the way keeps that from being seen."""


@attrs.define(eq=False)
class Tracer:
    """Notes the ways that calls take through the files of a folder."""

    root: str
    seen: set[tuple[int, int, int]] = attrs.field(factory=set)
    most: int = 0
    """The most lines that one call took."""
    _codes: dict[int, CodeType] = attrs.field(factory=dict)
    """By address: while they are held, no other code gets theirs. Codes themselves are slow to hash."""
    _steps: int = 0
    _new: int = 0

    def run(self, target: Target, given: Any) -> int:
        """Give an input to a target and return how many ways it took that no input before it had taken.

        Raises: BrokenError as `try_out` does, and for an input that takes more than `STEPS` lines.
        """
        self._steps = self._new = 0
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            try_out(target, given)
        except EndlessError as error:
            raise BrokenError(f"{target.name}: more than {STEPS} lines at {place_of(error)}: found no end") from None
        finally:
            sys.settrace(before)
            self.most = max(self.most, self._steps)
        return self._new

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self.root):
            return None
        last, seen, number = 0, self.seen, id(code)
        self._codes[number] = code

        def stepped(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                line = frame.f_lineno
                self._steps += 1
                if self._steps > STEPS:
                    raise EndlessError
                edge = (number, last, line)
                last = line
                if edge not in seen:
                    seen.add(edge)
                    self._new += 1
            return stepped

        return stepped


@attrs.define(eq=False)
class Guided:
    """One decoder, and the inputs that showed a way through it."""

    target: Target
    tracer: Tracer
    kept: list[Any] = attrs.field(factory=list)
    found: list[Any] = attrs.field(factory=list)
    """Those of `kept` that are neither samples nor of the corpus."""

    @classmethod
    def of(cls, target: Target, root: Path = KAI, corpus: Path = CORPUS) -> Guided:
        """Return a decoder whose samples and corpus were given to it.

        Raises: BrokenError if it breaks at one of them.
        """
        made = cls(target, Tracer(str(root)))
        made.kept += [*target.samples(), *read_corpus(target, corpus)]
        for each in made.kept:
            made.tracer.run(target, _copied(each))
        return made

    def run(self, objects: int, seed: int = 0) -> Iterator[str]:
        """Give so many inputs; yield what is wrong, each thing once."""
        draw, told = Random(f"{self.target.name}/guided/{seed}"), set[str]()
        longest = max(_length(each) for each in self.kept) + _ROOM
        for _ in range(objects):
            given = self._drawn(draw)
            if _length(given) > longest:
                continue
            try:
                new = self.tracer.run(self.target, _copied(given))
            except BrokenError as broken:
                if (place := str(broken).partition(": found")[0][:120]) not in told:
                    told.add(place)
                    yield f"{broken}; given {given!r}"
                continue
            if new:
                self.kept.append(given)
                self.found.append(given)

    def _drawn(self, draw: Random) -> Any:
        among = self.kept[-_NEWEST:] if draw.random() < _YOUNG else self.kept
        sample = draw.choice(among)
        if self.target.is_raw:
            return mutated_bytes(draw, sample, self.kept)
        return mutated_within(draw, sample, self.target.within) if self.target.within else mutated(draw, sample)


def read_corpus(target: Target, folder: Path = CORPUS) -> tuple[Any, ...]:
    """Return the inputs that earlier rounds kept for a decoder."""
    path = _path(target, folder)
    if not path.exists():
        return ()
    known = json.loads(path.read_text())
    return tuple(each.encode("latin-1") for each in known) if target.is_raw else tuple(known)


def write_corpus(target: Target, inputs: list[Any], folder: Path = CORPUS) -> None:
    """Write the inputs to keep for a decoder, one a line, after those that are there."""
    known = [*read_corpus(target, folder), *inputs]
    lines = [json.dumps(each.decode("latin-1") if target.is_raw else each) for each in known]
    if lines:
        folder.mkdir(exist_ok=True)
        _path(target, folder).write_text("[\n" + ",\n".join(lines) + "\n]\n")


def least(target: Target, inputs: list[Any], root: Path = KAI, corpus: Path = CORPUS) -> list[Any]:
    """Return of these inputs, shortest first, those to write: short ones that take a way which none before takes."""
    known = Guided.of(target, root, corpus)
    short = sorted((each for each in inputs if _length(each) <= LONGEST), key=_length)
    return [each for each in short if known.tracer.run(target, _copied(each))]


def _path(target: Target, folder: Path) -> Path:
    return folder / f"{target.name.replace(',', '').replace(' ', '-')}.json"


def _length(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else len(str(value))


def _copied(value: Any) -> Any:
    return value if isinstance(value, bytes) else json.loads(json.dumps(value))
