from kai.api.codec.structuring import structure_as
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, QueueStatus
from kai.roles.controllers.holdings import Sum
from kai.roles.controllers.queue_service import queue_totals, status_patch


def queue(name, parent="", **status):
    return structure_as(Queue, {"metadata": {"name": name}, "spec": {"parentQueue": parent}, "status": status})


def group(name, queue_name, **resources):
    manifest = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queue": queue_name},
        "status": {"resourcesStatus": resources},
    }
    return structure_as(PodGroup, manifest)


def totals_of(of, queues, groups):
    own = [each.status.resources_status for each in groups if each.spec.queue == of.metadata.name]
    return queue_totals(of, queues, Sum.of(*own))


def test_children_and_own_groups_are_added_up():
    parent = queue("p")
    queues = [
        queue("b", "p", allocated={"cpu": "1"}, requested={"cpu": "2"}),
        queue("a", "p", allocated={"memory": "1Gi"}, allocatedNonPreemptible={"memory": "1Gi"}),
        queue("grandchild", "a", allocated={"cpu": "100"}),
        parent,
    ]
    groups = [group("g", "p", allocated={"cpu": "500m"}), group("h", "b", allocated={"cpu": "100"})]
    assert totals_of(parent, queues, groups) == QueueStatus(
        child_queues=("a", "b"),
        allocated={"cpu": "1500m", "memory": "1Gi"},
        allocated_non_preemptible={"memory": "1Gi"},
        requested={"cpu": "2"},
    )


def test_a_queue_that_is_its_own_parent_counts_once():
    odd = queue("q", "q", allocated={"cpu": "1"})
    totals = totals_of(odd, [odd], [group("g", "q", allocated={"cpu": "1"})])
    assert totals.allocated == {"cpu": "1"}


def test_totals_of_queues_in_a_cycle_do_not_grow():
    names = {"a": "b", "b": "c", "c": "a"}
    queues = {name: queue(name, parent) for name, parent in names.items()}
    groups = [group("g", "a", allocated={"cpu": "1"})]
    for _ in range(6):
        for name, parent in names.items():
            totals = totals_of(queues[name], queues.values(), groups)
            queues[name] = queue(name, parent, allocated=totals.allocated)
    assert {name: dict(q.status.allocated) for name, q in queues.items()} == {"a": {"cpu": "1"}, "b": {}, "c": {}}


def test_a_leaf_below_a_cycle_counts_in_its_parent():
    queues = [queue("a", "b"), queue("b", "a"), queue("leaf", "a", allocated={"cpu": "2"})]
    assert totals_of(queues[0], queues, []).allocated == {"cpu": "2"}


def test_only_what_changed_is_written():
    before = queue("q", childQueues=["x"], allocated={"cpu": "1000m", "memory": "1"}, requested={"cpu": "1"})
    totals = QueueStatus(child_queues=(), allocated={"cpu": "1"}, requested={"cpu": "1"})
    assert status_patch(before, totals) == {
        "status": {"childQueues": None, "allocated": {"memory": None, "cpu": "1"}},
    }


def test_an_unchanged_queue_is_not_written():
    before = queue("q", childQueues=["x"], allocated={"cpu": "1000m"})
    assert status_patch(before, QueueStatus(child_queues=("x",), allocated={"cpu": "1"})) is None
