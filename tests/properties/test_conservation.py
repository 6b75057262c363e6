import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.axis import GPU
from kai.framework.decisions import Bind, Evict, Recorder
from tests.properties.strategies import SHARING, contended, fraction, memory, shape, snapshots, whole
from tests.properties.watch import Watch, no_queue_exceeds_its_limit, nothing_is_overcommitted, profile


@given(snapshots(groups=(2, 6)))
def test_nothing_is_overcommitted_at_any_point_of_any_statement(snapshot):
    Watch.of(snapshot, profile(), laws=(nothing_is_overcommitted,)).run()


@given(contended())
def test_nothing_is_overcommitted_while_queues_fight_for_devices(snapshot):
    Watch.of(snapshot, profile(), laws=(nothing_is_overcommitted,)).run()


@given(contended(nodes=(1, 2), groups=(3, 6), pods=6, shapes=(*SHARING, *SHARING, shape(gpu=whole()))))
def test_concurrent_gpu_shares_never_overfill_a_device(snapshot):
    Watch.of(snapshot, profile(shortcuts=True), laws=(nothing_is_overcommitted,)).run()


@given(snapshots(groups=(2, 6)))
def test_no_queue_exceeds_its_limit_within_any_statement(snapshot):
    Watch.of(snapshot, profile(), laws=(no_queue_exceeds_its_limit,)).run()


@given(snapshots(groups=(2, 6)), st.booleans())
def test_idle_used_and_promised_sum_to_allocatable(snapshot, shortcuts):
    watch = Watch.of(snapshot, profile(shortcuts=shortcuts))
    watch.run()
    facts, columns = watch.session.facts, watch.session.columns
    promised = np.zeros_like(columns.idle)
    waiting = np.flatnonzero(columns.status == 3)
    np.add.at(promised, columns.node[waiting], facts.shapes.request[facts.pods.shape[waiting]])
    promised[facts.nodes.allocatable == 0] = 0
    total, offered = columns.idle + columns.used - promised, facts.nodes.allocatable.copy()
    total[:, GPU] = offered[:, GPU] = 0
    assert np.array_equal(total, offered)


@given(contended())
def test_no_pod_is_evicted_twice_or_on_a_promise(snapshot):
    sink = Recorder()
    run_cycle(snapshot, profile(shortcuts=True), sink)
    evicted = [each.pod for each in sink.decisions if isinstance(each, Evict)]
    assert len(evicted) == len(set(evicted))
    bound = {each.pod for each in sink.decisions if isinstance(each, Bind)}
    assert all(snapshot.pod_node[pod] >= 0 or pod in bound for pod in evicted)


def test_forty_tenths_fill_four_devices_and_no_fifth():
    from kai.testing import snapshot as cluster

    crowd = {"members": 60, "minimum": 0, "each": {"fraction": 0.1}}
    watch = Watch.of(cluster(nodes={"n": {"gpu": 4, "gpu_memory": 16000}}, groups={"crowd": crowd}), profile())
    report = watch.run()
    assert report.counts["binds"] == 40
    devices = [names for pod, names in sorted(report.devices.items())]
    assert sorted(devices.count(each) for each in set(devices)) == [10, 10, 10, 10]


UNEVEN = (fraction(0.33), fraction(0.34), memory(5001), memory(4999, devices=2), fraction(0.67), fraction(1.0))


@given(contended(nodes=(1, 1), groups=(2, 6), pods=5, shapes=tuple(shape(gpu=each) for each in UNEVEN)))
def test_uneven_gpu_shares_never_overfill_a_device(snapshot):
    Watch.of(snapshot, profile(), laws=(nothing_is_overcommitted,)).run()
