from kai.deciding.configuration.profiles import make_profile
from kai.deciding.engine.cycle import explained_order, waiting_order
from kai.intake import take_snapshot
from kai.lab.sources.loading import read_case


def test_an_explained_order_has_a_named_key_per_plugin():
    case = read_case("examples/lab")
    snapshot, profile = take_snapshot(case.objects, case.now, case.settings), make_profile(case.configuration, None)
    order = explained_order(snapshot, profile)
    assert order.groups == waiting_order(snapshot, profile)
    assert order.names == ("priority", "elastic")
    assert order.keys.shape == (len(snapshot.groups), 2)
    priorities = [snapshot.groups[row].priority for row in order.groups]
    assert [-key for key in order.keys[list(order.groups), 0]] == priorities
