import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder.outcome import BindOutcome, BindVerdict
from kai.roles.binder.queue import (
    AttemptEnded,
    AttemptWaits,
    BindQueue,
    PodSeen,
    RequestGone,
    RequestSeen,
    ServerBack,
    StartAttempt,
    Started,
    StartSweep,
    SweepEnded,
    Tick,
    WakeAt,
)
from kai.roles.binder.sharers import BinderSettings
from tests.unit.roles.binder.clusters import bind_request, pod, sharing_request

SETTINGS = BinderSettings(concurrency=2, patience=2)


def request(name="p", **fields):
    return structure_as(BindRequest, bind_request(name, **fields))


def ref(name="p"):
    return Ref(BindRequest, name, "ns")


def ended(verdict, name="p", **fields):
    return AttemptEnded(ref(name), BindOutcome(verdict=verdict, **fields))


def queue():
    return BindQueue(SETTINGS)


def attempts(effects):
    return [effect.ref.name for effect in effects if isinstance(effect, StartAttempt)]


def sweeps(effects):
    return [effect.group for effect in effects if isinstance(effect, StartSweep)]


def wake(effects):
    return next((effect.time for effect in effects if isinstance(effect, WakeAt)), None)


def test_a_new_request_is_attempted_at_once():
    assert attempts(queue().step(RequestSeen(request()), 0.0)) == ["p"]


def test_a_request_has_one_attempt_at_a_time():
    binds = queue()
    binds.step(RequestSeen(request()), 0.0)
    assert binds.step(RequestSeen(request()), 1.0) == ()
    assert binds.step(Tick(), 100.0) == ()


def test_attempts_beyond_the_limit_wait_in_arrival_order():
    binds = queue()
    started = [attempts(binds.step(RequestSeen(request(name)), float(i))) for i, name in enumerate("zyxw")]
    assert started == [["z"], ["y"], [], []]
    assert (binds.running, binds.waiting) == (2, 2)
    assert attempts(binds.step(ended(BindVerdict.BOUND, "z"), 5.0)) == ["x"]


def test_a_waiting_attempt_gives_up_its_place_once():
    binds = queue()
    for name in "abcdef":
        binds.step(RequestSeen(request(name)), 0.0)
    assert attempts(binds.step(AttemptWaits(ref("a")), 1.0)) == ["c"]
    assert attempts(binds.step(AttemptWaits(ref("a")), 1.0)) == [], "once, however often it waits"
    assert (binds.running, binds.waiting) == (3, 3)
    assert attempts(binds.step(ended(BindVerdict.BOUND, "a"), 2.0)) == [], "it had no place left to give"
    assert attempts(binds.step(ended(BindVerdict.BOUND, "b"), 2.0)) == ["d"]
    assert attempts(binds.step(ended(BindVerdict.BOUND, "c"), 2.0)) == ["e"]
    assert attempts(binds.step(AttemptWaits(ref("a")), 3.0)) == [], "of what has ended nothing is known"


def test_a_repeated_attempt_that_waited_needs_a_place_again():
    binds = queue()
    for name in "abc":
        binds.step(RequestSeen(request(name, limit=5)), 0.0)
    binds.step(AttemptWaits(ref("a")), 0.0)
    binds.step(ended(BindVerdict.RETRY, "a", delay=1.0), 1.0)
    assert attempts(binds.step(Tick(), 5.0)) == [], "b and c are at work"
    assert attempts(binds.step(ended(BindVerdict.BOUND, "b"), 6.0)) == ["a"]


def test_a_finished_request_is_forgotten():
    binds = queue()
    for status in ({"phase": "Succeeded"}, {"phase": "Failed"}):
        assert binds.step(RequestSeen(request(status=status)), 0.0) == ()
    assert binds.waiting == 0


def test_a_failed_attempt_is_repeated_after_its_delay():
    binds = queue()
    binds.step(RequestSeen(request(limit=3)), 0.0)
    effects = binds.step(ended(BindVerdict.RETRY, delay=4.0), 10.0)
    assert (attempts(effects), wake(effects)) == ([], 14.0)
    assert attempts(binds.step(Tick(), 13.9)) == []
    assert attempts(binds.step(Tick(), 14.0)) == ["p"]


