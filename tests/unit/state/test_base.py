import numpy as np
import pytest

from kai.plugins.gpusharing import GpuSharing
from kai.plugins.pool_maximum import PoolMaximum
from kai.state.base import make_base
from kai.state.memory import Memory
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


def test_placements_are_as_wide_as_the_most_devices_that_a_pod_asks_for():
    assert width_of(gpu_node("n1", 8), pod("a-0")) == 1
    assert width_of(gpu_node("n1", 8), sharing("a-0", 1), sharing("b-0", 3)) == 3


@pytest.mark.parametrize("devices", [17, 1024, 10**9])
def test_placements_are_never_wider_than_the_largest_node_has_room_for(devices):
    manifests = (gpu_node("n1", 2), gpu_node("n2", 8), sharing("a-0", devices))
    # Eight devices, each of which may be opened once more while it is being released.
    assert width_of(*manifests) == 16
    assert width_of(node("n1"), sharing("a-0", devices)) == 1
    assert width_of(sharing("a-0", devices)) == 1


def test_devices_that_a_pod_holds_have_their_place():
    groups = {f"runai-gpu-group/{name}": name for name in ("x", "y", "z")}
    assert width_of(gpu_node("n1", 1), sharing("a-0", 3, on="n1", labels=groups)) == 3


@pytest.mark.parametrize("devices", [9, 16, 17, 1024])
def test_a_pod_that_asks_for_more_devices_than_any_node_has_is_refused_and_others_are_placed(devices):
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


def test_a_request_by_memory_for_more_devices_than_any_node_has_is_refused():
    made = pod("a-0")
    made["metadata"]["annotations"] |= {"gpu-memory": "4000", "gpu-fraction-num-devices": "1024"}
    played = play(GpuSharing(), snapshot_of(gpu_node("n1", 8), made))
    assert played.bound == {}
    assert [(count, reason.subject) for count, reason in played.waiting_for("a").counts] == [(1, "gpu")]


def test_the_arena_of_a_session_that_is_over_serves_the_next_one_unless_somebody_looks_at_it():
    base, memory = make_base(snapshot_of(gpu_node("n1", 4))), Memory()
    seen = base.fresh_arena(memory)
    base.leave_arena(seen, memory)
    other = base.fresh_arena(memory)
    assert not np.shares_memory(seen, other)
    place = other.ctypes.data
    other[:] = 7
    base.leave_arena(other, memory)
    del other
    again = base.fresh_arena(memory)
    assert again.ctypes.data == place
    assert np.array_equal(again[: base.layout.still], base.arena)
    assert not np.shares_memory(again, base.fresh_arena(memory))


def test_what_a_session_begins_with_none_of_is_zero_in_memory_that_was_used_before():
    base, memory = make_base(snapshot_of(gpu_node("n1", 8), pod("a-0", on="n1"))), Memory()
    used = base.fresh_arena(memory)
    used[:] = 7
    base.leave_arena(used, memory)
    del used
    again = base.fresh_arena(memory)
    assert again[: base.layout.still].tolist() == base.arena.tolist()
    assert not again[base.layout.still :].any()
    assert base.arena.any()


@pytest.mark.parametrize("pods", [30, 40, 41])
def test_what_a_session_left_zero_is_zero_in_the_next_one_however_large_that_is(pods):
    def of(count):
        return make_base(snapshot_of(gpu_node("n1", 8), *(pod(f"a-{at}", on="n1") for at in range(count))))

    memory, before, after = Memory(), of(40), of(pods)
    used = before.fresh_arena(memory)
    used[: before.layout.still] = 7
    used.base[before.layout.size :] = 7
    before.leave_arena(used, memory, (before.layout.still, before.layout.size))
    del used
    again = after.fresh_arena(memory)
    assert again[: after.layout.still].tolist() == after.arena.tolist()
    assert not again[after.layout.still :].any()


def test_bases_share_the_zeros_of_columns_that_no_session_has_anything_in_yet():
    snapshot = snapshot_of(gpu_node("n1", 8), pod("a-0", on="n1"))
    one, other = make_base(snapshot), make_base(snapshot)
    assert len(one.arena) == one.layout.still < one.layout.size
    assert np.shares_memory(one.booked.left, other.booked.left)
    assert one.booked.left.shape == (1, 3)
    assert not any(column.any() for column in (one.booked.virtual, one.booked.evicted_status, one.booked.left))
    assert not np.shares_memory(one.booked.status, other.booked.status)
