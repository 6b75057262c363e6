import numpy as np

from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.kernels import slots
from kai.framework.decisions import Recorder
from tests.unit.plugins.stage import node, pod, snapshot_of

UNTOUCHED = 77


def test_no_slot_is_written_beyond_the_given_width():
    made = pod("a-0")
    made["metadata"]["annotations"] |= {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"}
    labels = {"nvidia.com/gpu.memory": "16000"}
    snapshot = snapshot_of(node("n1", labels, allocatable={"nvidia.com/gpu": "8"}), made)
    session = Session(snapshot, Profile(actions=(), plugins=()), Recorder(), Silent())
    memory = np.full(8, UNTOUCHED, np.int64)

    def choose(width):
        chosen = memory[2 : 2 + width]
        return slots.choose_slots(session.facts, session.columns, session.policy.rules, 0, 0, False, chosen)

    assert choose(2) == slots.NO_ROOM
    assert memory.tolist() == [UNTOUCHED] * 2 + [-1] * 2 + [UNTOUCHED] * 4
    assert choose(4) == slots.IDLE
    assert memory.tolist() == [UNTOUCHED] * 2 + [0, 1, 2, -1] + [UNTOUCHED] * 2
