import attrs
import pytest

from kai.api.conventions.binding import Grant
from kai.facts.model.pod import GpuKind
from kai.intake import Intake, IntakeSettings, take_snapshot
from tests.unit.intake.making import NOW, group, node, objects, picture, pod, queue, taken

QUEUES = (queue("q"), queue("r"))
EARLY = "1970-01-10T00:00:00Z"
LATE = "1970-01-11T00:00:00Z"


def bound(name="a", bound_at=EARLY, phase="Running", grant=None, **fields):
    """Make a pod that was bound with a grant; what else it says was edited since."""
    grant = Grant(queue="q", group="g") if grant is None else grant
    annotations = {**fields.pop("annotations", {}), "kai.scheduler/granted": grant.text}
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound_at}]}
    fields = {"group": "g", "node": "n", **fields}
    return pod(name, phase=phase, annotations=annotations, status=status, **fields)


def queue_of(snapshot):
    (made,) = snapshot.groups
    assert snapshot.queues[made.queue_row].name == made.queue
    return made.queue


def in_pool(name):
    return {"labels": {"kai.scheduler/node-pool": name}}


def test_a_group_stays_in_its_running_pods_granted_queue():
    moved = group("g", queue="r")
    assert queue_of(taken(bound(), moved, node("n"), *QUEUES)) == "q"
    assert queue_of(taken(pod("a", group="g", phase="Running", node="n"), moved, node("n"), *QUEUES)) == "r"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_group_whose_pods_ended_may_change_queue(phase):
    assert queue_of(taken(bound(phase=phase), group("g", queue="r"), node("n"), *QUEUES)) == "r"


def test_new_pods_follow_the_granted_queue_of_running_ones():
    snapshot = taken(bound(), pod("b", group="g"), group("g", queue="r"), node("n"), *QUEUES)
    assert queue_of(snapshot) == "q"
    assert snapshot.pod_group.tolist() == [0, 0]


def test_a_pool_label_moves_no_group_with_running_pods():
    edited = bound(labels={"kai.scheduler/node-pool": "elsewhere"})
    snapshot = taken(edited, group("g", metadata=in_pool("elsewhere")), node("n"), *QUEUES)
    assert queue_of(snapshot) == "q"
    assert snapshot.groups[0].node_pool == snapshot.pods[0].node_pool == ""
    assert snapshot.pod_group.tolist() == [0]


def test_another_pools_scheduler_ignores_a_group_granted_elsewhere():
    edited, settings = bound(), {"node_pool": "elsewhere"}
    assert taken(edited, group("g", metadata=in_pool("elsewhere")), **settings).groups == ()
    granted = bound(grant=Grant(queue="q", pool="elsewhere", group="g"))
    assert queue_of(taken(granted, group("g"), queue("q", metadata=in_pool("elsewhere")), **settings)) == "q"


def test_pools_mean_nothing_where_no_label_divides():
    granted = bound(grant=Grant(queue="q", pool="p", group="g"))
    assert queue_of(taken(granted, group("g"), node("n"), *QUEUES, node_pool_label="")) == "q"


def test_a_pod_stays_in_the_group_it_was_granted():
    snapshot = taken(bound(group="h"), group("g"), group("h"), node("n"), *QUEUES)
    assert snapshot.groups[snapshot.pod_group[0]].name == "g"
    assert snapshot.pods[0].group == "g"


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_among_differing_grants_the_first_bound_pod_decides(first, second):
    early = bound(first, EARLY, grant=Grant(queue="q", group="g"))
    late = bound(second, LATE, grant=Grant(queue="r", group="g"))
    assert queue_of(taken(late, early, group("g", queue="r"), node("n"), *QUEUES)) == "q"


def test_among_pods_bound_together_the_first_name_decides():
    pods = [bound(name, grant=Grant(queue=queue_, group="g")) for name, queue_ in (("b", "r"), ("a", "q"))]
    assert queue_of(taken(*pods, group("g", queue="r"), node("n"), *QUEUES)) == "q"


def test_a_running_pods_share_is_its_granted_portion():
    grant = Grant(queue="q", group="g", gpus=("d",), portion=0.9)
    snapshot = taken(bound(grant=grant, annotations={"gpu-fraction": "0.1"}), group("g"), node("n"), *QUEUES)
    assert snapshot.shapes[snapshot.pod_shape[0]].gpu.portion == 0.9
    assert snapshot.pod_devices == {0: ("d",)}


