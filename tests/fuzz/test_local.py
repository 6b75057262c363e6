"""Poison stays local: what is decided for good groups is the same with bad objects beside them.

The bad ones hang on a queue that does not exist, or are queues of nothing, so that none of them may have anything.
"""

import copy
from random import Random

import pytest

from kai.framework.decisions import Evict
from tests.fuzz import cluster
from tests.fuzz.mutation import EXTREMES, mutated, named
from tests.fuzz.samples import cases

SEEDS = 40
POISON = 30
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"annotations": {"pod-group-name": "bad", "gpu-fraction": "0.5"}, "labels": {"a": "b"}},
    "spec": {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "m", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
                ]
            }
        },
    },
    "status": {"phase": "Pending"},
}
GROUP = {
    "apiVersion": "scheduling.run.ai/v2alpha2",
    "kind": "PodGroup",
    "metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"},
    "spec": {
        "queue": "nowhere",
        "minMember": 1,
        "priorityClassName": "train",
        "subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "parent": "a", "minMember": 2}],
        "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"},
    },
}
QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {},
    "spec": {
        "parentQueue": "nowhere",
        "resources": {"gpu": {"quota": 0, "limit": -1, "overQuotaWeight": 1}, "cpu": {"quota": 0, "limit": 1}},
    },
}


def poison(draw):
    for number in range(POISON):
        sample = copy.deepcopy(draw.choice((POD, POD, GROUP, QUEUE)))
        sample["metadata"] |= {"name": f"bad-{number}", "namespace": "bad", "uid": f"bad-{number}"}
        if sample["kind"] == "Queue":
            del sample["metadata"]["namespace"]
        bad = named(mutated(draw, sample), sample)
        spec = bad.get("spec")
        if sample["kind"] == "PodGroup" and isinstance(spec, dict):
            spec["queue"] = "nowhere"
        yield bad
    giant = copy.deepcopy(POD)
    giant["metadata"] |= {"name": "bad-giant", "namespace": "bad", "uid": "bad-giant"}
    giant["spec"]["containers"][0]["resources"]["requests"] = dict.fromkeys(("cpu", "memory"), draw.choice(EXTREMES))
    yield giant


def decided(raws):
    """Return what is decided for pods of other namespaces, by the names of pods and nodes."""
    snapshot, decisions = cluster.decide(cluster.store(raws))
    found = set()
    for each in decisions:
        pod = snapshot.pods[each.pod]
        node = "" if isinstance(each, Evict) else snapshot.nodes[each.node].name
        found.add((type(each).__name__, pod.namespace, pod.name, node))
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_bad_objects_change_nothing_for_good_ones(seed):
    draw = Random(f"local/{seed}")
    good = cluster.raws_of(cluster.known(draw.choice(cases())))
    assert decided([*good, *cluster.raws_of(poison(draw))]) == decided(good)
