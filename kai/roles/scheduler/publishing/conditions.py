"""Writes the conditions, events and timestamps that explain why pods and pod groups wait.

`PodWrites` compares the account of a pod with the pod in the store, and writes its PodScheduled condition and an event.

`GroupWrites` does the same for a pod group: timestamps, the condition that says why it waits, and its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup, SchedulingCondition
from kai.framework.verdict import Code
from kai.roles.scheduler.committing import orders
from kai.roles.scheduler.effects import Overlay, Reader, Send
from kai.roles.scheduler.publishing.deferred import is_of_one_pod
from kai.roles.scheduler.publishing.explanations import (
    CLOSING,
    NOT_READY,
    STALE,
    UNSCHEDULABLE,
    GroupAccount,
    PodAccount,
    Waiting,
)
from kai.roles.scheduler.publishing.outgoing import Outgoing
from kai.roles.scheduler.settings import SchedulerSettings

OURS: Final = frozenset(
    {names.UNSCHEDULABLE_REASON, Code.BIND_REFUSED.value, Code.HELD_FOR_LEAVING.value, Code.NOT_READY.value}
)
"""Reasons in a PodScheduled condition that come from kai."""


def conditions(group: PodGroup, wanted: tuple[SchedulingCondition, ...]) -> Patch:
    """Return the patch that sets the scheduling conditions of a group."""
    # A merge patch replaces the whole list, and other node pools have conditions in it. With the resourceVersion the
    # API server refuses it (409) if the list changed since kai read it.
    metadata = {"uid": group.metadata.uid, "resourceVersion": group.metadata.resource_version}
    status = {"schedulingConditions": [unstructure(each) for each in wanted]}
    ref = Ref.to(group)
    return Patch(ref=ref, patch={"metadata": metadata, "status": status}, subresource="status")


def explanation(pod: Pod) -> tuple[str, str] | None:
    """Return reason and message of the PodScheduled condition if kai wrote it, else None.

    For pods with scheduling gates the API server itself writes that condition.
    """
    for each in pod.status.conditions:
        if each.type == names.POD_SCHEDULED_CONDITION:
            is_ours = each.status == "False" and each.reason in OURS
            return (each.reason, each.message) if is_ours else None
    return None


def same_condition(last: SchedulingCondition, wanted: SchedulingCondition) -> bool:
    """Return whether two conditions are equal in reasons and message."""
    return same_in_kind(last, wanted) and last.message == wanted.message


def same_in_kind(last: SchedulingCondition, wanted: SchedulingCondition) -> bool:
    """Return whether two conditions are equal but for the message, which holds the figures."""
    facts = [
        (each.type, each.node_pool, each.reason, each.status, tuple(reason.reason for reason in each.reasons))
        for each in (last, wanted)
    ]
    return facts[0] == facts[1]


def next_id(conditions: Iterable[SchedulingCondition]) -> str:
    """Return the ID of the next transition; an ID that is no number counts as 0."""
    last = [each.transition_id for each in conditions][-1:]
    # `isdigit` alone is true of `²`, which `int` refuses. The ID may have been written by any client.
    return str(int(last[0]) + 1 if last and last[0].isascii() and last[0].isdigit() else 1)


@attrs.define
class PodWrites:
    """Compares accounts of pods with the pods in the store, and writes the difference."""

    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock time for timestamps that users read."""
    outgoing: Outgoing

    def of(self, account: PodAccount, group: GroupAccount, now: float) -> Iterable[Send]:
        """Yield the writes that bring a pod of a group in line with its account."""
        pod = self.reader.get(Pod, account.name, account.namespace)
        if pod is None or pod.metadata.uid != account.uid or pod.metadata.deletion_timestamp is not None:
            return
        # A binding sets PodScheduled to true: a late account must not overwrite that.
        if pod.spec.node_name:
            return
        found = explanation(pod)
        if found is None and account.only_instead:
            return
        if not account.is_announced:
            is_news = account.is_figured or found is None or found[0] != account.reason
            yield from self._condition(pod, account, group, now, is_news=is_news)
        else:
            yield from self._announced(pod, account, group, found or ("", None), now)

    def _announced(
        self, pod: Pod, account: PodAccount, group: GroupAccount, found: tuple[str, str | None], now: float
    ) -> Iterable[Send]:
        """Write a condition and an event; ``found`` holds reason and message of the present condition."""
        stood, written = found
        if group.waits_for_turn:
            if self._has_heard(account, written) or self._is_being_bound(pod):
                return
            # Only the event is missing. The present condition says more than "waits for its turn": keep it.
            account = account if written is None else attrs.evolve(account, message=written, reason=stood)
        is_other = bool(stood) and stood != account.reason
        written = None if is_other else written
        said = self.outgoing.history.of(account.uid, UNSCHEDULABLE)
        if written is not None and said is None:
            said = written
            self.outgoing.history.note(account.uid, UNSCHEDULABLE, written, Ref.to(pod))
        stands = written == account.message if account.on_pod else said == account.message
        if stands and said == account.message:
            return
        is_news = is_other or (written is None and said is None)
        # "Waits for its turn" must not start the quiet period, or the real reason would be delayed by it.
        if not ((group.waits_for_turn and is_news) or self.outgoing.may_say(account.uid, group, now, is_news=is_news)):
            return
        if account.on_pod and written != account.message:
            yield from self._write(pod, account, group, now)
        if said != account.message:
            emit = Emit(ref=Ref.to(pod), type="Warning", reason=UNSCHEDULABLE, message=account.message, uid=account.uid)
            yield self.outgoing.say(emit)

    def _condition(
        self, pod: Pod, account: PodAccount, group: GroupAccount, now: float, *, is_news: bool
    ) -> Iterable[Send]:
        """Write a condition without an event; a change of figures alone waits for the quiet period."""
        if explanation(pod) != (account.reason, account.message) and self.outgoing.may_say(
            account.uid, group, now, is_news=is_news
        ):
            yield from self._write(pod, account, group, now)

    def _write(self, pod: Pod, account: PodAccount, group: GroupAccount, now: float) -> Iterable[Send]:
        patch = orders.pod_condition(
            pod,
            kind=names.POD_SCHEDULED_CONDITION,
            status="False",
            reason=account.reason,
            message=account.message,
            now=self.now(),
        )
        content = (account.reason, account.message)
        yield from self.outgoing.write(f"{account.uid}/condition", pod, patch, content, now, group)

    def _has_heard(self, account: PodAccount, written: str | None) -> bool:
        """Return whether the pod already carries this message or a more telling one."""
        said = self.outgoing.history.of(account.uid, UNSCHEDULABLE)
        if written is not None:
            return said != ""
        return bool(said) and (said != account.message or not account.on_pod)

    def _is_being_bound(self, pod: Pod) -> bool:
        return self.reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace) is not None


