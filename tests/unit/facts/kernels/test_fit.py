from kai.facts.kernels.fit import SHORT_OF, shortage
from kai.facts.model.axis import GPU
from kai.testing import node_row, pod_row, snapshot
from kai.testing.views import open_session


def test_shared_devices_do_not_offset_promises_beyond_idle_gpus():
    large = {"each": {"fraction": 0.75}, "runs_on": "n"}
    groups = {
        "left": large,
        "right": large,
        "leaves": {"each": {"gpu": 1}, "runs_on": "n", "leaving": 1},
        "waits": {"each": {"gpu": 1}},
        "part": {"each": {"fraction": 0.25}},
    }
    session = open_session(snapshot({"n": {"gpu": 3, "gpu_memory": 16000}}, groups))
    node, waits = node_row(session.view, "n"), pod_row(session.view, "waits-0")
    shape = session.view.shape_of(pod_row(session.view, "part-0"))

    def short(*, idle_only):
        return shortage(session.facts, session.columns, shape, node, idle_only)

    assert not short(idle_only=True)
    session.ledger.pipeline(waits, node, 0, keep=False)
    session.ledger.evict(waits)
    # The device that is leaving is now counted twice: released by the pod that has it and by the one it was promised.
    assert session.columns.idle[node, GPU] == -1000
    assert session.columns.releasing[node, GPU] == 2000
    assert short(idle_only=True) == SHORT_OF + GPU
    assert not short(idle_only=False)
