"""A workload of a running cluster without pods: the reasons in its conditions and events.

The API server may refuse the pods of a workload (Pod Security, a ResourceQuota, an admission policy). Then there is no
pod that could carry a reason; its controller writes it in an event, or in a condition of the workload.

The latest events about the pod group and the pods of a waiting job: each text once, the newest first.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
import attrs

from kai.answers.cases.live_cluster import list_events_about, lister_of
from kai.answers.why.facts import Evidence
from kai.api import values as times
from kai.api.values import BadValue
from kai.basics.errors import UnreachableError
from kai.basics.parsing import mapping_of, mappings_of, part_of, text_of
from kai.basics.wording import cut, span_text
from kai.cluster.clock import SystemClock
from kai.cluster.transport.access import Access

_MOST: Final = 3
_MOST_PODS: Final = 2
_LONGEST_EVENT: Final = 160


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
    # One query for each name, since a field selector takes one value; pods of a job have much the same events.
    names = {"PodGroup": {group}, "Pod": set(list(pods)[:_MOST_PODS])}
    found = list_events_about(access, namespace, [name for each in names.values() for name in sorted(each)])
    events = [each for each in map(_read, found) if each is not None and each.name in names.get(each.kind, ())]
    return tuple(_evidence(events, now))


def _evidence(events: Iterable[_Event], now: float) -> Iterator[Evidence]:
    # Retries write the same text about each pod, and an event counts the repetitions for its own object only.
    latest: dict[tuple[str, str], _Event] = {}
    for each in sorted(events, key=lambda event: event.time, reverse=True):
        latest.setdefault((each.reason, each.message), each)
    for each in list(latest.values())[:_MOST]:
        whose = f"pod {each.name}, " if each.kind == "Pod" else ""
        times_said = f"{each.count} times, " if each.count > 1 else ""
        ago = span_text(max(0.0, now - each.time))
        text = cut(each.message, _LONGEST_EVENT)
        values = {"kind": each.kind, "name": each.name, "reason": each.reason, "message": each.message}
        yield Evidence(label="event", text=f"{each.reason}: {text} ({whose}{times_said}{ago} ago)", values=values)


def _read(event: Mapping[str, Any]) -> _Event | None:
    """Return an event; None without a valid time."""
    metadata, subject = mapping_of(event, "metadata"), mapping_of(event, "involvedObject")
    series = mapping_of(event, "series")
    # Older events have `lastTimestamp`; newer ones have `eventTime`, and a series once they were repeated.
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
        # Any program may write events, and a line break would start a line of the answer.
        message=" ".join(str(event.get("message") or "").split()),
        count=count if isinstance(count, int) else 1,
        time=time,
    )


_KINDS: Final = (
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "DaemonSet"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("ray.io/v1", "RayJob"),
)
PODLESS: Final = frozenset(kind.lower() for _, kind in _KINDS)
_REFUSING: Final = frozenset({"FailedCreate", "FailedCreatePod", "ReplicaFailure"})
_LONGEST: Final = 400

Manifest = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Podless:
    """A workload without a pod for this scheduler."""

    kind: str
    namespace: str
    name: str
    reason: str
    """The reason from its conditions or events; "" where none gives one."""


def podless(access: Access, kind: str, name: str, namespace: str) -> Podless | None:
    """Return the workload ``name`` without pods; None where there is none, or it may not be read.

    ``kind`` is one of ``PODLESS``, or "" for any; ``namespace`` is "" for all. Call it where no job has the name.

    Raises: UnreachableError, or ConfigError for credentials that cannot be used.
    """
    access.check()
    return anyio.run(_find, access, kind, name, namespace)


async def _find(access: Access, kind: str, name: str, namespace: str) -> Podless | None:
    async with lister_of(access, SystemClock()) as lister:

        async def listed(version: str, plural: str, where: str, field: str) -> Sequence[Manifest]:
            query = (("fieldSelector", f"{field}={name}"),) if field else ()
            try:
                return await lister.list_manifests(version, plural, where, query)
            except UnreachableError as error:
                # A user of one namespace may list Jobs but no RayJobs: what may not be read is as good as absent here.
                if not error.missing:
                    raise
                return ()

        for version, of_kind in _KINDS:
            if kind not in {"", of_kind.lower()}:
                continue
            found = await listed(version, f"{of_kind.lower()}s", namespace, "metadata.name")
            for workload in (each for each in found if text_of(each, "metadata", "name") == name):
                place = text_of(workload, "metadata", "namespace")
                events = await listed("v1", "events", place, "")
                reason = next(_reasons(workload, of_kind, events), "")
                return Podless(kind=of_kind, namespace=place, name=name, reason=reason)
    return None


def _reasons(workload: Manifest, kind: str, events: Sequence[Manifest]) -> Iterator[str]:
    """Yield the reasons why a workload has no pod, the most specific first."""
    name = text_of(workload, "metadata", "name")
    about = [each for each in events if _is_about(each, kind, name)]
    newest = sorted(about, key=lambda each: text_of(each, "lastTimestamp") or text_of(each, "eventTime"), reverse=True)
    refusing = [each for each in newest if text_of(each, "reason") in _REFUSING]
    yield from map(_event, refusing)
    for each in mappings_of(workload, "status", "conditions"):
        if text_of(each, "type") in _REFUSING and text_of(each, "status") == "True":
            yield _said(each)
    if part_of(workload, "spec", "suspend") is True:
        yield "it is suspended (spec.suspend: true)"
    for each in mappings_of(workload, "status", "conditions"):
        if text_of(each, "status") == "True" and text_of(each, "message"):
            yield _said(each)
    yield from (_event(each) for each in newest if text_of(each, "type") == "Warning")


def _is_about(event: Manifest, kind: str, name: str) -> bool:
    """Return whether an event is about a workload, or about a ReplicaSet of a Deployment."""
    subject = mapping_of(event, "involvedObject")
    if text_of(subject, "kind") == kind and text_of(subject, "name") == name:
        return True
    # A Deployment makes no pods itself. The events are on its ReplicaSet, which is named after it with a hash.
    of_set = text_of(subject, "kind") == "ReplicaSet" and text_of(subject, "name").rpartition("-")[0] == name
    return kind == "Deployment" and of_set


def _event(event: Manifest) -> str:
    times = part_of(event, "count") or part_of(event, "series", "count")
    repeated = f" ({times} times)" if isinstance(times, int) and times > 1 else ""
    return f"{_said(event)}{repeated}"


def _said(said: Manifest) -> str:
    reason, message = text_of(said, "reason") or text_of(said, "type"), " ".join(text_of(said, "message").split())
    text = cut(message, _LONGEST)
    return f"{reason}: {text}" if text else reason
