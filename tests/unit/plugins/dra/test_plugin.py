import attrs

from kai.plugins.dra import Dra
from tests.unit.plugins.dra.manifests import CLASS, NODE, claim, claiming, device_class, exactly, offer
from tests.unit.plugins.stage import Stage, play, pod, snapshot_of

SNAPSHOT = snapshot_of(NODE, CLASS, offer("n1", "d0"), claim("c"), claiming("a-0", "c"))


def test_the_plugin_has_no_options():
    assert [field.name for field in attrs.fields(Dra) if field.init] == []


def test_devices_are_read_once_while_slices_and_nodes_stay():
    plugin = Dra()
    Stage.of(plugin, SNAPSHOT)
    first = plugin._memory.inventory
    Stage.of(plugin, attrs.evolve(SNAPSHOT, now=SNAPSHOT.now + 1))
    assert plugin._memory.inventory is first
    Stage.of(plugin, attrs.evolve(SNAPSHOT, nodes=(attrs.evolve(SNAPSHOT.nodes[0]),)))
    assert plugin._memory.inventory is not first


def test_a_second_cycle_decides_as_a_first_one():
    plugin = Dra()
    assert play(plugin, SNAPSHOT).bound == play(plugin, SNAPSHOT).bound == play(Dra(), SNAPSHOT).bound == {"a-0": "n1"}


def test_a_backing_class_concerns_only_pods_requesting_the_resource():
    backed = device_class(extended="example.com/fast")
    stage = Stage.of(Dra(), snapshot_of(NODE, backed, pod("a-0", requests={"example.com/fast": "1"}), pod("b-0")))
    assert stage.is_concerned("a-0")
    assert not stage.is_concerned("b-0")
    assert Stage.of(Dra(), snapshot_of(NODE, CLASS, pod("a-0", requests={"example.com/fast": "1"}))).is_silent


def test_pods_of_one_cycle_get_distinct_devices():
    claims = [claim(f"c{at}", exactly(count=2)) for at in range(3)]
    pods = [claiming(f"a{at}-0", f"c{at}") for at in range(3)]
    played = play(Dra(), snapshot_of(NODE, CLASS, offer("n1", *(f"d{at}" for at in range(5))), *claims, *pods))
    assert played.bound == {"a0-0": "n1", "a1-0": "n1"}
    held = [details["claims"].devices() for details in played.session.details.of_pods().values()]
    names = [each.device for devices in held for each in devices]
    assert sorted(names) == ["d0", "d1", "d2", "d3"]
    refusals = played.waiting_for("a2")
    assert refusals.counts
