"""Conditions that say why something waits: what they say, whether two are the same, and how they are written.

Writes about pods that wait: the condition that says why, and an event.

Writes about pod groups: timestamps, the condition that says why a group waits, and its events.
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
from kai.scheduler.committing import orders
from kai.scheduler.effects import Overlay, Reader, Send
from kai.scheduler.publishing.deferred import is_of_one_pod
from kai.scheduler.publishing.explanations import NOT_READY, STALE, UNSCHEDULABLE, GroupAccount, PodAccount, Waiting
from kai.scheduler.publishing.outgoing import Outgoing
from kai.scheduler.settings import SchedulerSettings

OURS: Final = frozenset(
    {names.UNSCHEDULABLE_REASON, Code.BIND_REFUSED.value, Code.HELD_FOR_LEAVING.value, Code.NOT_READY.value}
)
"""Reasons under which kai says of a pod why it has no node."""


def conditions(group: PodGroup, wanted: tuple[SchedulingCondition, ...]) -> Patch:
    """Return the write of the conditions of a group."""
    # The list is written whole, and other pools have conditions in it: only onto the version that we read.
    metadata = {"uid": group.metadata.uid, "resourceVersion": group.metadata.resource_version}
    status = {"schedulingConditions": [unstructure(each) for each in wanted]}
    ref = Ref.to(group)
    return Patch(ref=ref, patch={"metadata": metadata, "status": status}, subresource="status")


def explanation(pod: Pod) -> tuple[str, str] | None:
    """Return reason and message with which the pod's condition says why it waits; None if it says nothing of that.

    The API server says of pods with gates that these keep them.
    """
    for each in pod.status.conditions:
        if each.type == names.POD_SCHEDULED_CONDITION:
            is_ours = each.status == "False" and each.reason in OURS
            return (each.reason, each.message) if is_ours else None
    return None


def same_condition(last: SchedulingCondition, wanted: SchedulingCondition) -> bool:
    """Return whether two conditions say the same, figures and all."""
    return same_in_kind(last, wanted) and last.message == wanted.message


def same_in_kind(last: SchedulingCondition, wanted: SchedulingCondition) -> bool:
    """Return whether two conditions give the same reasons."""
    facts = [
        (each.type, each.node_pool, each.reason, each.status, tuple(reason.reason for reason in each.reasons))
        for each in (last, wanted)
    ]
    return facts[0] == facts[1]


def next_id(conditions: Iterable[SchedulingCondition]) -> str:
    """Return the number of the next transition; one that cannot be read counts as 0."""
    last = [each.transition_id for each in conditions][-1:]
    return str(int(last[0]) + 1 if last and last[0].isascii() and last[0].isdigit() else 1)


@attrs.define
class PodWrites:
    """Compares accounts of pods with the pods as the store shows them."""

    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock, for what people read."""
    outgoing: Outgoing

    def of(self, account: PodAccount, group: GroupAccount, now: float) -> Iterable[Send]:
        """Yield what is to be written of the account of a pod of a group."""
        pod = self.reader.get(Pod, account.name, account.namespace)
        if pod is None or pod.metadata.uid != account.uid or pod.metadata.deletion_timestamp is not None:
            return
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
        """Write a condition and an event; ``found`` are reason and message of the condition that is there."""
        stood, written = found
        if group.waits_for_turn:
            if self._has_heard(account, written) or self._is_being_bound(pod):
                return
            # Its event alone was lost; what was written before says more than that it waits for its turn.
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
        # What is said for want of something better is not to keep what is better waiting.
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
        """Write a condition of which no event is sent from here; figures alone wait, as elsewhere."""
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
        """Return whether a pod knows more than that it waits for its turn, or just that."""
        said = self.outgoing.history.of(account.uid, UNSCHEDULABLE)
        if written is not None:
            return said != ""
        return bool(said) and (said != account.message or not account.on_pod)

    def _is_being_bound(self, pod: Pod) -> bool:
        return self.reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace) is not None


V = TypeVar("V")
STAMPS: Final = "/stamps"
"""Ends the topic of timestamps. Those that were not written the next cycle tells anew, but for `losses`."""


@attrs.define
class GroupWrites:
    """Compares accounts of groups with the groups as the store shows them."""

    settings: SchedulerSettings
    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock, for what people read."""
    outgoing: Outgoing
    _pods: PodWrites = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Write of pods on the same terms."""
        self._pods = PodWrites(self.reader, self.now, self.outgoing)

    def of(self, account: GroupAccount, now: float) -> Iterable[Send | Overlay]:
        """Yield what is to be written of the account of a group, and of its pods."""
        group = self.reader.get(PodGroup, account.name, account.namespace)
        if group is None or not _is_about(account, group):
            return
        ref = Ref(PodGroup, account.name, account.namespace)
        yield from self._stamps(group, account, now)
        if group.metadata.uid != account.uid:
            return  # the cycle saw it before it was written; the next one says what there is to say
        yield from self.outgoing.announce(account, ref, STALE, account.stale, now)
        for pod in account.pods:
            yield from self._pods.of(pod, account, now)
        yield from self.outgoing.announce(account, ref, NOT_READY, account.not_ready, now)
        yield from self._condition(group, account, now)
        if account.condition is None and not account.waits_for_turn:
            yield from self.outgoing.announce(account, ref, UNSCHEDULABLE, account.unschedulable, now)

    def _stamps(self, group: PodGroup, account: GroupAccount, now: float) -> Iterable[Send | Overlay]:
        """Write timestamps on a group, and show at once when it started.

        The next cycle goes by the start, and may begin before the patch is answered.
        """
        ref, key = Ref(PodGroup, account.name, account.namespace), (account.namespace, account.name)
        needs_no_writing = self.settings.direct_binds and is_of_one_pod(group)
        written = group.metadata.annotations
        if not needs_no_writing and self.reader.is_overlaid(PodGroup, key):
            written = _without(written, names.LAST_START)
        stamps = _changed(written, self.outgoing.losses.stamps_with(group, account.stamps))
        start = stamps.get(names.LAST_START)
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
        """Remember when a group lost pods, until that is written."""
        if lost is None:
            return
        if is_sent:
            self.outgoing.losses.sent(group, lost)
        else:
            self.outgoing.losses.held(group, lost, now)

    def again(self, now: float, most: int) -> Iterable[Send | Overlay]:
        """Yield writes of when groups lost pods, of those that were refused a while ago; at most so many."""
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
        """Return the condition that says why a group waits; when it began to say so is not in it yet."""
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
    """Return whether an account is of this very group; one that was not written yet is told by its name.

    Only groups of one pod are shown before they are written, and their names hold the pod's UID.
    """
    return account.uid == group.metadata.uid or (account.uid == group.metadata.name and is_of_one_pod(group))


def _changed(found: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def _without(annotations: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in annotations.items() if key != name}
