"""Deliberate bugs: each takes one defence of kai away. A net that does not catch them would not catch real ones.

``python -m tests.simulation --bugs --seeds 1..40`` runs schedules with each bug until one breaks an invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Delete, Reason, Refusal
from kai.cluster import work
from kai.cluster.caching import assume_cache, store, watch
from kai.cluster.election import leading, lease
from kai.cluster.requesting import sending, write
from kai.cluster.transport import calls, encoding, reachability
from kai.intake import held
from kai.roles.binder import bind as binding
from kai.roles.binder import queue, sharers
from kai.roles.binder import service as binder_service
from kai.roles.binder import service as sweeping
from kai.roles.podgrouper import links
from kai.roles.scheduler import service
from kai.roles.scheduler.committing import binds, committer, outbox
from kai.roles.scheduler.publishing import publisher

if TYPE_CHECKING:
    from kai.cluster.requests import Evict

Patch: TypeAlias = tuple[object, str, object]
Bug: TypeAlias = Callable[[], list[Patch]]
BUGS: Final[dict[str, Bug]] = {}


def bug(function: Bug) -> Bug:
    """Add a bug."""
    BUGS[function.__name__] = function
    return function


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let kai have a bug, or several at once, joined by a plus: what one defence misses another may still catch."""
    patches = [patch for each in name.split("+") for patch in BUGS[each]()]
    before = [(where, what, getattr(where, what)) for where, what, _ in patches]
    for where, what, instead in patches:
        setattr(where, what, instead)
    try:
        yield
    finally:
        for where, what, was in before:
            setattr(where, what, was)


def _nothing(*_: object, **__: object) -> None:
    return None


def _no_reason(*_: object, **__: object) -> str:
    return ""


def _not(*_: object, **__: object) -> bool:
    return False


async def _at_once(*_: object, **__: object) -> None:
    return None


# --- Preconditions ---------------------------------------------------------------------------------------------------


@bug
def binding_without_uid() -> list[Patch]:
    plain = encoding._binding
    return [(encoding, "_binding", lambda request: plain(attrs.evolve(request, uid="")))]


@bug
def binding_without_version() -> list[Patch]:
    plain = encoding._binding
    return [(encoding, "_binding", lambda request: plain(attrs.evolve(request, resource_version="")))]


@bug
def deletion_without_uid() -> list[Patch]:
    plain = encoding._delete_options

    def without(request: Delete | Evict) -> dict[str, Any]:
        return plain(attrs.evolve(request, uid=""))

    return [(encoding, "_delete_options", without)]


@bug
def binding_without_epoch() -> list[Patch]:
    return [(write.FencedRequests, "_stamp", lambda _: {})]


# --- Terms -----------------------------------------------------------------------------------------------------------


@bug
def term_never_ends() -> list[Patch]:
    return [(lease.Election, "is_leading", lambda self, _: self.term is not None)]


@bug
def lease_taken_without_waiting() -> list[Patch]:
    return [(lease.Election, "_ran_out", lambda *_: True)]


@bug
def every_holder_taken_for_an_earlier_life() -> list[Patch]:
    return [(lease.Election, "_is_earlier_life", lambda *_: True)]


@bug
def no_barrier_after_taking_over() -> list[Patch]:
    return [(store.WatchedStore, "refresh", _at_once)]


@bug
def no_check_of_the_term_before_sending() -> list[Patch]:
    return [(write.FencedRequests, "_lasts", lambda _: True)]


@bug
def epoch_not_counted_up() -> list[Patch]:
    plain = leading.LeaseLeadership._manifest

    def stale(self: Any, effect: Any) -> Any:
        return plain(self, attrs.evolve(effect, transitions=0))

    return [(leading.LeaseLeadership, "_manifest", stale)]


@bug
def assumptions_kept_over_terms() -> list[Patch]:
    return [(store.WatchedStore, "forget_all", _nothing)]


# --- Unknown outcomes ------------------------------------------------------------------------------------------------


@bug
def lost_answer_read_as_failure() -> list[Patch]:
    plain = calls.refusal_of

    def sure(answer: Any, *, is_write: bool, now: float) -> Refusal:
        found = plain(answer, is_write=is_write, now=now)
        return attrs.evolve(found, reason=Reason.REJECTED) if found.reason is Reason.UNKNOWN else found

    return [(write, "refusal_of", sure)]


@bug
def unknown_outcomes_never_read() -> list[Patch]:
    return [(write.Requests, "_settle_later", _nothing)]


@bug
def bindings_not_assumed() -> list[Patch]:
    return [(write.Requests, "_show_bound", _nothing)]


@bug
def orders_not_assumed() -> list[Patch]:
    return [(store.WatchedStore, "assume", _nothing)]


@bug
def writes_repeated_after_a_lost_answer() -> list[Patch]:
    def always(answer: Any, attempt: int, *, is_read: bool) -> bool:
        del is_read
        return attempt < 4 and (not hasattr(answer, "status") or answer.status >= 500)

    return [(sending, "_may_repeat", always)]


# --- The binder's own checks -----------------------------------------------------------------------------------------


def _checking_only(*checks: sharers.Check) -> list[Patch]:
    return [(binder_service, "Binder", partial(binding.Binder, checks=checks))]


