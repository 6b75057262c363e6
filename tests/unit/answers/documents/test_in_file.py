"""What a file should say for a change."""

import attrs

from kai.answers.documents.in_file import in_file
from kai.answers.outcomes.job_lines import Owner
from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all

JOB = Owner("Job", "train", "u")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "a", "uid": "p"},
    "spec": {
        "nodeSelector": {"model": "H10O"},
        "containers": [
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}},
            {"name": "log", "resources": {}},
        ],
    },
}
GROUP = {
    "apiVersion": "scheduling.run.ai/v2alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "a", "uid": "g"},
    "spec": {"minMember": 4, "queue": "x", "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "n"},
    "spec": {"unschedulable": True},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "x", "uid": "q"},
    "spec": {"resources": {"gpu": {"quota": 2, "limit": -1, "overQuotaWeight": 1}}},
}


def objects(*manifests):
    return collect(structure_all([POD, GROUP, NODE, QUEUE, *manifests]).objects)


BEFORE = objects()


def changed(field, edit):
    return attrs.evolve(BEFORE, **{field: tuple(map(edit, getattr(BEFORE, field)))})


def test_pod_changes_appear_in_their_template_by_container_name():
    def smaller(pod):
        first, *rest = pod.spec.containers
        resources = attrs.evolve(first.resources, limits={"nvidia.com/gpu": "4"})
        containers = (attrs.evolve(first, resources=resources), *rest)
        return attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_selector={"model": "H100"}, containers=containers))

    merge = {
        "spec": {
            "nodeSelector": {"model": "H100"},
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}],
        }
    }
    after = changed("pods", smaller)
    assert in_file(BEFORE, after, JOB) == [{"object": "pod template", "merge": merge}]
    assert in_file(BEFORE, after, None) == [{"object": "Pod train-0", "merge": merge}]


def test_pods_of_one_template_are_told_once():
    more = [{**POD, "metadata": {**POD["metadata"], "name": f"train-{at}", "uid": f"p{at}"}} for at in (1, 2)]
    before = objects(*more)
    edited = tuple(attrs.evolve(pod, spec=attrs.evolve(pod.spec, node_selector={})) for pod in before.pods)
    told = in_file(before, attrs.evolve(before, pods=edited), JOB)
    assert len(told) == 1
    assert told[0]["merge"]["spec"] in ({"nodeSelector": None}, {"nodeSelector": {"model": None}})


def test_group_changes_become_labels_and_annotations_of_the_workload():
    def edit(group):
        constraint = attrs.evolve(
            group.spec.topology_constraint, required_topology_level="", preferred_topology_level="rack"
        )
        spec = attrs.evolve(group.spec, queue="y", min_member=2, topology_constraint=constraint)
        return attrs.evolve(group, spec=spec)

    after = changed("pod_groups", edit)
    (told,) = in_file(BEFORE, after, JOB)
    assert told["object"] == "Job train"
    assert told["merge"]["metadata"] == {
        "labels": {"kai.scheduler/queue": "y"},
        "annotations": {
            "kai.scheduler/batch-min-member": "2",
            "kai.scheduler/topology-required-placement": None,
            "kai.scheduler/topology-preferred-placement": "rack",
        },
    }
    assert in_file(BEFORE, after, Owner("PyTorchJob", "train", "u")) == [], "its replicas say how many start together"
    (own,) = in_file(BEFORE, after, None)
    assert own["object"] == "PodGroup train"
    assert own["merge"]["spec"]["minMember"] == 2


def test_a_node_is_uncordoned_by_a_command():
    def edit(node):
        return attrs.evolve(node, spec=attrs.evolve(node.spec, unschedulable=False))

    assert in_file(BEFORE, changed("nodes", edit), JOB) == [{"command": "kubectl uncordon n1"}]


def test_changes_that_no_manifest_holds_are_left_out():
    def failing(node):
        return attrs.evolve(node, status=attrs.evolve(node.status, conditions=()))

    assert in_file(BEFORE, changed("nodes", failing), JOB) == []
    assert in_file(BEFORE, attrs.evolve(BEFORE, pods=()), JOB) == []


def test_a_queue_is_written_under_its_name():
    def edit(queue):
        gpu = attrs.evolve(queue.spec.resources.gpu, quota=4.0)
        return attrs.evolve(queue, spec=attrs.evolve(queue.spec, resources=attrs.evolve(queue.spec.resources, gpu=gpu)))

    (told,) = in_file(BEFORE, changed("queues", edit), JOB)
    assert told == {"object": "Queue x", "merge": {"spec": {"resources": {"gpu": {"quota": 4.0}}}}}
