"""The decision log: one JSON object a line in a rotated file; its writer and its reader.

A line has the fields of `Decision`; readers accept unknown fields and kinds. PATH is the newest file, PATH.1 the one
before, and so on. A damaged or truncated line is skipped and counted. `evictions_in` yields the evicted pods and the
jobs that gained, over as many cycles as the files hold: ``kai why --evicted --decision-log PATH``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs
import msgspec

from kai.basics.errors import InputError
from kai.basics.parsing import is_number
from kai.basics.wording import counted, found_by

BIND: Final = "bind"
EVICT: Final = "evict"
HOLD: Final = "hold"
REFUSE: Final = "refuse"


@attrs.frozen(kw_only=True)
class Subject:
    """The object of a decision: a pod or, for a refusal, the pod group that waits."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


@attrs.frozen(kw_only=True)
class Gainer:
    """The job that a pod was evicted for."""

    namespace: str
    name: str
    queue: str


@attrs.frozen(kw_only=True)
class Decision:
    """A line of the decision log (``kai run --decision-log``): one decision of one cycle. It has no envelope."""

    cycle: int
    time: str
    """When the cycle took its snapshot, RFC 3339."""
    kind: str
    """``bind``, ``evict``, ``hold`` (a place is promised) or ``refuse`` (the job waits)."""
    subject: Subject
    job: str = ""
    """``namespace/name`` of the pod group; "" for a pod without one."""
    queue: str = ""
    node: str = ""
    """The node of a bind or a promise, or the next node of an evicted pod."""
    action: str = ""
    rule: str = ""
    """The rule that permitted an eviction; for a refusal the reason code."""
    gainer: Gainer | None = None
    numbers: Mapping[str, float] = attrs.field(factory=dict)
    """Numbers by name; the name contains the unit."""
    input_hash: str = ""
    """A digest of the input of the cycle, the same for all its decisions."""


def line_of(decision: Decision) -> bytes:
    """Return a decision as a line of the file."""
    found = {name: getattr(decision, name) for name in _PLAIN}
    found |= {"subject": decision.subject, "gainer": decision.gainer, "inputHash": decision.input_hash}
    return msgspec.json.encode(found) + b"\n"


def read_line(line: bytes) -> Decision | str:
    """Return the decision in a line, or why it is invalid."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON" if line.endswith(b"\n") else "cut short"
    if not isinstance(found, dict):
        return "no JSON object"
    fields = {name: found[name] for name in _PLAIN if name in found}
    for name, value in fields.items():
        # To Python true is an integer, but no number of a cycle.
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            return f"{name}: {_cut(value)}"
    numbers = fields.get("numbers", {})
    wrong = [name for name, value in numbers.items() if not isinstance(value, int | float)]
    if wrong:
        return f"numbers.{wrong[0]}: {_cut(numbers[wrong[0]])}"
    subject, gainer = found.get("subject"), found.get("gainer")
    lacking = [name for name in ("cycle", "time", "kind") if name not in fields]
    if lacking or not isinstance(subject, dict):
        return f"no {', '.join(lacking) or 'subject'}"
    if gainer is not None and not isinstance(gainer, dict):
        return f"gainer: {_cut(gainer)}"
    return Decision(
        **fields,
        subject=Subject(**{name: str(subject.get(name, "")) for name in _SUBJECT}),
        gainer=None if gainer is None else Gainer(**{name: str(gainer.get(name, "")) for name in _GAINER}),
        input_hash=str(found.get("inputHash", "")),
    )


def _cut(value: object) -> str:
    """Return a value as JSON, truncated."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST: Final = 40
_PLAIN: Final = tuple(each for each in attrs.fields_dict(Decision) if each not in {"subject", "gainer", "input_hash"})
_TYPES: Final[Mapping[str, type]] = dict.fromkeys(_PLAIN, str) | {"cycle": int, "numbers": dict}
_SUBJECT: Final = tuple(attrs.fields_dict(Subject))
_GAINER: Final = tuple(attrs.fields_dict(Gainer))


