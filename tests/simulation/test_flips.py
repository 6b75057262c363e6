"""Groups that idle nodes would take are bound in bounded time, while nodes flip and members end within seconds."""

import pytest

from tests.doubles.rest_server.storage import Manifest
from tests.simulation.bugs import planted
from tests.simulation.flips import Liveness
from tests.simulation.schedule import Plan, run
from tests.simulation.test_schedules import told
from tests.simulation.trial import Trial, trial
from tests.simulation.world import GROUP, HOME, NODE, POD

__all__ = ["trial"]  # the fixture

# Two seconds of processor time each; the nightly session runs thousands.
_SEEDS = range(1, 11)


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_group_waits_for_idle_nodes(seed: int) -> None:
    result = run(Plan.of_flips(seed))
    assert result.is_good, told(result)


def test_flips_catch_members_forgotten_after_success() -> None:
    with planted("pods_that_succeeded_forgotten"):
        result = run(Plan.of_flips(1))
    assert {each.invariant for each in result.violations} == {18}


def gang(trial: Trial, size: int, least: int) -> tuple[Liveness, list[Manifest]]:
    """Begin to look, and create a gang."""
    liveness = Liveness(trial.world)
    trial.world.create("user", GROUP, {"metadata": {"name": "g", "namespace": HOME}, "spec": {"minMember": least}})
    return liveness, [trial.pod(name, gpus=0, annotations={"pod-group-name": "g"}) for name in "abcd"[:size]]


def succeed(trial: Trial, pod: Manifest) -> None:
    trial.bind(pod)
    trial.world.patch("kubelet", POD, pod, {"status": {"phase": "Succeeded"}}, "status")


def watch(trial: Trial, liveness: Liveness, seconds: int) -> None:
    for _ in range(seconds):
        liveness.look()
        trial.pass_time(1.0)


def test_a_group_that_waits_beside_idle_nodes_is_found(trial: Trial) -> None:
    liveness, _ = gang(trial, 2, 2)
    watch(trial, liveness, 13)
    assert trial.broken == {18}


def test_a_gangs_waiting_rest_after_successes_is_found(trial: Trial) -> None:
    liveness, pods = gang(trial, 4, 4)
    succeed(trial, pods[0])
    succeed(trial, pods[1])
    watch(trial, liveness, 13)
    assert trial.broken == {18}


def test_a_pod_recreated_after_successes_is_found(trial: Trial) -> None:
    liveness, pods = gang(trial, 3, 4)
    for pod in pods:
        succeed(trial, pod)
    trial.pass_time(1.0)
    trial.pod("d", gpus=0, annotations={"pod-group-name": "g"})
    watch(trial, liveness, 13)
    assert trial.broken == {18}


def test_a_gang_that_never_was_whole_may_wait(trial: Trial) -> None:
    liveness, pods = gang(trial, 2, 4)
    succeed(trial, pods[0])
    watch(trial, liveness, 30)
    assert not trial.broken


def test_a_later_rounds_pod_may_wait_for_its_gang(trial: Trial) -> None:
    liveness, pods = gang(trial, 2, 2)
    succeed(trial, pods[0])
    succeed(trial, pods[1])
    trial.pass_time(1.0)
    trial.pod("c", gpus=0, annotations={"pod-group-name": "g"})
    watch(trial, liveness, 30)
    assert not trial.broken


def test_a_group_refused_by_nodes_may_rest(trial: Trial) -> None:
    liveness, _ = gang(trial, 2, 2)
    trial.pass_time(20.0)
    watch(trial, liveness, 29)
    assert not trial.broken
    watch(trial, liveness, 4)
    assert trial.broken == {18}


def test_time_in_which_nodes_change_does_not_count(trial: Trial) -> None:
    liveness, pods = gang(trial, 2, 2)
    del pods
    node = trial.world.all(NODE)[0]
    for number in range(30):
        trial.world.patch("admin", NODE, node, {"metadata": {"labels": {"number": str(number)}}})
        watch(trial, liveness, 1)
    assert not trial.broken
