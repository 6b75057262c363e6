"""Jobs as rows of a table: replicas of one owner share a row, which shows what they have in common."""

from collections import Counter
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kai.answers.outcomes.job_lines import JobLine

PARTIAL = "Partial"
_BEGUN = frozenset({"Running", "Starts", "Partial"})


@attrs.frozen(kw_only=True)
class Row:
    """One job, or the replicas of one owner in one queue."""

    name: str
    namespace: str
    lines: "tuple[JobLine, ...]"

    @property
    def first(self) -> "JobLine":
        """The first job, which represents all."""
        return self.lines[0]

    @property
    def queue(self) -> str:
        """The queue that all jobs of the row share."""
        return self.first.job.queue

    @property
    def priority(self) -> int | None:
        """The priority that all jobs of the row share."""
        return self.first.job.priority

    @property
    def gpus(self) -> float:
        """GPUs that all jobs of the row request."""
        return sum(line.job.gpus for line in self.lines) / 1000

    @property
    def gpus_text(self) -> str:
        """The requested GPUs as text, with requests by GPU memory."""
        job = self.first.job
        gpus = sum(line.job.gpus - line.job.gpus_by_memory for line in self.lines)
        return job.gpus_of(gpus, sum(line.job.gpu_memory for line in self.lines))

    @property
    def gpus_held(self) -> float | None:
        """GPUs that all jobs of the row occupy; None if unknown."""
        held = [line.job.gpus_held for line in self.lines]
        return None if None in held else sum(each for each in held if each is not None) / 1000

    @property
    def placed(self) -> int:
        """Number of pods that have a node."""
        return sum(line.job.placed for line in self.lines)

    @property
    def wanted(self) -> int:
        """Number of pods that run or want to run."""
        return sum(line.job.wanted for line in self.lines)

    @property
    def pods(self) -> str:
        """Placed and wanted pods, as ``3/4``; "-" for a user who may not read pods."""
        return f"{self.placed}/{self.wanted}" if all(line.counted for line in self.lines) else "-"

    @property
    def state(self) -> str:
        """The state that all jobs of the row share, or a word for a mix of running and waiting."""
        if len(self.lines) == 1:
            return self.lines[0].job.state
        states = {line.job.state for line in self.lines}
        if len(states) == 1:
            return next(iter(states))
        # Any replica that runs makes the row partial. Else the commonest
        # state stands for all: each waits in its own way.
        if states & _BEGUN:
            return PARTIAL
        return Counter(line.job.state for line in self.lines).most_common(1)[0][0]

    @property
    def since(self) -> float | None:
        """When the first waiting job began to wait; if none waits, when the first job started."""
        if len(self.lines) == 1:
            return self.lines[0].since
        waiting = [line for line in self.lines if line.waits] or self.lines
        return min((line.since for line in waiting if line.since is not None), default=None)

    @property
    def ends_in(self) -> float | None:
        """Seconds until the first of its jobs ends at the latest; None if nothing limits them."""
        return min((line.ends_in for line in self.lines if line.ends_in is not None), default=None)

    @property
    def position(self) -> int | None:
        """The best position in the queue."""
        return min((line.position for line in self.lines if line.position is not None), default=None)

    @property
    def reason(self) -> tuple[str, str]:
        """Code and text of the commonest reason why pods wait or are evicted; empty if there is none."""
        if len(self.lines) == 1:
            return self.lines[0].job.reason
        reasons = Counter(each for line in self.lines if any(each := line.job.reason))
        if not reasons:
            return "", ""
        (code, text), count = reasons.most_common(1)[0]
        others = sum(reasons.values()) - count
        return code, f"{text} (and {others} more)" if others else text


def rows_of(lines: "Iterable[JobLine]", *, fold: bool) -> list[Row]:
    """Return a row for each job, or with ``fold`` for all replicas of an owner in one queue at one priority."""
    found: dict[tuple[str, ...], list[JobLine]] = {}
    for line in lines:
        owner = line.owner
        key: tuple[str, ...] = (line.job.namespace, line.job.name)
        if fold and owner is not None:
            # The UID too: an owner that was deleted and made again under its name has other replicas.
            key = (line.job.namespace, owner.kind, owner.name, owner.uid, line.job.queue, str(line.job.priority))
        found.setdefault(key, []).append(line)
    return [_row(group) for group in found.values()]


def _row(lines: "Sequence[JobLine]") -> Row:
    job, owner = lines[0].job, lines[0].owner
    name = job.name if len(lines) == 1 or owner is None else owner.name
    return Row(name=name, namespace=job.namespace, lines=tuple(lines))