# --- Reading -------------------------------------------------------------------------------------------------------


@attrs.define
class PassedOver:
    """Invalid lines of a log: their count, and place and reason of the first."""

    count: int = 0
    file: str = ""
    number: int = 0
    why: str = ""

    def add(self, file: str, number: int, why: str) -> None:
        """Count one more line."""
        self.count += 1
        if self.count == 1:
            self.file, self.number, self.why = file, number, why

    def __str__(self) -> str:
        """Return a sentence about the skipped lines; "" if there are none."""
        if not self.count:
            return ""
        lines = counted(self.count, "line that is no decision was", "lines that are no decisions were")
        first = "" if self.count == 1 else "the first of them "
        return f"{self.file}: {lines} passed over: {first}line {self.number}, found {self.why}"


def read_decisions(path: str, passed: PassedOver | None = None) -> Iterator[Decision]:
    """Yield the decisions of a log, oldest first; count invalid lines in ``passed``.

    Raises: InputError if there is no such file, or it cannot be read.
    """
    newest = Path(path)
    if newest.is_dir():
        raise InputError(f"{path}: found a folder, expected the decision log of kai run --decision-log")
    if not newest.is_file():
        raise InputError(f"{path}: found no such file, expected the decision log of kai run --decision-log")
    try:
        # The highest number is the oldest.
        for file in (*reversed(_older(newest)), newest):
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    found = read_line(line)
                    if isinstance(found, Decision):
                        yield found
                    # A blank line is no damage: editors and concatenation leave some.
                    elif passed is not None and line.strip():
                        passed.add(str(file), number, found)
    except OSError as error:
        raise InputError(f"{path}: found {found_by(error)}, expected a readable decision log") from None


def evictions_in(path: str, passed: PassedOver | None = None) -> Iterator[Decision]:
    """Yield the evictions in a log, oldest first; count invalid lines in ``passed``.

    Raises: InputError as `read_decisions`.
    """
    return (each for each in read_decisions(path, passed) if each.kind == EVICT)


def _older(newest: Path) -> list[Path]:
    """Return the older files, the youngest first."""
    out: list[Path] = []
    while (file := numbered(newest, len(out) + 1)).is_file():
        out.append(file)
    return out


def numbered(newest: Path, number: int) -> Path:
    """Return the path of an older file."""
    return newest.with_name(f"{newest.name}.{number}")


# --- Writing -------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class RotatedFile:
    """An append-only file; at a size limit it is renamed to the first of the older files, and the oldest is deleted."""

    path: Path
    most_bytes: int
    most_files: int
    _file: BinaryIO | None = None

    def append(self, lines: bytes) -> None:
        """Append whole lines; all or none of them are written.

        Raises: OSError.
        """
        file = self._open()
        # An empty file is not rotated, however long the lines are.
        if file.tell() and file.tell() + len(lines) > self.most_bytes:
            self._rotate()
            file = self._open()
        length = file.tell()
        try:
            file.write(lines)
            file.flush()
        except OSError:
            self.close()
            with suppress(OSError):
                os.truncate(self.path, length)  # half a line would spoil the one after it
            raise

    def close(self) -> None:
        """Close the file; the next append opens it again. Unwritten data is dropped."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = open(self.path, "ab", opener=_private)  # noqa: SIM115 - only this takes an opener, and the file stays open
        return self._file

    def _rotate(self) -> None:
        self.close()
        # The oldest first, since each takes the name of the next one.
        for number in range(self.most_files - 1, 0, -1):
            younger = self.path if number == 1 else numbered(self.path, number - 1)
            if younger.exists():
                younger.replace(numbered(self.path, number))
        if self.most_files == 1:
            self.path.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    """Open a file that only this account may read, because it contains names of workloads."""
    return os.open(path, flags, 0o600)


def numbers_in(**values: Any) -> Mapping[str, float]:  # noqa: ANN401 - whatever plugins say
    """Return the values that are numbers."""
    return {name: float(value) for name, value in values.items() if is_number(value)}