V = TypeVar("V")
STAMPS: Final = "/stamps"
"""Suffix of the topic of timestamps. If a write fails, the next cycle repeats it; evictions are kept in `losses`."""


@attrs.define
class GroupWrites:
    """Compares accounts of groups with the groups in the store, and writes the difference."""

    settings: SchedulerSettings
    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock time for timestamps that users read."""
    outgoing: Outgoing
    _pods: PodWrites = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Share reader, clock and memory with the writer for pods."""
        self._pods = PodWrites(self.reader, self.now, self.outgoing)

    def of(self, account: GroupAccount, now: float) -> Iterable[Send | Overlay]:
        """Yield the writes that bring a group and its pods in line with its account."""
        group = self.reader.get(PodGroup, account.name, account.namespace)
        if group is None or not _is_about(account, group):
            return
        ref = Ref(PodGroup, account.name, account.namespace)
        yield from self._stamps(group, account, now)
        if group.metadata.uid != account.uid:
            # When the cycle began, the group had no UID in the API server; the next cycle explains it. A group that is
            # kept in memory is written because a condition of its pod says something.
            for pod in account.pods:
                yield from self._pods.of(pod, account, now)
            return
        yield from self.outgoing.announce(account, ref, STALE, account.stale, now)
        yield from self.outgoing.announce(account, ref, CLOSING, account.closing, now)
        for pod in account.pods:
            yield from self._pods.of(pod, account, now)
        yield from self.outgoing.announce(account, ref, NOT_READY, account.not_ready, now)
        yield from self._condition(group, account, now)
        if account.condition is None and not account.waits_for_turn:
            yield from self.outgoing.announce(account, ref, UNSCHEDULABLE, account.unschedulable, now)

    def _stamps(self, group: PodGroup, account: GroupAccount, now: float) -> Iterable[Send | Overlay]:
        """Write the timestamps of a group, and overlay its start in the store at once."""
        ref, key = Ref(PodGroup, account.name, account.namespace), (account.namespace, account.name)
        needs_no_writing = self.settings.direct_binds and is_of_one_pod(group)
        written = group.metadata.annotations
        # An overlaid start is our own promise, not what the API server has: compared with it, the start would never be
        # written.
        if not needs_no_writing and self.reader.is_overlaid(PodGroup, key):
            written = _without(written, names.LAST_START)
        stamps = _changed(written, self.outgoing.losses.stamps_with(group, account.stamps))
        start = stamps.get(names.LAST_START)
        # The next cycle reads the start, and may begin before the API server answers the patch.
        shown = (Overlay(PodGroup, key, {names.LAST_START: start}),) if start else ()
        if start and needs_no_writing:
            stamps = _without(stamps, names.LAST_START)
            yield from shown
            shown = ()
        if stamps and group.metadata.uid:
            patch = Patch(ref=ref, patch={"metadata": {"uid": group.metadata.uid, "annotations": stamps}})
            sent = tuple(self.outgoing.write(f"{account.uid}{STAMPS}", group, patch, stamps, now))
            self._remember(group, stamps.get(names.LAST_EVICTION), now, is_sent=bool(sent))
            yield from (*shown, *sent) if sent else ()

    def _remember(self, group: PodGroup, lost: str | None, now: float, *, is_sent: bool) -> None:
        """Remember the time of an eviction until the annotation is written."""
        if lost is None:
            return
        if is_sent:
            self.outgoing.losses.sent(group, lost)
        else:
            self.outgoing.losses.held(group, lost, now)

    def again(self, now: float, most: int) -> Iterable[Send | Overlay]:
        """Yield retries of refused eviction timestamps that are due, for at most ``most`` groups."""
        for (namespace, name), loss in self.outgoing.losses.take(now, most):
            group, stamps = self.reader.get(PodGroup, name, namespace), {names.LAST_EVICTION: loss.time}
            if group is not None and group.metadata.uid == loss.uid:
                account = GroupAccount(name=name, namespace=namespace, uid=loss.uid, stamps=stamps)
                yield from self._stamps(group, account, now)

    def _condition(self, group: PodGroup, account: GroupAccount, now: float) -> Iterable[Send]:
        known, outgoing = group.status.scheduling_conditions, self.outgoing
        if account.condition is None:
            return
        ref = Ref(PodGroup, account.name, account.namespace)
        last, said = known[-1] if known else None, outgoing.history.of(account.uid, UNSCHEDULABLE)
        if account.waits_for_turn and last is not None:
            if last.node_pool == self.settings.pool and said == "":
                yield from outgoing.announce(account, ref, UNSCHEDULABLE, last.message, now)
            return
        wanted, waiting = self._wanted(account.condition), account.condition
        if waiting.only_instead and not any(each.node_pool == self.settings.pool for each in known):
            return
        if last is not None and same_condition(last, wanted):
            if said is None:
                said = account.unschedulable
                outgoing.history.note(account.uid, UNSCHEDULABLE, said, ref)
            if not said and account.unschedulable:
                yield from outgoing.announce(account, ref, UNSCHEDULABLE, account.unschedulable, now)
            return
        topic = condition_topic(group)
        if outgoing.is_sent(topic, wanted, group.metadata.resource_version, now, account):
            return
        is_news = waiting.is_figured or last is None or not same_in_kind(last, wanted)
        speech = f"{account.uid}/{UNSCHEDULABLE}"
        if not (account.waits_for_turn or outgoing.may_say(speech, account, now, is_news=is_news)):
            return
        fresh = attrs.evolve(wanted, transition_id=next_id(known), last_transition_time=float(int(self.now())))
        others = (each for each in known if each.node_pool != self.settings.pool)
        yield from outgoing.write(topic, group, conditions(group, (*others, fresh)), wanted, now, account)
        if account.unschedulable and said != account.unschedulable:
            yield outgoing.say(orders.emit(ref, UNSCHEDULABLE, account.unschedulable, uid=account.uid))

    def _wanted(self, waiting: Waiting) -> SchedulingCondition:
        """Return the condition that says why a group waits, without transition ID and time."""
        return SchedulingCondition(
            type=names.UNSCHEDULABLE_ON_NODE_POOL_CONDITION,
            node_pool=self.settings.pool,
            reason=names.UNSCHEDULABLE_REASON,
            message=waiting.message,
            reasons=waiting.reasons,
            status="True",
        )


def condition_topic(group: PodGroup) -> str:
    """Return the topic of the conditions of a group."""
    return f"{group.metadata.uid}/condition"


def _is_about(account: GroupAccount, group: PodGroup) -> bool:
    """Return whether an account belongs to this group, by UID or by the name that stands in for a UID before the write.

    Only groups of a single pod enter a cycle before the API server has them, and their names contain the pod's UID.
    """
    return account.uid == group.metadata.uid or (account.uid == group.metadata.name and is_of_one_pod(group))


def _changed(found: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def _without(annotations: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in annotations.items() if key != name}
