"""The history of a run: who holds what from when to when, in a database in memory, and past usage from it.

It is what the service writes and reads (`kai.history`), by the clock of the run. So a run over weeks divides as the
service would, and `as_file` is what reports read. A run writes no file that its configuration names; only a caller
that lets others read while it runs, such as a dashboard, gives it one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.cluster_objects import Listing
from kai.api.kinds import key_of
from kai.basics.parsing import SQLITE
from kai.deciding.configuration.past_usage import UsageSettings
from kai.facts.model.budgets import Key as BudgetKey
from kai.facts.model.budgets import Spent
from kai.facts.model.groups import Shares
from kai.history.database import MEMORY, Author, Writer, connect, file_of
from kai.history.recording import Recording
from kai.history.reports import past_usage
from kai.history.spending import Meter
from kai.lab.virtual.running.embedded_cluster import EmbeddedCluster
from kai.roles.scheduler.cycle.past_usage import window_start

if TYPE_CHECKING:
    from kai.deciding.configuration.profile_reading import Configuration
    from kai.intake import IntakeSettings


@attrs.define(eq=False)
class RunHistory:
    """The history of a run so far.

    Units: seconds since the epoch.
    """

    settings: UsageSettings
    cluster: EmbeddedCluster
    recording: Recording
    writer: Writer | None = None
    path: str = MEMORY
    """The file of the database, if it is not in memory."""
    next_read: float = 0.0
    """When past usage is read again; infinity where none is configured."""
    _usage: Mapping[str, Shares] = attrs.field(factory=dict)
    _meter: Meter = attrs.field(factory=Meter)
    _seen: dict[int, Sequence[Any]] = attrs.field(factory=dict)
    """The listing of each kind at the last look."""

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        cluster: EmbeddedCluster,
        intake: IntakeSettings,
        *,
        keeps: bool = False,
        path: str = MEMORY,
    ) -> RunHistory | None:
        """Return the history of a run that begins, in memory or in a new file at ``path``.

        Without ``keeps`` None if its configuration has none, and no queue has a budget.
        """
        settings = configuration.usage
        divides = settings is not None and settings.is_recorded
        if not keeps and not divides and not any(each.spec.budgets for each in cluster.objects().queues):
            return None
        recording = Recording(configuration.parameters.scheduler_name, intake.owns, lambda: intake.kubernetes)
        recording.note_devices(cluster.claimable)
        made = cls(settings if settings is not None and divides else _LONG, cluster, recording, path=path)
        made.next_read = 0.0 if divides else inf
        return made

    def look(self, now: float) -> None:
        """Record what changed since the last look."""
        objects = self.cluster.objects()
        for kind, listed in enumerate((objects.queues, objects.nodes, objects.resource_claims, objects.pod_groups)):
            self._compare(kind, listed)
        self._compare(-1, objects.pods)
        at = round(now * 1000)
        if self.writer is None:
            self.writer = self._begin(at)
        else:
            self.writer.write(at, *self.recording.taken())

    def _compare(self, kind: int, listed: Sequence[Any]) -> None:
        before = self._seen.get(kind, ())
        if listed is before:
            return
        self._seen[kind] = listed
        gone, come = _difference(before, listed)
        old, there = {key_of(each): each for each in gone}, {key_of(each) for each in come}
        for key, each in old.items():
            if key not in there:
                self.recording.see(each, None)
        for each in come:
            self.recording.see(old.get(key_of(each)), each)

    def _begin(self, at: int) -> Writer:
        held, nodes = self.recording.everything()
        return Writer.begin(
            self.path,
            Author(epoch=None, identity="run"),
            at,
            held,
            nodes,
            retention=round(self.settings.retention_seconds * 1000),
            half_life=round(self.settings.half_life_seconds * 1000),
            connection=connect(self.path, writes=True),
        )

    def usage(self, now: float) -> Mapping[str, Shares]:
        """Return past usage as it was read last, which is as often as the service reads it."""
        if self.writer is not None and now >= self.next_read:
            self.next_read = now + self.settings.fetch_seconds
            since, half_life = window_start(self.settings, now), self.settings.half_life_seconds
            found = past_usage(self.writer.connection, round(since * 1000), round(now * 1000), round(half_life * 1000))
            self._usage = {name: Shares(gpu=gpu, cpu=cpu, memory=memory) for name, (gpu, cpu, memory) in found.items()}
        return self._usage

    def as_file(self) -> bytes:
        """Return the database as the bytes of a file that ``kai report`` reads; none before the first record.

        Holds: equal runs give equal bytes.
        """
        return b"" if self.writer is None else file_of(self.writer.connection)

    def spent(self, now: float) -> Mapping[BudgetKey, Spent] | None:
        """Return what was used of the budgets of queues by now; None where no queue has one."""
        queues = self.cluster.objects().queues
        if self.writer is None or not any(each.spec.budgets for each in queues):
            return None
        return self._meter.read(self.writer.connection, queues, round(now * 1000))


_LONG: Final = UsageSettings(client=SQLITE, retention_seconds=400 * 86_400.0)
"""The history of a run whose shares do not depend on it: budgets of a year, and reports, may ask it."""


def _difference(before: Sequence[Any], now: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return what is gone and what came, objects that changed among both."""
    if isinstance(before, Listing) and isinstance(now, Listing) and now.before is before.mark:
        return now.gone, now.come
    old, new = {id(each) for each in before}, {id(each) for each in now}
    return [each for each in before if id(each) not in new], [each for each in now if id(each) not in old]
