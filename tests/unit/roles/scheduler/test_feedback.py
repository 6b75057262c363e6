"""What became of decisions is one value for the next cycle, and one time at which it is no longer so."""

import pytest

from kai.facts.model.placement import NoRoom, Past
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.feedback import Feedback
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making

NODE, WAITS, RUNS = making.node("n1"), making.pod("a"), making.pod("b", node="n1")
GIVEN = CycleInput(objects=making.objects(NODE, WAITS, RUNS), now=1e9, cycle=3, past=Past(awaited=("default/g",)))


@pytest.fixture
def feedback():
    return Feedback(SchedulerSettings())


def names(given):
    return [pod.metadata.name for pod in given.objects.pods]


def test_without_feedback_a_cycle_gets_its_input_unchanged(feedback):
    assert feedback.applied(GIVEN, 0.0) == GIVEN
    assert feedback.next_due(0.0) is None


def test_a_failed_binds_refusal_is_known_while_it_rests(feedback):
    uid = GIVEN.objects.pods[0].metadata.uid
    feedback.bind_backoff.failed(uid, "no", 0.0, 1e9)
    feedback.node_refusals.note(NoRoom(namespace="default", pod="a", uid=uid, node="n1", reason="no room"), 0.0)
    given = feedback.applied(GIVEN, 0.5)
    assert [(pod.metadata.name, bool(pod.spec.scheduling_gates)) for pod in given.objects.pods] == [
        ("a", True),
        ("b", False),
    ]
    assert [each.node for each in given.past.refused] == ["n1"]
    assert feedback.applied(GIVEN, 1.5).objects == GIVEN.objects


def test_the_first_that_is_no_longer_so_is_due(feedback):
    feedback.protected_pods.note("uid-a", 0.0, 10.0)
    assert feedback.next_due(0.0) == 10.0
    feedback.bind_backoff.failed("uid-b", "no", 0.0, 1e9)
    assert feedback.next_due(0.0) == 1.0
    assert feedback.applied(GIVEN, 0.0).past.protected == ("uid-a",)


def test_evictions_are_passed_on_only_under_a_cap(feedback):
    feedback.recent_evictions.note("uid-a", "q", 2000, 0.0)
    assert (feedback.applied(GIVEN, 1.0).past.evicted, feedback.next_due(1.0)) == ((), None)
