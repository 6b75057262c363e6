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
        written = explanation(pod)
        if group.waits_for_turn:
            if self._has_heard(account, written) or self._is_being_bound(pod):
                return
            # Its event alone was lost; what was written before says more than that it waits for its turn.
            account = account if written is None else attrs.evolve(account, message=written)
        said = self.outgoing.history.of(account.uid, UNSCHEDULABLE)
        if written is not None and said is None:
            said = written
            self.outgoing.history.note(account.uid, UNSCHEDULABLE, written, Ref.to(pod))
        stands = written == account.message if account.on_pod else said == account.message
        if stands and said == account.message:
            return
        is_news = written is None and said is None
        # What is said for want of something better is not to keep what is better waiting.
        if not ((group.waits_for_turn and is_news) or self.outgoing.may_say(account.uid, group, now, is_news=is_news)):
            return
        if account.on_pod and written != account.message:
            patch = orders.pod_condition(
                pod,
                kind=names.POD_SCHEDULED_CONDITION,
                status="False",
                reason=names.UNSCHEDULABLE_REASON,
                message=account.message,
                now=self.now(),
            )
            yield from self.outgoing.write(f"{account.uid}/condition", pod, patch, account.message, now, group)
        if said != account.message:
            yield self.outgoing.say(
                Emit(
                    ref=Ref.to(pod),
                    type="Warning",
                    reason=UNSCHEDULABLE,
                    message=account.message,
                    uid=account.uid,
                )
            )

    def _has_heard(self, account: PodAccount, written: str | None) -> bool:
        """Return whether a pod knows more than that it waits for its turn, or just that."""
        said = self.outgoing.history.of(account.uid, UNSCHEDULABLE)
        if written is not None:
            return said != ""
        return bool(said) and (said != account.message or not account.on_pod)

    def _is_being_bound(self, pod: Pod) -> bool:
        return self.reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace) is not None
