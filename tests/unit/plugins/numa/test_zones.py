import attrs
import numpy as np

from kai.facts.model.axis import ResourceAxis
from kai.facts.model.pod import Node, Pod, Shape, Status
from kai.facts.state.snapshot import Snapshot
from kai.plugins.numa.zones import NumaLayout, NumaPlacement, NumaZone, amounts, read_layouts, recorded_placements

AXIS = ResourceAxis.of(["example.com/nic"])


def zone(name, cpu, left=None, **more):
    has = (("cpu", cpu), *more.items())
    return NumaZone(name=name, allocatable=has, available=(("cpu", cpu if left is None else left),))


LAYOUT = NumaLayout(zones=(zone("z0", 4000, 1000), zone("z1", 8000, 2000, gpu=1000)), policy="restricted", scope="pod")
SNAPSHOT = Snapshot(
    now=0.0,
    axis=AXIS,
    nodes=(Node(name="a"), Node(name="b"), Node(name="c")),
    pods=(Pod(name="p", namespace="n", uid="p", created=0.0),),
    shapes=(Shape(request=(("pods", 1),)),),
    pod_shape=np.zeros(1, np.int64),
    pod_group=np.full(1, -1),
    pod_subgroup=np.full(1, -1),
    pod_status=np.array([Status.RUNNING]),
    pod_node=np.array([1]),
    pod_reservation=np.zeros(1, np.bool_),
)
LAYOUTS = (None, LAYOUT, None)
RECORD = (("z1", (("cpu", 3000),)), ("z0", (("cpu", 1000), ("unknown", 7))))
PLACEMENTS = recorded_placements(SNAPSHOT, {0: RECORD}, LAYOUTS)


def test_zones_of_all_nodes_lie_behind_each_other():
    layouts = read_layouts(SNAPSHOT, LAYOUTS, frozenset(), None)
    assert list(layouts.zones.start) == [0, 0, 2, 2]
    assert list(layouts.zones.available[:, 0]) == [1000, 2000]
    assert list(layouts.zones.prefix[:, 0]) == [8000, 12000]
    assert layouts.widest == 2
    assert list(np.array(AXIS.names)[layouts.reported]) == ["cpu", "gpu"]


def test_what_is_ignored_is_not_aligned():
    layouts = read_layouts(SNAPSHOT, LAYOUTS, frozenset({"gpu"}), {})
    assert list(np.array(AXIS.names)[layouts.reported]) == ["cpu"]


def test_a_cluster_without_zones_has_no_layouts():
    assert read_layouts(SNAPSHOT, (None,) * 3, frozenset(), {}) is None


def test_records_are_read_in_the_order_of_the_zones():
    placement = PLACEMENTS[0]
    assert placement.zones == (0, 1)
    assert placement.names == ("z0", "z1")
    assert placement.shown_fields() == {"numaZones": [0, 1]}


def test_active_pods_on_record_draw_from_their_zones():
    assert list(read_layouts(SNAPSHOT, LAYOUTS, frozenset(), PLACEMENTS).zones.available[:, 0]) == [3000, 5000]
    leaving = attrs.evolve(SNAPSHOT, pod_status=np.array([Status.RELEASING]))
    assert list(read_layouts(leaving, LAYOUTS, frozenset(), PLACEMENTS).zones.available[:, 0]) == [4000, 8000]


def test_a_placement_and_its_cells_name_the_same_amounts():
    layouts = read_layouts(SNAPSHOT, LAYOUTS, frozenset(), {})
    drawn = np.zeros((2, len(AXIS)), np.int64)
    drawn[1, 0], drawn[1, 2] = 2000, 1000
    placement = layouts.placement(1, drawn, AXIS)
    assert placement == NumaPlacement(zones=(1,), names=("z1",), amounts=((("cpu", 2000), ("gpu", 1000)),))
    width = len(AXIS)
    assert layouts.cells(1, placement, AXIS) == {width: 2000, width + 2: 1000}
    assert layouts.placement(1, np.zeros_like(drawn), AXIS) == NumaPlacement()
    assert amounts(drawn[1], AXIS) == (("cpu", 2000), ("gpu", 1000))
