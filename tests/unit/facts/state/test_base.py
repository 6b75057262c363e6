import numpy as np
import pytest

from kai.facts.state.base import make_base
from kai.facts.state.ledger import Ledger
from kai.plugins.pool_maximum import PoolMaximum
from kai.plugins.scores import GpuSharing
from tests.unit.plugins.stage import node, play, pod, snapshot_of

MEMORY = {"nvidia.com/gpu.memory": "16000"}


def gpu_node(name, gpus):
    return node(name, MEMORY, allocatable={"nvidia.com/gpu": str(gpus)})


def sharing(name, devices, **parts):
    wanted = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": str(devices)}
    made = pod(name, **parts)
    made["metadata"]["annotations"] |= wanted
    return made


def width_of(*manifests):
    base = make_base(snapshot_of(*manifests))
    assert base.room().placement_slots.shape[1] == base.width
    return base.width


def test_placements_are_as_wide_as_the_largest_device_request():
    assert width_of(gpu_node("n1", 8), pod("a-0")) == 1
    assert width_of(gpu_node("n1", 8), sharing("a-0", 1), sharing("b-0", 3)) == 3


@pytest.mark.parametrize("devices", [17, 1024, 10**9])
def test_placements_are_bounded_by_the_largest_nodes_devices(devices):
    manifests = (gpu_node("n1", 2), gpu_node("n2", 8), sharing("a-0", devices))
    # Eight devices, each of which may be opened once more while it is being released.
    assert width_of(*manifests) == 16
    assert width_of(node("n1"), sharing("a-0", devices)) == 1
    assert width_of(sharing("a-0", devices)) == 1


def test_devices_that_a_pod_holds_have_their_place():
    groups = {f"runai-gpu-group/{name}": name for name in ("x", "y", "z")}
    assert width_of(gpu_node("n1", 1), sharing("a-0", 3, on="n1", labels=groups)) == 3


@pytest.mark.parametrize("devices", [9, 16, 17, 1024])
def test_an_oversized_device_request_hinders_no_other_pod(devices):
    manifests = (gpu_node("n1", 2), gpu_node("n2", 8), sharing("a-0", devices), sharing("b-0", 8))
    played = play(GpuSharing(), snapshot_of(*manifests))
    assert played.bound == {"b-0": "n2"}
    assert [(count, reason.subject) for count, reason in played.waiting_for("a").counts] == [(2, "gpu")]


def test_the_refusal_names_what_the_largest_node_has():
    played = play(PoolMaximum(), snapshot_of(gpu_node("n1", 8), sharing("a-0", 1024)))
    assert played.bound == {}
    text = str(played.session.records[0].reasons[0].facts)
    assert "requires GPU: 512" in text
    assert "Max GPU resources available in a single node in the default node-pool is topped at 8" in text


def test_a_memory_request_for_too_many_devices_is_refused():
    made = pod("a-0")
    made["metadata"]["annotations"] |= {"gpu-memory": "4000", "gpu-fraction-num-devices": "1024"}
    played = play(GpuSharing(), snapshot_of(gpu_node("n1", 8), made))
    assert played.bound == {}
    assert [(count, reason.subject) for count, reason in played.waiting_for("a").counts] == [(1, "gpu")]


def over(base, snapshot, opening, *, is_whole=True):
    """End a session that wrote past the journal, or did not write at all."""
    ledger = Ledger(base.layout, base.facts, opening.arena, opening.room)
    ledger.is_whole = is_whole
    base.leave(snapshot, ledger, opening.lacking)


def test_an_arena_is_reused_unless_a_view_remains():
    snapshot = snapshot_of(gpu_node("n1", 4), pod("a-0", on="n1"))
    base = make_base(snapshot)
    seen = base.open(snapshot)
    booked = seen.arena.tolist()
    over(base, snapshot, seen)
    other = base.open(snapshot)
    assert not np.shares_memory(seen.arena, other.arena)
    place = other.arena.ctypes.data
    other.arena[:] = 7
    over(base, snapshot, other, is_whole=False)
    del other
    again = base.open(snapshot).arena
    assert again.ctypes.data == place
    assert again.tolist() == booked
    assert not np.shares_memory(again, base.open(snapshot).arena)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("pods", [30, 40, 41])
def test_an_arena_serves_another_snapshot_of_any_size(pods, is_whole):
    def of(count):
        return snapshot_of(gpu_node("n1", 8), *(pod(f"a-{at}", on="n1") for at in range(count)))

    before, after = of(40), of(pods)
    first, second = make_base(before), make_base(after)
    expected = second.open(after).arena.tolist()
    used = first.open(before)
    used.arena[: first.layout.still] = 7
    used.arena.base[first.layout.size :] = 7
    if not is_whole:
        used.arena[:] = 7
    over(first, after, used, is_whole=is_whole)
    del used
    again = second.open(after).arena
    assert again.tolist() == expected
    assert not again[second.layout.still :].any()


def test_each_session_gets_its_own_equal_books():
    groups = {"runai-gpu-group/x": "x"}
    snapshot = snapshot_of(gpu_node("n1", 8), pod("a-0", on="n1"), sharing("b-0", 1, on="n1", labels=groups))
    base = make_base(snapshot)
    one, other = base.open(snapshot), base.open(snapshot)
    assert one.arena.tolist() == other.arena.tolist()
    assert one.columns.placement.tolist() == [0, 1]
    assert one.columns.placement_slots[1, 0] >= 0
    one.columns.arena[:] = 7
    assert not np.shares_memory(one.arena, other.arena)
    assert base.open(snapshot).arena.tolist() == other.arena.tolist()
