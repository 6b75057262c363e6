import pytest

from kai.basics import parsing
from kai.basics.errors import InputError
from kai.cli.demonstrating.scenes import FOLDER, NAMES, scene_named
from kai.lab.virtual.running.simulation import run


def ran(name):
    scene = scene_named(name)
    return run(scene.load(0).scene, until=parsing.seconds(scene.until))


def lines(name):
    return [(at, text) for at, _, text in ran(name).first]


def test_every_folder_is_a_scene():
    assert {each.name for each in FOLDER.iterdir()} == set(NAMES)


def test_an_unknown_scene_is_refused_with_the_known_scenes():
    with pytest.raises(InputError, match=r"SCENE: found .*moon.*, expected one of lab, gang"):
        scene_named("moon")


@pytest.mark.parametrize("name", NAMES)
def test_each_scene_names_what_to_watch_and_lints_clean(name):
    scene = scene_named(name)
    assert scene.title
    assert scene.watch.endswith(".")
    assert scene.load(0).findings == ()


def test_a_gang_waits_for_all_nodes_while_others_pass():
    starts = {text.split()[1]: at for at, text in lines("gang") if text.startswith("bind")}
    assert {at for pod, at in starts.items() if "wide" in pod} == {2400.0}
    assert starts["default/narrow-worker-0"] == 600.0


def test_fractions_fill_one_node_before_the_next():
    placed = [text.split()[1:] for at, text in lines("fraction") if at <= 300.0]
    assert {node for _, node in placed} == {"gpu-1"}
    assert len(placed) == 8


def test_the_required_rack_waits_for_one_rack():
    near = [(at, text.split()[2]) for at, text in lines("topology") if "/near-" in text]
    assert sorted(near) == [(1500.0, "a-1"), (1500.0, "a-2")]


def test_what_is_lent_is_taken_back():
    found = lines("reclaim")
    evicted = [(at, text) for at, text in found if text.startswith("evict")]
    assert [at for at, _ in evicted] == [900.0, 900.0, 1200.0]
    assert all("reclaim default/red-" in text for _, text in evicted)
