"""Whatever an object says, the answer is a decision or a failure in words."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from kai.roles.podgrouper import Absent, Grouping, Settings, Why, group_pod, load_groupers
from tests.unit.roles.podgrouper.kartas import FLOW, karta, one_group
from tests.unit.roles.podgrouper.workloads import pod_group, pod_of, thing

ROLE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
LWS = "leaderworkerset.sigs.k8s.io/worker-index"

WORKS = [
    thing(
        "kubeflow.org/v1",
        "PyTorchJob",
        spec={
            "elasticPolicy": {"minReplicas": 2},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1},
                "Worker": {
                    "replicas": 4,
                    "template": {"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}},
                },
            },
        },
    ),
    thing(
        "ray.io/v1",
        "RayCluster",
        spec={
            "headGroupSpec": {"template": {"metadata": {"annotations": {"kai.scheduler/topology": "t"}}}},
            "workerGroupSpecs": [{"groupName": "a", "replicas": 2, "minReplicas": 1, "numOfHosts": 2}],
        },
    ),
    thing(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        spec={"leaderWorkerTemplate": {"size": 5, "subGroupPolicy": {"subGroupSize": 2}, "workerTemplate": {}}},
    ),
    thing(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        spec={"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]},
    ),
    thing("grove.io/v1alpha1", "PodCliqueSet", labels={"a": "1"}),
    FLOW,
]
OTHERS = [
    thing(
        "scheduler.grove.io/v1alpha1",
        "PodGang",
        "g",
        spec={
            "podgroups": [{"name": "a", "minReplicas": 1, "podReferences": [{"namespace": "ns", "name": "pod-0"}]}],
            "topologyConstraintGroupConfigs": [{"name": "p", "podGroupNames": ["a"]}],
        },
    ),
    karta(one_group("master", "worker")),
    pod_group("pg-work-work-uid", spec={"minMember": 1, "subGroups": [{"name": "a", "minMember": 1}]}),
]
LABELS = {
    ROLE: "worker",
    INDEX: "3",
    LWS: "3",
    "jobset.sigs.k8s.io/replicatedjob-name": "w",
    "jobset.sigs.k8s.io/job-index": "1",
    "grove.io/podgang": "g",
    "role": "worker",
}
JUNK = st.sampled_from(
    [None, True, -1, 0, 2**40, 1.5, "", "x", "-3", "9" * 30, [], [None], {}, {"x": None}, [{}], "a\nb"]
)
GROUPERS = load_groupers()


class Everything:
    """A lookup that goes by kind and name only, so that an object may be broken in any way and still be found."""

    def __init__(self, objects):
        self.objects = objects

    def get(self, read, /):
        found = (
            each for each in self.objects if each.get("kind") == read.kind.kind and name_of(each) in (read.name, None)
        )
        return next(found, Absent(Why.NOT_FOUND))

    def many(self, read, /):
        return tuple(each for each in self.objects if each.get("kind") == read.kind.kind)


def name_of(manifest):
    metadata = manifest.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def places(value, path=()):
    """Return the paths to everything inside `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in items for place in places(item, (*path, key))]


@given(st.data())
def test_no_object_does_more_harm_than_a_failure(data):
    work = data.draw(st.sampled_from(WORKS))
    objects = copy.deepcopy([pod_of(work, labels=LABELS), work, *OTHERS])
    broken = data.draw(st.sampled_from(objects))
    *above, last = data.draw(st.sampled_from(places(broken)))
    holder = broken
    for key in above:
        holder = holder[key]
    holder[last] = data.draw(JUNK)
    outcome = group_pod(objects[0], Everything(objects), Settings(), GROUPERS)
    assert isinstance(outcome, Grouping)
    assert "\n" not in outcome.failure
    if outcome.group is None:
        assert outcome.failure or outcome.ignored
    else:
        json.dumps(outcome.group.manifest)
