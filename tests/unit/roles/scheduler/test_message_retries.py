"""What users are to hear is sent until it is written, refused for what it is, or no news any more."""

import pytest

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Reason, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.requests import Forbidden, NotLeading
from kai.roles.scheduler.committing import messages as module
from kai.roles.scheduler.committing.messages import MessageRetries
from kai.roles.scheduler.effects import Send
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World


def eviction(number=0):
    return Emit(ref=Ref(PodGroup, "g", "default"), type="Normal", reason="Evict", message=f"pod {number}", uid="uid-g")


def failure(message="no"):
    return Emit(ref=Ref(Pod, "p", "default"), type="Warning", reason="FailedBinding", message=message, uid="uid-p")


def of(*manifests):
    return MessageRetries(World(making.queue("q"), making.group("g"), *manifests))


def again(untold, now):
    return [(each.ticket, each.request.message) for each in untold.due(now)]


@pytest.mark.parametrize(
    "reply",
    [Refusal(reason=Reason.UNAVAILABLE), Refusal(reason=Reason.UNKNOWN), Forbidden(), NotLeading()],
)
def test_a_temporary_refusal_is_retried_with_doubling_pauses(reply):
    untold, now, pauses = of(), 0.0, []
    assert untold.send(eviction(), 7, now) == Send(eviction(), 7)
    for _ in range(8):
        assert untold.answered(7, reply, now)
        assert again(untold, now) == []
        pauses.append(untold.next_due() - now)
        now = untold.next_due()
        assert again(untold, now) == [(7, "pod 0")]
        assert untold.next_due() is None
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    untold.answered(7, None, now)
    assert len(untold) == 0
    assert not untold.answered(7, None, now)


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.NOT_FOUND, Reason.ALREADY_EXISTS, Reason.CONFLICT])
def test_a_final_refusal_is_not_retried(reason):
    untold = of()
    untold.send(eviction(), 1, 0.0)
    assert untold.answered(1, Refusal(reason=reason), 0.0)
    assert len(untold) == 0


def test_the_servers_retry_after_is_respected():
    untold = of()
    untold.send(eviction(), 1, 0.0)
    untold.answered(1, Refusal(reason=Reason.UNAVAILABLE, retry_after=90.0), 0.0)
    assert untold.next_due() == 90.0


def test_what_is_no_news_is_forgotten():
    untold = of()
    untold.send(eviction(), 1, 0.0)
    untold.recall(601.0)
    assert again(untold, 601.0) == []
    assert len(untold) == 0


def test_of_more_than_may_wait_the_oldest_goes(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 3)
    untold = of()
    for number in range(5):
        untold.send(eviction(number), number, 0.0)
    untold.recall(1.0)
    assert again(untold, 1.0) == [(2, "pod 2"), (3, "pod 3"), (4, "pod 4")]


def test_only_a_pods_last_message_is_repeated():
    untold = of(making.pod("p"))
    untold.send(failure("first"), 1, 0.0)
    untold.send(failure("second"), 2, 0.0)
    assert not untold.answered(1, Refusal(reason=Reason.UNAVAILABLE), 0.0)
    untold.recall(1.0)
    assert again(untold, 1.0) == [(2, "second")]


@pytest.mark.parametrize("there", [[], [making.pod("p", node="n")], [making.pod("p", metadata={"uid": "another"})]])
def test_a_message_is_dropped_once_its_pod_stopped_waiting(there):
    untold = of(*there)
    untold.send(failure(), 1, 0.0)
    untold.answered(1, Refusal(reason=Reason.UNAVAILABLE), 0.0)
    assert again(untold, 2.0) == []
    assert len(untold) == 0


def test_pausing_messages_go_once_the_server_is_back():
    untold = of()
    for number in range(2):
        untold.send(eviction(number), number, 0.0)
    untold.answered(1, Refusal(reason=Reason.UNAVAILABLE), 0.0)
    untold.hurry(0.5)
    assert again(untold, 0.5) == [(1, "pod 1")], "the other is on its way"
    assert again(untold, 5.0) == []