@bug
def node_not_checked_for_room() -> list[Patch]:
    return _checking_only(sharers.refuse_node)


@bug
def node_not_checked_at_all() -> list[Patch]:
    return _checking_only()


@bug
def orders_of_earlier_terms_carried_out() -> list[Patch]:
    return [(queue.LeaderTerms, "refuse", _no_reason)]


@bug
def pods_not_checked_before_the_binding() -> list[Patch]:
    # One defence in two places: the plan looks before it offers the binding, the sender when the binding's turn comes.
    return [(binding, "refuse_pod", _no_reason), (write.Requests, "_is_outdated", _not)]


@bug
def share_not_checked() -> list[Patch]:
    return [(binding, "refuse_share", _no_reason)]


@bug
def reservation_not_checked_for_room() -> list[Patch]:
    return [(binding, "refuse_reservation", _no_reason)]


@bug
def reservations_never_swept() -> list[Patch]:
    def none(*_: object) -> Any:
        yield from ()  # a plan is a generator

    return [(sweeping, "sweep_group", none), (sweeping, "sweep_everything", none)]


# --- The store and its watches ---------------------------------------------------------------------------------------


@bug
def old_versions_taken_for_news() -> list[Patch]:
    return [(assume_cache.AssumeCache, "_is_news", lambda *_: True)]


@bug
def deletions_missed_by_lists() -> list[Patch]:
    plain = assume_cache.AssumeCache.end_list

    def deaf(self: Any, version: int) -> None:
        self._listing = None
        plain(self, version)

    return [(assume_cache.AssumeCache, "end_list", deaf)]


@bug
def expired_watches_go_on() -> list[Patch]:
    def again(self: Any, now: float, _: float | None = None) -> Any:
        return self._pause(now, None)

    return [(watch.ListWatch, "_expire", again)]


@bug
def namesakes_taken_for_the_same() -> list[Patch]:
    def any_uid(reader: Any, snapshot: Any, row: int) -> Any:
        facts = snapshot.pods[row]
        return reader.get(Pod, facts.name, facts.namespace)

    return [(binds, "pod_of", any_uid)]


# --- Deciding and committing -----------------------------------------------------------------------------------------


@bug
def decisions_not_verified() -> list[Patch]:
    def unverified(reader: Any, _: Any, snapshot: Any, decisions: Any) -> Any:
        found = [binds.pod_of(reader, snapshot, each.pod) for each in decisions]
        return tuple(found) if all(found) else "a pod is gone"

    return [(committer, "verify", unverified)]


@bug
def busy_objects_decided_again() -> list[Patch]:
    # One defence in two places: the committer leaves alone what is being written, and the sender keeps the order of
    # writes about one object.
    plain = sending.Sender._offered

    def unordered(self: Any, _: object, *, urgent: bool) -> Any:
        return plain(self, object(), urgent=urgent)

    return [(committer.Committer, "_busy_with", _no_reason), (sending.Sender, "_offered", unordered)]


@bug
def expired_orders_kept() -> list[Patch]:
    return [(service, "expired_bind_requests", lambda *_: ())]


@bug
def failed_binds_never_rest() -> list[Patch]:
    return [(committer.Committer, "_failed", _nothing)]


@bug
def waiting_writes_forgotten() -> list[Patch]:
    return [(outbox.Outbox, "_keep_time", _at_once)]


@bug
def explanations_repeated() -> list[Patch]:
    plain = publisher.Publisher.step

    def forgetful(self: Any, event: Any, now: float) -> Any:
        self.outgoing.writes.clear()
        return plain(self, event, now)

    return [(publisher.Publisher, "step", forgetful)]


@bug
def cordoned_nodes_used() -> list[Patch]:
    return [(binds, "is_wanted", lambda *_: True), (sharers, "untolerated", _nothing)]


@bug
def pods_that_succeeded_forgotten() -> list[Patch]:
    return [(held.Granted, "left_of_gangs", lambda *_: {})]


@bug
def links_of_pods_never_written() -> list[Patch]:
    return [(links.ShownLinks, "is_due", lambda *_: False)]


@bug
def failed_looks_never_repeated() -> list[Patch]:
    plain = work.WorkQueue.end

    def careless(self: Any, key: Any, now: float, ended: Any = work.DONE) -> None:
        plain(self, key, now, attrs.evolve(ended, failure=""))

    return [(work.WorkQueue, "end", careless)]


@bug
def server_never_back() -> list[Patch]:
    return [(reachability.Reachability, "_notify", _nothing)]


@bug
def silence_never_noticed() -> list[Patch]:
    return [(watch.ListWatch, "deadline", lambda _: 1e9)]


@bug
def rest_after_throttling_ignored() -> list[Patch]:
    plain = sending.Sender._throttled

    def at_once(self: Any, number: int, _: float | None, *, alone: bool = False) -> None:
        plain(self, number, None, alone=alone)

    return [(sending.Sender, "_throttled", at_once)]


@bug
def victims_taken_on_old_knowledge() -> list[Patch]:
    return [(binds, "_against_eviction", _no_reason)]


__all__ = ["BUGS", "planted"]
