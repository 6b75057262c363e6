import attrs

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import Condition
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.roles.controllers.queue_tree import QueueFinding, conditions_after, tree_findings


def queue(name, parent="", quota=None, allocated=None):
    spec = {"parentQueue": parent}
    if quota is not None:
        spec["resources"] = {kind: {"quota": amount, "limit": -1} for kind, amount in quota.items()}
        for kind in ("gpu", "cpu", "memory"):
            spec["resources"].setdefault(kind, {"quota": -1, "limit": -1})
    return structure_as(Queue, {"metadata": {"name": name}, "spec": spec, "status": {"allocated": allocated or {}}})


def group(name, queue_name):
    return structure_as(PodGroup, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": queue_name}})


def types(queues, groups=()):
    return {name: [finding.type for finding in found] for name, found in tree_findings(queues, groups).items()}


def message(queues, name, groups=()):
    return tree_findings(queues, groups)[name][0].message


def test_a_sound_tree_has_no_findings():
    quota = {"gpu": 4, "cpu": 1, "memory": 1}
    queues = [queue("p", quota=quota), queue("a", "p", quota=quota, allocated={"nvidia.com/gpu": "4"})]
    assert tree_findings(queues, [group("g", "a")]) == {}


def test_a_queue_with_a_missing_parent_is_an_orphan():
    assert types([queue("a", "gone")]) == {"a": ["Orphan"]}
    assert message([queue("a", "gone")], "a") == "parent queue gone does not exist"


def test_queues_on_and_below_a_cycle_report_it():
    queues = [
        queue("a", "c"),
        queue("b", "a"),
        queue("c", "b"),
        queue("below", "b"),
        queue("self", "self"),
        queue("ok"),
    ]
    assert types(queues) == {name: ["Cycle"] for name in ("a", "b", "c", "below", "self")}
    assert message(queues, "below") == "parents lead in a circle: a -> c -> b -> a"
    assert message(queues, "self") == "parents lead in a circle: self -> self"


def test_queues_more_than_31_deep_report_it():
    queues = [queue(f"q{i}", f"q{i - 1}" if i else "") for i in range(10_000)]
    assert types(queues) == {f"q{i}": ["TooDeep"] for i in range(32, 10_000)}
    assert message(queues, "q32") == "has 32 queues above it, at most 31 may be: nothing here is scheduled"


def test_a_queue_over_its_quota_reports_the_amounts():
    queues = [
        queue(
            "q",
            quota={"gpu": 1, "cpu": 1000, "memory": 1},
            allocated={"nvidia.com/gpu": "1500m", "cpu": "2", "memory": "1M"},
        )
    ]
    assert types(queues) == {"q": ["OverQuota"]}
    assert message(queues, "q") == "holds 1.5 of 1 GPUs, 2000 of 1000 millicores"


def test_an_unlimited_quota_is_never_exceeded():
    queues = [
        queue("q", quota={}, allocated={"nvidia.com/gpu": "1000"}),
        queue("child", "q", quota={"gpu": 50}),
    ]
    assert types(queues) == {}


def test_children_with_more_quota_than_their_parent_overcommit_it():
    finite = {"cpu": 0, "memory": 0}
    queues = [
        queue("p", quota={"gpu": 4}),
        queue("a", "p", quota={"gpu": 3, **finite}),
        queue("b", "p", quota={"gpu": 2, **finite}),
    ]
    assert types(queues) == {"p": ["QuotaOvercommitted"]}
    assert message(queues, "p") == "quotas of its children add up to 5 of 4 GPUs"
    unlimited = [queue("p", quota={"gpu": 4}), queue("a", "p", quota={})]
    assert message(unlimited, "p") == "quotas of its children add up to unlimited of 4 GPUs"


def limited(name, **resources):
    return structure_as(Queue, {"metadata": {"name": name}, "spec": {"resources": resources}})


def test_limits_below_the_quotas_are_listed():
    own = limited("q", gpu={"quota": 4, "limit": 2}, cpu={"quota": 1000}, memory={"quota": -1, "limit": -1})
    assert types([own]) == {"q": ["LimitBelowQuota"]}
    told = "limits are below the quotas: at most 2 of 4 GPUs, 0 of 1000 millicores; a limit that is absent is 0"
    assert message([own], "q") == told


def test_a_gpu_queue_without_cpu_and_memory_reports_it():
    own = limited("q", gpu={"quota": 4, "limit": -1})
    assert types([own]) == {"q": ["NoComputeResources"]}
    told = "has no cpu and memory: nothing that asks for it starts; a resource that is absent is a limit of 0"
    assert message([own], "q") == told


def test_pod_groups_on_a_queue_with_children_are_listed():
    queues = [queue("p"), queue("a", "p")]
    groups = [group(f"g{i}", "p") for i in range(7)]
    assert types(queues, groups) == {"p": ["NotALeaf"]}
    assert message(queues, "p", groups).endswith("ns/g0, ns/g1, ns/g2, ns/g3, ns/g4, and 2 more")


def test_a_queue_that_is_being_deleted_says_so():
    going = attrs.evolve(queue("a", "p"), metadata=attrs.evolve(queue("a").metadata, deletion_timestamp=1e9))
    assert types([queue("p"), going]) == {"a": ["Terminating"]}
    assert message([queue("p"), going], "a").startswith("is being deleted: its jobs start until it is gone")


def test_the_order_of_queues_changes_nothing():
    queues = [queue("a", "b"), queue("b", "c"), queue("c", "a"), queue("d", "x")]
    assert tree_findings(queues, []) == tree_findings(queues[::-1], [])


FINDING = QueueFinding(type="Orphan", reason="ParentNotFound", message="parent queue x does not exist")


def test_a_new_finding_becomes_a_true_condition():
    (condition,) = conditions_after((), [FINDING], now=10.0)
    assert (condition.type, condition.status, condition.last_transition_time) == ("Orphan", "True", 10.0)


def test_a_lasting_finding_keeps_its_time_and_writes_nothing():
    before = conditions_after((), [FINDING], now=10.0)
    assert conditions_after(before, [FINDING], now=20.0) is before


def test_a_finding_that_is_gone_turns_false_once():
    before = conditions_after((), [FINDING], now=10.0)
    after = conditions_after(before, [], now=20.0)
    assert (after[0].status, after[0].reason, after[0].last_transition_time) == ("False", "Resolved", 20.0)
    assert conditions_after(after, [], now=30.0) is after


def test_a_finding_that_comes_back_gets_a_new_time():
    before = conditions_after(conditions_after((), [FINDING], now=1.0), [], now=2.0)
    assert conditions_after(before, [FINDING], now=3.0)[0].last_transition_time == 3.0


def test_conditions_of_others_stay():
    foreign = Condition(type="Custom", status="True", message="mine")
    assert conditions_after((foreign,), [], now=1.0) == (foreign,)
