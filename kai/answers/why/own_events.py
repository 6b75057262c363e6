"""The latest events about the pod group and the pods of a waiting job: each text once, the newest first."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from kai.answers.cases.live_cluster import list_events_about
from kai.answers.why.facts import Evidence
from kai.api import values as times
from kai.api.values import BadValue
from kai.basics.parsing import mapping_of
from kai.basics.wording import span_text
from kai.cluster.transport.access import Access

_MOST: Final = 3
_MOST_PODS: Final = 2
_LONGEST: Final = 160


@attrs.frozen(kw_only=True)
class _Event:
    kind: str
    name: str
    reason: str
    message: str
    count: int
    time: float


def latest_events(
    access: Access, namespace: str, group: str, pods: Collection[str], now: float
) -> tuple[Evidence, ...]:
    """Return the latest events about a pod group and the first of its pods as evidence.

    Raises: UnreachableError where events cannot be listed.
    """
    names = {"PodGroup": {group}, "Pod": set(list(pods)[:_MOST_PODS])}
    found = list_events_about(access, namespace, [name for each in names.values() for name in sorted(each)])
    events = [each for each in map(_read, found) if each is not None and each.name in names.get(each.kind, ())]
    return tuple(_evidence(events, now))


def _evidence(events: Iterable[_Event], now: float) -> Iterator[Evidence]:
    latest: dict[tuple[str, str], _Event] = {}
    for each in sorted(events, key=lambda event: event.time, reverse=True):
        latest.setdefault((each.reason, each.message), each)
    for each in list(latest.values())[:_MOST]:
        whose = f"pod {each.name}, " if each.kind == "Pod" else ""
        times_said = f"{each.count} times, " if each.count > 1 else ""
        ago = span_text(max(0.0, now - each.time))
        text = each.message if len(each.message) <= _LONGEST else f"{each.message[: _LONGEST - 1].rstrip()}…"
        values = {"kind": each.kind, "name": each.name, "reason": each.reason, "message": each.message}
        yield Evidence(label="event", text=f"{each.reason}: {text} ({whose}{times_said}{ago} ago)", values=values)


def _read(event: Mapping[str, Any]) -> _Event | None:
    """Return an event; None without a valid time."""
    metadata, subject = mapping_of(event, "metadata"), mapping_of(event, "involvedObject")
    series = mapping_of(event, "series")
    observed = (series.get("lastObservedTime"), *(event.get(key) for key in ("lastTimestamp", "eventTime")))
    text = next((str(each) for each in (*observed, metadata.get("creationTimestamp")) if each), "")
    try:
        time = times.instant(text)
    except BadValue:
        return None
    count = series.get("count") or event.get("count") or 1
    return _Event(
        kind=str(subject.get("kind") or ""),
        name=str(subject.get("name") or ""),
        reason=str(event.get("reason") or ""),
        message=" ".join(str(event.get("message") or "").split()),
        count=count if isinstance(count, int) else 1,
        time=time,
    )


__all__ = ["latest_events"]
