from benchmarks.live.start import objects_that_run
from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup

KINDS = {"minions": Node, "pods": Pod, "scheduling.run.ai": PodGroup}


def test_the_initially_running_objects_are_valid_and_consistent():
    found = {key: structure_as(KINDS[key.split("/")[2]], each) for key, each in objects_that_run(nodes=3, pods=32)}
    assert len(found) == 3 + 4 + 32
    pods = [each for each in found.values() if isinstance(each, Pod)]
    nodes, groups = (
        {each.metadata.name for each in found.values() if isinstance(each, cls)} for cls in (Node, PodGroup)
    )
    assert {each.spec.node_name for each in pods} == nodes
    assert {each.metadata.annotations["pod-group-name"] for each in pods} == groups
    assert len({each.metadata.uid for each in found.values()}) == len(found)
