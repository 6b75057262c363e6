"""The decision log: a thread of its own writes every decision of every cycle to a file.

The cycle's thread only gathers references (`DecisionLog.decided`) and never blocks: if the writer falls behind, the
decisions that do not fit into the queue are dropped and counted. Row numbers are valid only until the next snapshot, so
names are looked up at once; the writer's thread renders the text. A refusal is logged when its reason changes, not
again in each cycle.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import msgspec
import numpy as np
import structlog

from kai.api.values import instant_text
from kai.basics.errors import ConfigError
from kai.basics.wording import shown
from kai.cluster.process.decisions import (
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
from kai.deciding.explain.recorded import metric_code
from kai.facts.model.axis import GPU, GPU_UNIT, SHARED_RESOURCES, Int64s
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import Node, Pod, Status
from kai.framework.decisions import Bind, Evict, Nominate
from kai.framework.decisions import Decision as Decided

if TYPE_CHECKING:
    from kai.deciding.engine.cycle import CycleReport
    from kai.facts.state.snapshot import Snapshot

_MOST_WAITING: Final = 20_000
"""Limit of decisions that wait for the writer."""
_BATCH: Final = 1000
_MEGABYTE: Final = 1 << 20
_LAST_WORDS: Final = 2.0
"""How long the end of the process waits for the writer.

Units: seconds.
"""

Made = Callable[[], Decision]


@attrs.define(eq=False)
class DecisionLog:
    """Takes the decisions of cycles, and writes them in a thread."""

    file: RotatedFile
    dropped: Callable[[int], None]
    """Counts decisions that are missing in the file."""
    _waiting: queue.Queue[list[Made] | None] = attrs.field(factory=queue.Queue)
    _taken: int = 0
    """Count of all decisions that were put into the queue; written by the deciding threads only."""
    _written: int = 0
    """Count of all decisions that the writer has handled."""
    _thread: threading.Thread | None = None
    _hash: tuple[int, str] = (-1, "")
    _refused: dict[str, str] = attrs.field(factory=dict)
    """The reason of the last refusal of each group, by UID."""
    _is_warned: bool = False

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
                f"--decision-log: found {shown(path)} ({found}), expected a file that can be written"
            ) from None
        return cls(file, dropped)

    def start(self) -> None:
        """Start the writer."""
        # A daemon: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="decision-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the waiting decisions for at most two seconds, and end."""
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)

    # --- Taking --------------------------------------------------------------------------------------------------

    def decided(self, decisions: Iterable[Decided], snapshot: Snapshot, cycle: int, action: str) -> None:
        """Take the decisions of one statement. Called in the thread of the cycle, before the next snapshot."""
        at = _Moment(cycle=cycle, time=_time(snapshot), action=action, input_hash=self._hash_of(snapshot, cycle))
        self._put(_made(decisions, snapshot, at))

    def refused(self, snapshot: Snapshot, report: CycleReport, cycle: int) -> None:
        """Take the groups whose reason to wait has changed. Called before the next snapshot is taken."""
        waiting = np.unique(snapshot.pod_group[np.flatnonzero(report.status == Status.PENDING)])
        known, found = self._refused, {}
        fresh: list[Made] = []
        at = _Moment(cycle=cycle, time=_time(snapshot), action="", input_hash="")
        for row in waiting[waiting >= 0].tolist():
            record = report.records.get(row)
            if record is None or not record.reasons:
                continue
            group, reason = snapshot.groups[row], record.reasons[0]
            code = found[group.uid] = metric_code(reason)
            if known.get(group.uid) != code:
                # Only if there is something to write: the digest of a large cluster takes milliseconds.
                at = at if at.input_hash else attrs.evolve(at, input_hash=self._hash_of(snapshot, cycle))
                fresh.append(_Refusal(group=group, code=code, facts=reason.facts, at=at))
        self._refused = found
        self._put(fresh)

    def _put(self, made: list[Made]) -> None:
        # Without a lock: each of the two counts is written by one side only, and they only grow.
        room = max(0, _MOST_WAITING - (self._taken - self._written))
        if len(made) > room:
            self.dropped(len(made) - room)
            del made[room:]
        if made:
            self._taken += len(made)
            self._waiting.put_nowait(made)

    def _hash_of(self, snapshot: Snapshot, cycle: int) -> str:
        if self._hash[0] != cycle:
            self._hash = (cycle, input_hash(snapshot))
        return self._hash[1]

    # --- Writing -------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            made = self._waiting.get()
            if made is None:
                self.file.close()
                return
            for start in range(0, len(made), _BATCH):
                self._write(made[start : start + _BATCH])

    def _write(self, made: list[Made]) -> None:
        try:
            self.file.append(b"".join([line_of(each()) for each in made]))
            self._is_warned = False
        except Exception as error:  # noqa: BLE001 - the boundary of the writer: later decisions must still be written
            self.dropped(len(made))
            self.file.close()
            self._warn(error)
        self._written += len(made)

    def _warn(self, error: Exception) -> None:
        # Once until a write succeeds: a full disk would otherwise fill the log of the process as well.
        if not self._is_warned:
            self._is_warned = True
            why = (error.strerror or str(error)) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            structlog.get_logger().warning("decision log not written", path=str(self.file.path), why=why)