def test_seeing_the_own_status_does_not_shorten_the_pause():
    binds = queue()
    binds.step(RequestSeen(request(limit=3)), 0.0)
    binds.step(ended(BindVerdict.RETRY, delay=4.0), 10.0)
    after = request(limit=3, status={"phase": "Failed", "failedAttempts": 1})
    assert attempts(binds.step(RequestSeen(after), 11.0)) == []


def test_a_restart_does_not_shorten_the_pause_either():
    binds = queue()
    failed = request(limit=5, status={"phase": "Failed", "failedAttempts": 3})
    effects = binds.step(RequestSeen(failed), 100.0)
    assert (attempts(effects), wake(effects)) == ([], 104.0)


def test_an_end_for_good_is_the_end():
    for verdict in (BindVerdict.BOUND, BindVerdict.FAILED, BindVerdict.NOTHING_TO_DO):
        binds = queue()
        binds.step(RequestSeen(request()), 0.0)
        assert binds.step(ended(verdict), 1.0) == ()
        assert binds.step(Tick(), 1e9) == ()


def test_interruptions_are_repeated_ever_later_and_without_patience():
    binds = queue()
    effects = binds.step(RequestSeen(request()), 0.0)
    assert effects[0].patient
    now, pauses, patient = 0.0, [], []
    for _ in range(8):
        effects = binds.step(ended(BindVerdict.INTERRUPTED), now)
        pauses.append(wake(effects) - now)
        now = wake(effects)
        (start,) = [e for e in binds.step(Tick(), now) if isinstance(e, StartAttempt)]
        patient.append(start.patient)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert patient == [True] + [False] * 7


def test_a_server_that_asks_to_be_left_alone_is():
    binds = queue()
    binds.step(RequestSeen(request()), 0.0)
    assert wake(binds.step(ended(BindVerdict.INTERRUPTED, delay=90.0), 0.0)) == 90.0


def test_a_request_that_is_gone_is_not_attempted_again():
    binds = queue()
    binds.step(RequestSeen(request(limit=3)), 0.0)
    binds.step(ended(BindVerdict.RETRY, delay=1.0), 0.0)
    binds.step(RequestGone(request()), 0.5)
    assert attempts(binds.step(Tick(), 5.0)) == []


def test_a_deleted_requests_pause_is_not_its_successors():
    binds = queue()
    binds.step(RequestSeen(request(limit=9)), 0.0)
    binds.step(ended(BindVerdict.RETRY, delay=1.0), 0.0)
    binds.step(RequestGone(request()), 0.5)
    failed = request(limit=9, status={"phase": "Failed", "failedAttempts": 3})
    assert wake(binds.step(RequestSeen(failed), 0.5)) is not None
    assert attempts(binds.step(Tick(), 1.0)) == []
    assert attempts(binds.step(Tick(), 4.5)) == ["p"]


def test_a_new_namesake_request_is_attempted_after_the_old():
    binds = queue()
    binds.step(RequestSeen(request()), 0.0)
    new = attrs.evolve(request(), metadata=attrs.evolve(request().metadata, uid="new"))
    assert attempts(binds.step(RequestSeen(new), 1.0)) == []
    assert attempts(binds.step(RequestSeen(new), 2.0)) == []
    assert attempts(binds.step(ended(BindVerdict.FAILED), 3.0)) == ["p"]


def test_an_end_that_nobody_waits_for_changes_nothing():
    binds = queue()
    assert binds.step(ended(BindVerdict.BOUND), 0.0) == ()
    assert binds.running == 0


def sharing(name="p", groups=("g1", "g2")):
    return structure_as(BindRequest, sharing_request(name, groups=groups))


def test_a_start_sweeps_everything_once():
    binds = queue()
    assert sweeps(binds.step(Started(), 0.0)) == [""]
    assert binds.step(SweepEnded("", succeeded=True), 1.0) == ()


def test_a_deleted_request_has_its_groups_swept():
    assert sweeps(queue().step(RequestGone(sharing()), 0.0)) == ["g1", "g2"]
    assert sweeps(queue().step(RequestGone(request()), 0.0)) == []


