"""Writes about pod groups: timestamps, the condition that says why a group waits, and its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import attrs

from kai.api import names
from kai.api.plans import Patch, Ref
from kai.api.scheduling.pod_group import PodGroup, SchedulingCondition
from kai.scheduler import orders
from kai.scheduler.effects import Overlay, Send
from kai.scheduler.explanations import NOT_READY, STALE, UNSCHEDULABLE, GroupAccount, Waiting
from kai.scheduler.publishing.conditions import conditions, next_id, same_condition, same_in_kind
from kai.scheduler.publishing.outgoing import Outgoing
from kai.scheduler.publishing.pods import PodWrites
from kai.scheduler.reader import Reader
from kai.scheduler.settings import SchedulerSettings
from kai.scheduler.single_pod_groups import is_of_one_pod

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
