"""The decision log: every decision of every cycle, written to a file by a thread of its own.

The cycle's thread only gathers references (`DecisionLog.decided`) and never waits: where the writer falls behind, what
does not fit into the queue is dropped and counted. Rows mean something only until the next snapshot is taken, so names
are looked up at once; text is made in the writer's thread. Refusals are written when their reason changes, not in
each cycle again.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import structlog

from kai.api.times import instant_text
from kai.engine.report import CycleReport
from kai.errors import ConfigError
from kai.framework.decisions import Bind, Evict, Nominate
from kai.framework.decisions import Decision as Decided
from kai.model.axis import CPU, GPU, GPU_UNIT, MEMORY
from kai.model.podgroup import PodGroup
from kai.model.status import Status
from kai.state.snapshot import Snapshot
from kai.telemetry.decisions import (
    BIND,
    EVICT,
    HOLD,
    REFUSE,
    Decision,
    Gainer,
    RotatedFile,
    Subject,
    line_of,
    numbers_in,
)

_MOST_WAITING: Final = 20_000
"""So many decisions wait for the writer at most."""
_BATCH: Final = 1000
_MEGABYTE: Final = 1 << 20
_LAST_WORDS: Final = 2.0
"""So long the end of the process waits for the writer."""

Made = Callable[[], Decision]


@attrs.define(eq=False)
class DecisionLog:
    """Takes decisions of cycles and has them written."""

    file: RotatedFile
    dropped: Callable[[int], None]
    """Counts decisions that are not in the file."""
    _waiting: queue.Queue[Made | None] = attrs.field(factory=lambda: queue.Queue(_MOST_WAITING))
    _thread: threading.Thread | None = None
    _hash: tuple[int, str] = (-1, "")
    _refused: dict[str, str] = attrs.field(factory=dict)
    """By UID of a group, for which reason it was refused last."""
    _is_told: bool = False

    @classmethod
    def to(cls, path: str, megabytes: int, files: int, dropped: Callable[[int], None]) -> DecisionLog:
        """Return a log that appends to a file.

        Raises: ConfigError if the file cannot be written.
        """
        file = RotatedFile(Path(path), most_bytes=max(1, megabytes) * _MEGABYTE, most_files=max(1, files))
        try:
            file.append(b"")
            file.close()
        except OSError as error:
            found = error.strerror or str(error)
            raise ConfigError(
                f"--decision-log: found {path!r} ({found}), expected a file that can be written"
            ) from None
        return cls(file, dropped)

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._write_all, name="decision-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what waits, as far as that is possible within two seconds, and end."""
        try:
            self._waiting.put(None, timeout=_LAST_WORDS)
        except queue.Full:
            return
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)

    # --- Taking --------------------------------------------------------------------------------------------------

    def decided(self, decisions: Iterable[Decided], snapshot: Snapshot, cycle: int, action: str) -> None:
        """Take the decisions of one statement. Called in the thread of the cycle, before the next snapshot."""
        at = _Moment(cycle=cycle, now=snapshot.now, action=action, input_hash=self._hash_of(snapshot, cycle))
        self._put([_made(each, snapshot, at) for each in decisions])

    def refused(self, snapshot: Snapshot, report: CycleReport, cycle: int) -> None:
        """Take the groups whose reason to wait is not what it was. Called before the next snapshot is taken."""
        waiting = np.unique(snapshot.pod_group[np.flatnonzero(report.status == Status.PENDING)])
        known, found = self._refused, {}
        fresh: list[Made] = []
        at = _Moment(cycle=cycle, now=snapshot.now, action="", input_hash="")
        for row in waiting[waiting >= 0].tolist():
            record = report.records.get(row)
            if record is None or not record.reasons:
                continue
            group, reason = snapshot.groups[row], record.reasons[0]
            code = found[group.uid] = str(reason.code.value)
            if known.get(group.uid) != code:
                at = at if at.input_hash else attrs.evolve(at, input_hash=self._hash_of(snapshot, cycle))
                fresh.append(_Refusal(group=group, code=code, facts=reason.facts, at=at))
        self._refused = found
        self._put(fresh)

    def _put(self, made: list[Made]) -> None:
        for at, each in enumerate(made):
            try:
                self._waiting.put_nowait(each)
            except queue.Full:
                self.dropped(len(made) - at)
                return

    def _hash_of(self, snapshot: Snapshot, cycle: int) -> str:
        if self._hash[0] != cycle:
            self._hash = (cycle, input_hash(snapshot))
        return self._hash[1]

    # --- Writing -------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            batch = list(self._batch())
            made = [each for each in batch if each is not None]
            try:
                self.file.append(b"".join(line_of(each()) for each in made))
                self._is_told = False
            except OSError as error:
                self.dropped(len(made))
                self.file.close()
                self._tell(error)
            if len(made) < len(batch):
                self.file.close()
                return

    def _batch(self) -> Iterator[Made | None]:
        """Wait for a decision and yield it with what waits behind it; None, the last word, ends a batch."""
        each = self._waiting.get()
        yield each
        for _ in range(_BATCH):
            if each is None:
                return
            try:
                each = self._waiting.get_nowait()
            except queue.Empty:
                return
            yield each

    def _tell(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            why = error.strerror or str(error)
            structlog.get_logger().warning("decision log not written", path=str(self.file.path), why=why)


def input_hash(snapshot: Snapshot) -> str:
    """Return a digest of what a cycle is given: which pods there are, what they ask for, where they stand; the queues.

    Times are left out, so the same cluster has the same digest a minute later. Cost: O(P), milliseconds for 50,000.
    """
    digest = hashlib.blake2b(digest_size=8)
    for column in (snapshot.pod_shape, snapshot.pod_group, snapshot.pod_status, snapshot.pod_node, snapshot.requests):
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update("\n".join([pod.uid for pod in snapshot.pods]).encode())
    digest.update("\n".join([node.name for node in snapshot.nodes]).encode())
    for each in snapshot.queues:
        digest.update(f"{each.name} {each.parent} {each.priority} {each.quota} {each.limit}\n".encode())
    return digest.hexdigest()


# --- Decisions in words --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Moment:
    """What all decisions of a statement have in common."""

    cycle: int
    now: float
    action: str
    input_hash: str

    @property
    def time(self) -> str:
        return instant_text(round(self.now, 3))


@attrs.frozen(kw_only=True)
class _Refusal:
    """A group that waits; called, it says so."""

    group: PodGroup
    code: str
    facts: Mapping[str, object]
    at: _Moment

    def __call__(self) -> Decision:
        group, at = self.group, self.at
        return Decision(
            cycle=at.cycle,
            time=at.time,
            kind=REFUSE,
            subject=Subject(kind="PodGroup", namespace=group.namespace, name=group.name, uid=group.uid),
            job=group.key,
            queue=group.queue,
            rule=self.code,
            numbers=numbers_in(**self.facts),
            input_hash=at.input_hash,
        )


def _made(decision: Decided, snapshot: Snapshot, at: _Moment) -> Made:
    """Look up what rows mean, and return what puts it into words later."""
    pod, row = snapshot.pods[decision.pod], int(snapshot.pod_group[decision.pod])
    group = snapshot.groups[row] if row >= 0 else None
    gains = snapshot.groups[decision.aggressor] if isinstance(decision, Evict) and decision.aggressor >= 0 else None
    place = decision.moved_to if isinstance(decision, Evict) else decision.node
    node = snapshot.nodes[place].name if place >= 0 else ""
    request = snapshot.requests[int(snapshot.pod_shape[decision.pod])]

    def words() -> Decision:
        amounts = {
            "gpus": round(int(request[GPU]) / GPU_UNIT, 3),
            "cpuMillis": int(request[CPU]),
            "memoryBytes": int(request[MEMORY]),
        }
        shares = _shares(decision.facts) if isinstance(decision, Evict) else {}
        return Decision(
            cycle=at.cycle,
            time=at.time,
            kind=_KINDS[type(decision)],
            subject=Subject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid),
            job="" if group is None else group.key,
            queue="" if group is None else group.queue,
            node=node,
            action=decision.cause.value if isinstance(decision, Evict) else at.action,
            rule=decision.rule if isinstance(decision, Evict) else "",
            gainer=None if gains is None else Gainer(namespace=gains.namespace, name=gains.name, queue=gains.queue),
            numbers={**amounts, **shares},
            input_hash=at.input_hash,
        )

    return words


_KINDS: Final[Mapping[type, str]] = {Bind: BIND, Nominate: HOLD, Evict: EVICT}
_SIDES: Final = {"victim": "victimQueue", "aggressor": "gainerQueue"}
_FIGURES: Final = {"used": "Used", "quota": "Quota", "fair_share": "FairShare"}


def _shares(facts: Mapping[str, object]) -> Mapping[str, float]:
    """Return what the queues of both sides used and were entitled to in GPUs, and other numbers of an eviction."""
    out: dict[str, float] = {}
    for side, name in _SIDES.items():
        of_queue = facts.get(side)
        if not isinstance(of_queue, Mapping):
            continue
        for figure, ending in _FIGURES.items():
            amounts = of_queue.get(figure)
            if isinstance(amounts, tuple) and len(amounts) > GPU:
                amount = float(amounts[GPU])
                out[f"{name}{ending}Gpus"] = amount if amount < 0 else round(amount / GPU_UNIT, 3)
    return {**out, **numbers_in(**facts)}
