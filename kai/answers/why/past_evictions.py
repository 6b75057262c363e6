"""Evictions of past cycles, from the decision log of a service and from events in the cluster.

kai and KAI-Scheduler write the same event on the pod group of an evicted pod. The API server keeps events for an hour
by default. The decision log of kai has more details, and goes back as far as its files do.

Source: events and annotations are those of the peer's status updater.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kai.answers.cases.live_cluster import list_events
from kai.api import names, values
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of
from kai.basics.wording import counted, number_text
from kai.cluster.process.decisions import Decision, PassedOver, evictions_in, read_decisions
from kai.cluster.transport.access import Access
from kai.deciding.configuration.registry import Registry

EVENTS: Final = "events"
LOG: Final = "decision log"
SERVICE: Final = "service"
"""The last cycles in the memory of a service."""
ANOTHER: Final = "another queue"
"""The name for foreign jobs that the reader may not see."""
_REASON: Final = "Evict"
_POD: Final = re.compile(r"[Pp]od:? (\S+/\S+?)[.,]?(?:\s|$)")


@attrs.frozen(kw_only=True)
class PastEviction:
    """One evicted pod."""

    time: str
    """Time of the eviction, RFC 3339."""
    pod: str
    """``namespace/name``; "" where the record does not have it."""
    job: str
    """``namespace/name``."""
    queue: str
    """"" where it is unknown."""
    gpus: float | None
    cause: str
    rule: str
    gainer: str
    """``namespace/name`` of the job that gained; "" if none did."""
    gainer_queue: str
    because: str
    """The figures that allowed it, in a sentence; "" where they are not on record."""
    source: str

    def masked(self) -> "PastEviction":
        """Return a copy for users who may only see their own namespace: a gainer elsewhere becomes "another queue"."""
        if not self.gainer or self.gainer.partition("/")[0] == self.job.partition("/")[0]:
            return self
        return attrs.evolve(self, gainer=ANOTHER, gainer_queue="", because="")


def rule_of(action: str) -> str:
    """Return the rule of an action's evictions, for records that do not name it; "" without an action."""
    return Registry.installed().cause_of(action).rule if action else ""


Chosen = Callable[[str], bool]
"""A predicate on namespaces: whether their jobs are requested."""


def from_log(path: str, chosen: Chosen, passed: PassedOver | None = None) -> tuple[PastEviction, ...]:
    """Return the evictions in a decision log, the oldest first; count lines that are no decisions in ``passed``.

    Raises: InputError if it cannot be read, or is not empty and has no decision.
    """
    # A log that was just rotated is empty, which is no fault. A file of another kind has lines, and none is a decision.
    if next(iter(read_decisions(path)), None) is None:
        _refuse_others(path)
    return tuple(_logged(each) for each in evictions_in(path, passed) if chosen(each.job.partition("/")[0]))


def _refuse_others(path: str) -> None:
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                found = line.strip()[:80].decode("utf-8", "replace")
                wanted = "a decision of kai run --decision-log"
                raise InputError.about(path, f"line {number}", found=found, wanted=wanted)


def from_events(access: Access, namespace: str) -> tuple[PastEviction, ...]:
    """Return the evictions recorded by events in a namespace, or in all, the oldest first.

    Raises: UnreachableError where events cannot be listed.
    """
    found = [each for event in list_events(access, _REASON, namespace) for each in _eviction_in(event)]
    return tuple(sorted(found, key=lambda each: (each.time, each.job, each.pod)))


def joined(logged: Iterable[PastEviction], in_events: Iterable[PastEviction]) -> tuple[PastEviction, ...]:
    """Return both sources as one list, the oldest first, without the events of evictions that the log has as well."""
    out = list(logged)
    known = {(each.pod, _minute(each.time)) for each in out}
    # The log has the time of the snapshot, the event that of its writing: seconds later, possibly in the next minute.
    out += [
        each
        for each in in_events
        if not {(each.pod, _minute(each.time)), (each.pod, _minute(each.time, before=60))} & known
    ]
    return tuple(sorted(out, key=lambda each: (each.time, each.job, each.pod)))


def _minute(time: str, before: float = 0) -> int:
    try:
        return int((values.instant(time) - before) // 60)
    except BadValue:
        return 0


def _logged(found: Decision) -> PastEviction:
    gainer = found.gainer
    return PastEviction(
        time=found.time,
        pod=f"{found.subject.namespace}/{found.subject.name}",
        job=found.job,
        queue=found.queue,
        gpus=found.numbers.get("gpus"),
        cause=found.action,
        rule=found.rule or rule_of(found.action),
        gainer="" if gainer is None else f"{gainer.namespace}/{gainer.name}",
        gainer_queue="" if gainer is None else gainer.queue,
        because=_numbers(found),
        source=LOG,
    )


def _numbers(found: Decision) -> str:
    """Return the usage and the fair share of both queues."""
    sides = ((found.queue, "victimQueue"), (found.gainer.queue if found.gainer else "", "gainerQueue"))
    said = []
    for queue, side in sides:
        used, share = found.numbers.get(f"{side}UsedGpus"), found.numbers.get(f"{side}FairShareGpus")
        if used is not None and share is not None:
            said.append(f"{queue} used {counted(used, 'GPU')}, fair share {number_text(share)}")
    return "; ".join(said)


def _eviction_in(event: Mapping[str, Any]) -> Iterator[PastEviction]:
    """Yield the eviction that an event records; nothing for an event that is not about a pod group's evicted pod."""
    metadata, subject = mapping_of(event, "metadata"), mapping_of(event, "involvedObject")
    if event.get("reason") != _REASON or subject.get("kind") != "PodGroup":
        return
    noted = mapping_of(metadata, "annotations")
    message = str(event.get("message") or "")
    pod = _POD.search(f"{message.partition(chr(10))[0]} ")
    gainer = noted.get(names.EVICTOR_NAME)
    cause = str(noted.get(names.EVICTOR_ACTION) or "")
    yield PastEviction(
        time=str(event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp") or ""),
        pod=pod[1] if pod else "",
        job=f"{subject.get('namespace') or metadata.get('namespace')}/{subject.get('name')}",
        queue="",
        gpus=None,
        cause=cause,
        rule=rule_of(cause),
        gainer=f"{noted.get(names.EVICTOR_NAMESPACE)}/{gainer}" if gainer else "",
        gainer_queue="",
        because=" ".join(line.strip() for line in message.splitlines()[1:]),
        source=EVENTS,
    )


__all__ = ["ANOTHER", "EVENTS", "LOG", "SERVICE", "PastEviction", "from_events", "from_log", "joined", "rule_of"]
