"""Caps on evictions: no cycle takes more than they say, and a cap that is never reached changes nothing."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.placement import Past
from kai.facts.model.pod import GpuKind
from kai.framework.decisions import Bind, Cause, Evict, Nominate, Recorder
from kai.framework.verdict import Code
from tests.properties.strategies import contended
from tests.properties.watch import PROFILE

CAPS = st.fixed_dictionaries(
    {
        "evicted_gpus_per_gpu": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "evicted_gpus_per_cycle": st.sampled_from([0.0, 1.0, 3.0]),
        "evicted_gpus_per_hour": st.sampled_from([0.0, 2.0, 4.0]),
        "queue_evicted_gpus_per_cycle": st.sampled_from([0.0, 1.0, 2.0]),
        "queue_evicted_gpus_per_hour": st.sampled_from([0.0, 2.0, 3.0]),
    }
)


def decided(snapshot, **parameters):
    using = attrs.evolve(PROFILE, parameters=attrs.evolve(PROFILE.parameters, **parameters))
    sink = Recorder()
    return run_cycle(snapshot, using, sink), sink.statements


def gpus_of(evicted):
    return sum(each.gpus for each in evicted) / GPU_UNIT


def requested(snapshot, pods):
    """Return the GPUs of pods that ask for whole ones."""
    # Of whole devices the amount says how many; `devices` counts those that are shared.
    return sum(dict(snapshot.shapes[int(snapshot.pod_shape[pod])].request).get("gpu", 0) for pod in pods) / GPU_UNIT


@given(contended(), CAPS, st.integers(0, 3000))
def test_no_cycle_takes_more_than_its_caps_say(snapshot, caps, before):
    names = [queue.name for queue in snapshot.queues]
    snapshot = attrs.evolve(snapshot, past=Past(evicted=((names[0], before),) if names and before else ()))
    report, statements = decided(snapshot, **caps)
    evicted = [each for statement in statements for each in statement if isinstance(each, Evict)]
    searched = [each for each in evicted if each.cause is not Cause.STALE]
    if not searched:
        return
    kept = {name: most or float("inf") for name, most in caps.items()}
    stale = gpus_of(evicted) - gpus_of(searched)
    assert gpus_of(searched) <= kept["evicted_gpus_per_cycle"] + stale
    # What is over already leaves no room, so what the cycle takes has to be within what was left.
    if gpus_of(searched) > 0:
        assert gpus_of(evicted) + before / GPU_UNIT <= kept["evicted_gpus_per_hour"] + stale
    for queue in names:
        mine = [each for each in searched if snapshot.groups[snapshot.pod_group[each.pod]].queue == queue]
        assert gpus_of(mine) <= kept["queue_evicted_gpus_per_cycle"] + stale
    for statement in statements:
        lost = gpus_of([each for each in statement if isinstance(each, Evict) and each.cause is not Cause.STALE])
        aggressors = {each.aggressor for each in statement if isinstance(each, Evict)}
        gained = [each.pod for each in statement if isinstance(each, Bind | Nominate)]
        gained = [pod for pod in gained if int(snapshot.pod_group[pod]) in aggressors]
        most = kept["evicted_gpus_per_gpu"]
        if lost and most < float("inf"):
            assert gained
            shapes = [snapshot.shapes[int(snapshot.pod_shape[pod])] for pod in gained]
            if all(each.gpu.kind is GpuKind.WHOLE for each in shapes):
                assert lost <= most * requested(snapshot, gained) + 1e-9
    told = {reason.code for record in report.records.values() for reason in record.reasons}
    assert Code.EVICTIONS_CAPPED not in told or any(caps.values())


@given(contended())
def test_caps_that_are_never_reached_change_nothing(snapshot):
    high = dict.fromkeys(
        (
            "evicted_gpus_per_gpu",
            "evicted_gpus_per_cycle",
            "evicted_gpus_per_hour",
            "queue_evicted_gpus_per_cycle",
            "queue_evicted_gpus_per_hour",
        ),
        1e6,
    )
    asked = snapshot.requests[snapshot.pod_shape]
    if (asked[:, 2] == 0).any():  # a group that gains no GPU is worth none
        high.pop("evicted_gpus_per_gpu")
    assert decided(snapshot, **high)[1] == decided(snapshot)[1]


@given(contended(), CAPS)
def test_shortcuts_keep_the_same_caps(snapshot, caps):
    assert decided(snapshot, shortcuts=False, **caps)[1] == decided(snapshot, **caps)[1]
