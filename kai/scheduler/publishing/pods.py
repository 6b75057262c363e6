"""Writes about pods that wait: the condition that says why, and an event."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from kai.api import names
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.scheduler import orders
from kai.scheduler.effects import Send
from kai.scheduler.explanations import UNSCHEDULABLE, GroupAccount, PodAccount
from kai.scheduler.publishing.conditions import explanation
from kai.scheduler.publishing.outgoing import Outgoing
from kai.scheduler.reader import Reader


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
