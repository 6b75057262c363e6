"""A pod that nobody can bind leaves its capacity to others, a little longer each time."""

from kai.api.conventions.binding import GATE
from kai.roles.scheduler.feedback.refusals import BindBackoff
from tests.unit.intake import making


def failed(backoff, uids, now):
    for uid in uids:
        backoff.failed(uid, "no", now, 1e9 + now)


def test_the_rest_doubles_and_has_an_end():
    backoff = BindBackoff()
    pauses = []
    for _ in range(12):
        failed(backoff, ["a"], 0.0)
        pauses.append(backoff.next_due(0.0))
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == 300.0


def test_who_rests_and_who_is_forgotten():
    backoff = BindBackoff()
    assert backoff.resting(0.0) == {}
    failed(backoff, ["a", "b"], 0.0)
    assert backoff.resting(0.5).keys() == {"a", "b"}
    assert backoff.resting(1.0) == {}
    assert backoff.next_due(1.0) is None
    failed(backoff, ["a"], 1.0)
    assert backoff.next_due(1.0) == 3.0
    assert backoff.resting(1.5).keys() == {"a"}
    assert backoff.resting(5000.0) == {}
    failed(backoff, ["a"], 5000.0)
    assert backoff.next_due(5000.0) == 5001.0, "what was long ago counts no more"


def test_a_resting_pods_text_names_refusals_and_retry():
    backoff, (pod,) = BindBackoff(), making.objects(making.pod("a")).pods
    failed(backoff, ["uid-a"], 0.0)
    assert backoff.resting(0.0) == {"uid-a": "the bind was refused once: no; the next try is at 2001-09-09T01:46:41Z"}
    backoff.failed("uid-a", "exceeded quota:\n pods.", 1.0, 1e9 + 1.4)
    text = "the bind was refused 2 times: exceeded quota: pods; the next try is at 2001-09-09T01:46:43Z"
    assert backoff.resting(1.0) == {"uid-a": text}
    shown = backoff.shown(pod)
    assert [gate.name for gate in shown.spec.scheduling_gates] == [f"{GATE}{text}"]
    assert backoff.shown(pod) is shown, "what did not change is not read again"