def test_a_memory_share_on_two_devices_follows_its_grant():
    grant = Grant(queue="q", group="g", gpus=("e", "d"), memory=4096)
    edited = bound(grant=grant, annotations={"gpu-memory": "1"}, labels={"runai-gpu-group": "f"})
    snapshot = taken(edited, group("g"), node("n"), *QUEUES)
    share = snapshot.shapes[snapshot.pod_shape[0]].gpu
    assert (share.kind, share.memory, share.devices) == (GpuKind.MEMORY, 4096, 2)
    assert snapshot.pod_devices == {0: ("d", "e")}


def test_an_annotation_makes_no_share_of_whole_devices():
    edited = bound(requests={"nvidia.com/gpu": "8"}, annotations={"gpu-fraction": "0.1", "nvidia.com/mig-1g.5gb": "1"})
    snapshot = taken(edited, group("g"), node("n"), *QUEUES)
    share = snapshot.shapes[snapshot.pod_shape[0]].gpu
    assert (share.kind, share.legacy_mig) == (GpuKind.WHOLE, False)


@pytest.mark.parametrize("said", [{"gpu-fraction": "0.01"}, {"gpu-memory": "1"}, {"nvidia.com/mig-1g.5gb": "0"}])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_on_its_node_holds_whole_requested_devices(said, where):
    """Its kubelet gives it these; a share or slices in an annotation would let them look idle."""
    asking = {"name": "x", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    squatter = pod("p", node="n", phase="Running", annotations=said, spec={where: [asking]})
    snapshot = taken(squatter, node("n"), *QUEUES)
    shape = snapshot.shapes[snapshot.pod_shape[0]]
    assert (shape.gpu.kind, dict(shape.request)["gpu"]) == (GpuKind.WHOLE, 2000)


def test_a_grant_without_share_leaves_it_to_annotations():
    grant = Grant(gpus=("d",))  # of a bind request that another scheduler wrote
    snapshot = taken(bound(grant=grant, annotations={"gpu-fraction": "0.5"}), group("g"), node("n"), *QUEUES)
    assert snapshot.shapes[snapshot.pod_shape[0]].gpu.portion == 0.5
    assert snapshot.pod_devices == {0: ("d",)}


def test_an_unreadable_grant_is_none():
    edited = pod("a", group="g", phase="Running", node="n", annotations={"kai.scheduler/granted": "{"})
    assert queue_of(taken(edited, group("g", queue="r"), node("n"), *QUEUES)) == "r"


def test_groups_follow_their_pods_from_snapshot_to_snapshot():
    others = [group(f"g{number}") for number in range(5)]
    said, moved = group("g"), group("g", queue="r")
    granted = bound()
    intake, made = Intake(), {}
    for pods, mine in [((granted,), said), ((granted,), moved), ((granted,), moved), ((), moved), ((granted,), moved)]:
        taken_of = objects(*pods, mine, *others, node("n"), *QUEUES)
        # What did not change is the same object again, as it is with a watch.
        groups = tuple([made.setdefault(repr(attrs.astuple(each)), each) for each in taken_of.pod_groups])
        taken_of = attrs.evolve(taken_of, pod_groups=groups)
        snapshot = intake.take(taken_of, NOW)
        assert picture(snapshot) == picture(take_snapshot(taken_of, NOW, IntakeSettings()))
        assert snapshot.groups[0].queue == ("q" if pods or mine is said else "r")


BEFORE, AFTER = "1970-01-09T00:00:00Z", "1970-01-12T00:00:00Z"


def waits(name, created=BEFORE, **fields):
    return pod(name, group="g", metadata={"creationTimestamp": created}, **fields)


def ended(name, bound_at=EARLY, **fields):
    return bound(name, bound_at, phase="Succeeded", metadata={"creationTimestamp": BEFORE}, **fields)


def least(snapshot):
    """Return how many pods each leaf of the only group needs."""
    (made,) = snapshot.groups
    return [each.minimum for each in made.subgroups if each.leaf]


def in_part(name):
    return {"labels": {"kai.scheduler/subgroup-name": name}}


GANG = group("g", minMember=4)
TREE = group("g", subGroups=[{"name": "launcher", "minMember": 1}, {"name": "workers", "minMember": 3}])


def test_succeeded_pods_lower_the_minimum_of_their_gang():
    assert least(taken(ended("a"), ended("b"), waits("c"), waits("d"), GANG, node("n"), *QUEUES)) == [2]


def test_members_that_run_count_among_those_that_are_left():
    assert least(taken(ended("a"), ended("b"), bound("c"), waits("d"), GANG, node("n"), *QUEUES)) == [2]


def test_a_gang_with_too_few_pods_keeps_its_minimum():
    assert least(taken(ended("a"), waits("c"), waits("d"), GANG, node("n"), *QUEUES)) == [4]


def test_a_new_round_of_pods_keeps_the_whole_minimum():
    round_ = [waits(name, AFTER) for name in "efg"]
    assert least(taken(*map(ended, "abcd"), *round_, GANG, node("n"), *QUEUES)) == [4]


def test_without_bind_times_the_creation_times_decide():
    untold = [pod(name, group="g", phase="Succeeded", metadata={"creationTimestamp": BEFORE}) for name in "abc"]
    assert least(taken(*untold, waits("d"), waits("e"), GANG, node("n"), *QUEUES)) == [2]
    assert least(taken(*untold, waits("d", AFTER), waits("e", AFTER), GANG, node("n"), *QUEUES)) == [4]


def test_a_recreated_member_completes_a_gang_of_succeeded_pods():
    assert least(taken(*map(ended, "abc"), waits("d", AFTER), GANG, node("n"), *QUEUES)) == [1]
    assert least(taken(*map(ended, "ab"), waits("d", AFTER), GANG, node("n"), *QUEUES)) == [4]


def test_a_pod_that_failed_makes_up_no_gang():
    failed = bound("b", phase="Failed", metadata={"creationTimestamp": BEFORE})
    assert least(taken(ended("a"), failed, waits("c"), waits("d"), GANG, node("n"), *QUEUES)) == [4]


def test_a_leaving_pod_counts_until_its_owner_replaces_it():
    leaving = bound("c", metadata={"creationTimestamp": BEFORE, "deletionTimestamp": LATE})
    assert least(taken(ended("a"), ended("b"), leaving, waits("d"), GANG, node("n"), *QUEUES)) == [4]


def test_a_minimum_already_lowered_by_its_owner_is_kept():
    told = group("g", minMember=2)
    assert least(taken(ended("a"), ended("b"), waits("c"), waits("d"), told, node("n"), *QUEUES)) == [2]


def test_a_gang_without_waiting_pods_keeps_its_minimum():
    assert least(taken(ended("a"), ended("b"), bound("c"), bound("d"), GANG, node("n"), *QUEUES)) == [4]


def test_each_sub_group_needs_what_is_left_of_it():
    parts = [ended("a", **in_part("launcher")), ended("b", **in_part("workers"))]
    left = [waits(name, **in_part("workers")) for name in "cd"]
    assert least(taken(*parts, *left, TREE, node("n"), *QUEUES)) == [0, 2]


def test_an_edited_gang_keeps_its_queue_and_remaining_minimum():
    edited = group("g", minMember=4, queue="r")
    snapshot = taken(ended("a"), ended("b"), bound("c"), waits("d"), edited, node("n"), *QUEUES)
    assert (queue_of(snapshot), least(snapshot)) == ("q", [2])


def test_gangs_follow_those_that_succeed_from_snapshot_to_snapshot():
    running, done, left = [bound("a"), bound("b")], [ended("a"), ended("b")], [waits("c"), waits("d")]
    intake, made, seen = Intake(), {}, []
    for pods in ([*running, *left], [*done, *left], done, [*done, *left, waits("e")], left, [*done, *left]):
        taken_of = objects(*pods, GANG, group("h"), node("n"), *QUEUES)
        groups = tuple([made.setdefault(repr(attrs.astuple(each)), each) for each in taken_of.pod_groups])
        taken_of = attrs.evolve(taken_of, pod_groups=groups)
        snapshot = intake.take(taken_of, NOW)
        assert picture(snapshot) == picture(take_snapshot(taken_of, NOW, IntakeSettings()))
        seen.append(snapshot.groups[0].subgroups[-1].minimum)
    assert seen == [4, 2, 4, 3, 4, 2]