def test_a_pod_that_ended_has_its_groups_swept():
    alive = structure_as(Pod, pod(labels={"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"}, phase="Running"))
    assert sweeps(queue().step(PodSeen(alive, None), 0.0)) == ["a", "b"]
    assert sweeps(queue().step(PodSeen(alive, alive), 0.0)) == []


def test_what_an_attempt_left_behind_is_swept():
    binds = queue()
    binds.step(RequestSeen(sharing()), 0.0)
    assert sweeps(binds.step(ended(BindVerdict.FAILED, leftovers=("a label",)), 1.0)) == ["g1", "g2"]


def test_a_group_left_during_an_attempt_is_swept_afterwards():
    """The first sweep spares what the unfinished request still means to use."""
    binds = queue()
    binds.step(RequestSeen(sharing(groups=("g",))), 0.0)
    gone = structure_as(Pod, pod("p", labels={"runai-gpu-group": "g"}, phase="Running"))
    assert sweeps(binds.step(PodSeen(gone, None), 1.0)) == ["g"]
    assert sweeps(binds.step(SweepEnded("g", succeeded=True), 2.0)) == []
    assert sweeps(binds.step(ended(BindVerdict.BOUND), 3.0)) == ["g"]


def test_left_groups_are_remembered_only_while_requests_need_them():
    """Where a request is always unfinished, one that never succeeds or another one each time, no end forgets them."""
    binds = queue()
    binds.step(RequestSeen(sharing(groups=("g",))), 0.0)
    for number, group in enumerate(("g", *map(str, range(3000)))):
        gone = structure_as(Pod, pod(f"p{number}", labels={"runai-gpu-group": group}, phase="Running"))
        binds.step(PodSeen(gone, None), 1.0)
        binds.step(SweepEnded(group, succeeded=True), 1.0)
    assert len(binds._left) < 2000
    assert sweeps(binds.step(ended(BindVerdict.BOUND), 2.0)) == ["g"]


def test_a_sweep_that_failed_is_repeated_ever_later():
    binds = queue()
    binds.step(RequestGone(sharing(groups=("g",))), 0.0)
    assert wake(binds.step(SweepEnded("g", succeeded=False), 10.0)) == 11.0
    assert sweeps(binds.step(Tick(), 11.0)) == ["g"]
    assert wake(binds.step(SweepEnded("g", succeeded=False), 11.0)) == 13.0


def test_a_group_asked_for_meanwhile_is_swept_again():
    binds = queue()
    binds.step(RequestGone(sharing(groups=("g",))), 0.0)
    for now in (1.0, 2.0):
        assert sweeps(binds.step(RequestGone(sharing(groups=("g",))), now)) == []
    assert sweeps(binds.step(SweepEnded("g", succeeded=True), 3.0)) == ["g"]
    assert sweeps(binds.step(SweepEnded("g", succeeded=True), 4.0)) == []


def test_a_hurried_sweep_that_fails_rests_its_whole_pause():
    binds = queue()
    binds.step(RequestGone(sharing(groups=("g",))), 0.0)
    binds.step(SweepEnded("g", succeeded=False), 0.0)
    assert sweeps(binds.step(ServerBack(), 0.5)) == ["g"]
    assert wake(binds.step(SweepEnded("g", succeeded=False), 0.5)) == 2.5
    assert sweeps(binds.step(Tick(), 1.0)) == []
    assert sweeps(binds.step(Tick(), 2.5)) == ["g"]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["see", "gone", "end", "tick"]), st.sampled_from("abcd"), st.sampled_from(list(BindVerdict))
    ),
    max_size=40,
)


@given(EVENTS)
def test_concurrent_attempts_are_distinct_and_within_the_limit(events):
    binds = queue()
    running = set()
    for step, (kind, name, verdict) in enumerate(events):
        now = float(step)
        if kind == "end" and name not in running:
            continue
        event = {
            "see": RequestSeen(request(name, limit=9)),
            "gone": RequestGone(request(name)),
            "end": ended(verdict, name, delay=1.0),
            "tick": Tick(),
        }[kind]
        if kind == "end":
            running.discard(name)
        for started in attempts(binds.step(event, now)):
            assert started not in running
            running.add(started)
        assert len(running) == binds.running <= SETTINGS.concurrency