def input_hash(snapshot: Snapshot) -> str:
    """Return a digest of the pods of a snapshot with their requests and nodes, and of its queues.

    Times are left out, so an unchanged cluster has the same digest a minute later. Cost: O(P), milliseconds for 50,000.
    """
    digest = hashlib.blake2b(digest_size=8)
    for column in (snapshot.pod_shape, snapshot.pod_group, snapshot.pod_status, snapshot.pod_node, snapshot.requests):
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update("\n".join([pod.uid for pod in snapshot.pods]).encode())
    digest.update("\n".join([node.name for node in snapshot.nodes]).encode())
    for each in snapshot.queues:
        digest.update(f"{each.name} {each.parent} {each.priority} {each.quota} {each.limit}\n".encode())
    return digest.hexdigest()


def _time(snapshot: Snapshot) -> str:
    return instant_text(round(snapshot.now, 3))


# --- Decisions in words --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Moment:
    """The fields that all decisions of a statement share."""

    cycle: int
    time: str
    action: str
    input_hash: str


@attrs.frozen(kw_only=True)
class _Refusal:
    """A waiting group; a call renders its refusal."""

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


class _Made(msgspec.Struct, gc=False):
    """A decision with the objects behind its rows; a call renders it. A cycle may make 10,000s of these."""

    decision: Decided
    pod: Pod
    group: PodGroup | None
    gains: PodGroup | None
    node: Node | None
    request: Int64s
    at: _Moment

    def __call__(self) -> Decision:
        """Render the decision."""
        decision, at, pod, group, gains = self.decision, self.at, self.pod, self.group, self.gains
        cpu, memory, gpu = self.request[:SHARED_RESOURCES].tolist()
        amounts = {"gpus": round(gpu / GPU_UNIT, 3), "cpuMillis": cpu, "memoryBytes": memory}
        return Decision(
            cycle=at.cycle,
            time=at.time,
            kind=_KINDS[type(decision)],
            subject=Subject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid),
            job="" if group is None else group.key,
            queue="" if group is None else group.queue,
            node="" if self.node is None else self.node.name,
            action=decision.cause.name if isinstance(decision, Evict) else at.action,
            rule=decision.rule if isinstance(decision, Evict) else "",
            gainer=None if gains is None else Gainer(namespace=gains.namespace, name=gains.name, queue=gains.queue),
            numbers={**amounts, **(_shares(decision.facts) if isinstance(decision, Evict) else {})},
            input_hash=at.input_hash,
        )


def _made(decisions: Iterable[Decided], snapshot: Snapshot, at: _Moment) -> list[Made]:
    """Look up the objects behind the rows of decisions."""
    pods, groups, nodes, requests = snapshot.pods, snapshot.groups, snapshot.nodes, snapshot.requests
    of_pod, shapes = snapshot.pod_group, snapshot.pod_shape
    out: list[Made] = []
    for each in decisions:
        row, gains, place = of_pod[each.pod], -1, -1
        if isinstance(each, Evict):
            gains, place = each.aggressor, each.moved_to
        else:
            place = each.node
        out.append(
            _Made(
                each,
                pods[each.pod],
                groups[row] if row >= 0 else None,
                groups[gains] if gains >= 0 else None,
                nodes[place] if place >= 0 else None,
                requests[shapes[each.pod]],
                at,
            )
        )
    return out


_KINDS: Final[Mapping[type, str]] = {Bind: BIND, Nominate: HOLD, Evict: EVICT}
_SIDES: Final = {"victim": "victimQueue", "aggressor": "gainerQueue"}
_FIGURES: Final = {"used": "Used", "quota": "Quota", "fair_share": "FairShare"}


def _shares(facts: Mapping[str, object]) -> Mapping[str, float]:
    """Return usage, quota and fair share of both queues in GPUs, and the other numbers of an eviction."""
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
