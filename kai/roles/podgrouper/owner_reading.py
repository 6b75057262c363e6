"""How the pod grouper reads: watched kinds from the store, others from the API server, and owners again in rounds.

Rounds read owners again without an event on a pod: soon if a group lost a pod, else once a minute. A bound pod is
looked at again when it is deleted, and its owner may want fewer pods by then. A waiting pod is gone at once and is not
looked at: without rounds, the group of a job that shrank from eight pods to four would wait for eight. Also, the owner
of a failed pod may not replace it.

An owner may also change while its pods wait: its priority, or the number of pods that start together. Owners are not
watched, as that would take the right to list all kinds; so the owners of waiting groups are read in intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import anyio
import attrs
import structlog

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.meta import Namespace, PriorityClass
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.plans import Reason, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Api, Change, Clock, Cluster, Index, Store
from kai.cluster.requesting.foreign import MOST_READ, Absence
from kai.cluster.requests import Fetch, FetchAll, Forbidden, NoSuchKind
from kai.cluster.signals import Observe, unobserved
from kai.cluster.transport.encoding import to_json
from kai.cluster.work import DONE, Ended, Look, QueueOptions, Workers
from kai.roles.podgrouper.grouper import NAMESPACE, POD, POD_GROUP, PRIORITY_CLASS
from kai.roles.podgrouper.lookup import Absent, Answers, Get, Many, Read, Why
from kai.roles.podgrouper.resource import Kind, Manifest

WATCHED: Final[tuple[type[ApiObject], ...]] = (Pod, PodGroup, PriorityClass, Namespace)
"""The kinds that the pod grouper watches."""

_STORED: Final[dict[Kind, type[Any]]] = {
    POD: Pod,
    POD_GROUP: PodGroup,
    PRIORITY_CLASS: PriorityClass,
    NAMESPACE: Namespace,
}
_WITHOUT_NAMESPACE: Final = frozenset({PRIORITY_CLASS, NAMESPACE})
# Labels by which groupers find the other pods of a workload.
_SOUGHT: Final = (names.KUBEFLOW_JOB_NAME, "serving.knative.dev/revision")
_KEPT: Final = 512
_KEPT_BYTES: Final = 4 << 20
"""The most bytes of JSON that are cached. Tenants write it, and in memory it takes 20 times as much."""
_KEPT_SECONDS: Final = 60.0


def _named_group(pod: Pod) -> Iterable[str]:
    group = pod.metadata.annotations.get(names.POD_GROUP)
    return (f"{pod.metadata.namespace}/{group}",) if group else ()


def _sought_labels(pod: Pod) -> Iterable[str]:
    labels = pod.metadata.labels
    return tuple(f"{pod.metadata.namespace}/{key}={labels[key]}" for key in _SOUGHT if key in labels)


def _namespace(group: PodGroup) -> Iterable[str]:
    return (group.metadata.namespace,)


GROUPS: Final = Index(Pod, "podgrouper: group", _named_group)
"""Pods by ``namespace/name`` of the group that they name."""
LABELS: Final = Index(Pod, "podgrouper: workload", _sought_labels)
NAMESPACES: Final = Index(PodGroup, "podgrouper: namespace", _namespace)


@attrs.frozen
class StoreLookup:
    """Answers the reads of one decision: from the fetched answers, else from the store, else ``UNREAD``.

    `manifests` caches the JSON form of groups, as long as they are the same objects.
    """

    store: Store
    answers: Answers
    manifests: dict[tuple[str, str], tuple[PodGroup, Manifest]] = attrs.field(factory=dict)

    def get(self, read: Get, /) -> Manifest | Absent:
        """Return the object, or why there is none."""
        known = self.answers.get(read)
        cls = _STORED.get(read.kind)
        if cls is None or not isinstance(known, Absent) or known.why is not Why.UNREAD:
            return known
        found = self.store.get(cls, read.name, "" if read.kind in _WITHOUT_NAMESPACE else read.namespace)
        return Absent(Why.NOT_FOUND) if found is None else unstructure(found)

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        """Return the objects, or why they cannot be listed."""
        if read.kind == POD_GROUP and read.namespace and not read.labels:
            return tuple(self._group(group) for group in self.store.find(NAMESPACES, read.namespace))
        if read.kind == POD and read.namespace and any(key in _SOUGHT for key, _ in read.labels):
            key, value = next(label for label in read.labels if label[0] in _SOUGHT)
            pods = self.store.find(LABELS, f"{read.namespace}/{key}={value}")
            return tuple(
                unstructure(pod) for pod in pods if all(pod.metadata.labels.get(k) == v for k, v in read.labels)
            )
        return self.answers.many(read)

    def _group(self, group: PodGroup) -> Manifest:
        key = key_of(group)
        known = self.manifests.get(key)
        if known is None or known[0] is not group:
            known = self.manifests[key] = (group, unstructure(group))
        return known[1]


@attrs.define
class _Fetched:
    """One read of the API server, running or finished."""

    began: int
    time: float
    ended: anyio.Event = attrs.field(factory=anyio.Event)
    answer: object = None
    size: int = 0
    """The size of the answer, in bytes of JSON."""


@attrs.define
class Fetcher:
    """Reads objects of any kind, once for all decisions that ask at the same time.

    A kind that the API server does not serve, or that may not be read in a namespace, is not requested again for a
    minute. Tenants choose owners: if kai may not read an owner of a kind without a grouper, that is no missing right.
    """

    api: Api
    clock: Clock
    is_foreign: Callable[[Kind], bool] = lambda _: False
    """Returns whether only tenants can have caused a read of a kind."""
    _reads: dict[Read, _Fetched] = attrs.field(factory=dict)
    _missing: Absence[Kind] = attrs.field(factory=Absence)
    _forbidden: Absence[tuple[Kind, str]] = attrs.field(factory=Absence)
    _moment: int = 0

    def moment(self) -> int:
        """Return a logical timestamp: a read that begins later has at least this moment."""
        # Not a time, since much may happen within one tick of a clock.
        self._moment += 1
        return self._moment

    async def add(self, answers: Answers, read: Read, since: int) -> Answers:
        """Return the answers with one more, which was read at the moment `since` or later.

        The total size of one decision's answers is bounded: owners have owners, and many decisions run at once.
        """
        answer, size = await self._shared(read, since)
        if answers.size + size > MOST_READ:
            answer, size = Absent(Why.FAILED, f"the owners of one pod hold more than {MOST_READ >> 10} KiB"), 0
        if isinstance(read, Get):
            return answers.with_object(read, answer if isinstance(answer, Absent) else _manifest(answer), size)
        return answers.with_list(read, answer if isinstance(answer, Absent) else _manifests(answer))

    async def _shared(self, read: Read, since: int) -> tuple[object, int]:
        """Return the answer and its size."""
        now = self.clock.monotonic()
        if self._missing.holds(read.kind, now):
            return Absent(Why.NO_SUCH_KIND), 0
        if self._forbidden.holds((read.kind, read.namespace), now):
            return Absent(Why.FORBIDDEN), 0
        known = self._reads.get(read)
        # Only a read that began after the pod asked: an earlier one may show the owner as it was before the change that
        # made the pod ask.
        if known is not None and known.began >= since and not _has_failed(known):
            await known.ended.wait()
            return known.answer, known.size
        self._prune(now)
        # Other tasks wait for this read. If this task is cancelled, they get the failure that stands here, and try
        # again later.
        mine = self._reads[read] = _Fetched(self.moment(), now, answer=Absent(Why.FAILED, "the read was cut off"))
        try:
            mine.answer = self._understood(read, await self.api.perform(self._request(read)))
            mine.size = 0 if isinstance(mine.answer, Absent) else len(to_json(mine.answer))
        finally:
            mine.ended.set()
        return mine.answer, mine.size

    def _understood(self, read: Read, reply: object) -> object:
        if not isinstance(reply, Refusal):
            self._missing.forget(read.kind)
            return reply
        if isinstance(reply, NoSuchKind):
            self._missing.note(read.kind, self.clock.monotonic())
            return Absent(Why.NO_SUCH_KIND)
        if isinstance(reply, Forbidden):
            if self.is_foreign(read.kind):
                self._forbid(read)
            return Absent(Why.FORBIDDEN)
        if reply.reason is Reason.NOT_FOUND:
            return Absent(Why.NOT_FOUND)
        return Absent(Why.FAILED, reply.why)

    def _forbid(self, read: Read) -> None:
        """Remember that a kind may not be read in a namespace."""
        self._forbidden.note((read.kind, read.namespace), self.clock.monotonic())
        structlog.get_logger().debug("owner may not be read", kind=str(read.kind), namespace=read.namespace)

    def _request(self, read: Read) -> Fetch | FetchAll:
        version, kind = read.kind.api_version, read.kind.kind
        if isinstance(read, Get):
            return Fetch(
                api_version=version,
                kind=kind,
                name=read.name,
                namespace=read.namespace,
                is_foreign=self.is_foreign(read.kind),
            )
        return FetchAll(api_version=version, kind=kind, namespace=read.namespace, labels=dict(read.labels))

    def _prune(self, now: float) -> None:
        """Drop reads that are too old for any decision, once there are many."""
        if self._are_many(self._reads):
            young = {read: kept for read, kept in self._reads.items() if now - kept.time < _KEPT_SECONDS}
            # All of them if the young ones are too many by themselves. To drop as many as needed would mean a scan at
            # each read from then on.
            self._reads = {} if self._are_many(young) else young

    @staticmethod
    def _are_many(reads: Mapping[Read, _Fetched]) -> bool:
        return len(reads) >= _KEPT or sum(kept.size for kept in reads.values()) >= _KEPT_BYTES


def _has_failed(fetched: _Fetched) -> bool:
    return fetched.ended.is_set() and isinstance(fetched.answer, Absent) and fetched.answer.why is Why.FAILED


def _manifest(answer: object) -> Manifest | Absent:
    return answer if isinstance(answer, dict) else Absent(Why.FAILED, "the API server sent no object")


def _manifests(answer: object) -> tuple[Manifest, ...] | Absent:
    return answer if isinstance(answer, tuple) else Absent(Why.FAILED, "the API server sent no list")


_OPTIONS: Final = QueueOptions(gather=5.0)
"""By then a Job has counted a failed pod, and most pods of a deleted workload are gone."""
_PAUSE: Final = 60.0
_SECONDS_EACH: Final = 0.5
"""Rate limit: at most two groups a second are looked at, so with many waiting groups each comes less often."""


@attrs.define
class Rounds:
    """The groups whose owners are to be read in rounds."""

    cluster: Cluster
    ask: Callable[[Key], None]
    """Requests a look at a pod that has not changed."""
    observe: Observe = unobserved
    _waiting: dict[Key, float] = attrs.field(factory=dict)
    """Groups with waiting pods, and the last time that the owner was read."""
    _lost: set[Key] = attrs.field(factory=set)
    _workers: Workers[Key] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the loop around `_look`."""
        self._workers = Workers.of(self.cluster, "podgrouper-rounds", self._look, _OPTIONS, self.observe)

    async def run(self) -> None:
        """Look at groups in rounds, until cancelled."""
        await self._workers.run()

    def enter(self, pod: Pod, group: Key) -> None:
        """Add the group of a waiting pod whose owner was read just now."""
        if pod.metadata.owner_references and not pod.spec.node_name and group not in self._waiting:
            self._waiting[group] = self.cluster.clock.monotonic()
            self._workers.want(group)

    def take(self, change: Change[Pod]) -> None:
        """Request an early look at a group if its pod went or failed."""
        before, after = change.before, change.after
        if before is None or (after is not None and not _failed(before, after)):
            return
        metadata = before.metadata
        group = metadata.annotations.get(names.POD_GROUP)
        if group and metadata.owner_references and metadata.deletion_timestamp is None:
            self._lost.add((metadata.namespace, group))
            self._workers.want((metadata.namespace, group))

    async def _look(self, look: Look[Key]) -> Ended:
        namespace, name = look.key
        store, now = self.cluster.store, self.cluster.clock.monotonic()
        group = store.get(PodGroup, name, namespace)
        left = [pod for pod in store.find(GROUPS, f"{namespace}/{name}") if _counts(pod)]
        pause = max(_PAUSE, _SECONDS_EACH * len(self._waiting))
        is_due = self._waiting.get(look.key, now) + pause <= now
        # With sub-groups the count of all pods does not show whether one of them lacks a pod.
        lacks = group is not None and (group.spec.sub_groups or len(left) < group.spec.minimum)
        has_lost = look.key in self._lost
        self._lost.discard(look.key)
        if left and (is_due or (has_lost and lacks)):
            # One pod stands for all: its look reads the owner and writes the group that they share.
            self.ask(key_of(left[0]))
            self._waiting[look.key] = now
        if group is None or all(pod.spec.node_name for pod in left):
            self._waiting.pop(look.key, None)
            return DONE
        return Ended(after=self._waiting.setdefault(look.key, now) + pause - now)


def _failed(before: Pod, after: Pod) -> bool:
    return after.status.phase == "Failed" and before.status.phase != "Failed"


def _counts(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED
