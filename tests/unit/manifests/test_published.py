"""Manifests in the forms that people publish are understood, or named; none is refused that an API server takes."""

from pathlib import Path

import pytest
import yaml

from kai.manifests import Later, Surroundings, expand
from kai.manifests.gpus import Claims, gpus_of
from kai.manifests.lint import lint
from kai.manifests.manifest_reading import documents_of, open_text, read

CASES = yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())
CLUSTER = """\
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources: {cpu: {quota: -1, limit: -1}, gpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}}
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_a_published_manifest_lints_and_expands_as_recorded(case):
    texts = {"case.yaml": case["given"], "cluster.yaml": CLUSTER}
    documents = [each for name, text in texts.items() for each in documents_of(*open_text(text.encode(), name))]
    reading = read(documents, Surroundings(with_later=True))
    claims = Claims.of([document.manifest for document in documents])
    said = [f"{finding.code} {finding.message}" for finding in lint(reading)]
    assert said == case.get("lint", [])
    jobs = {
        job.group["metadata"]["name"]: {
            pod["metadata"]["name"]: gpus_of(pod) + claims.gpus_of(pod, "default") for pod in job.pods
        }
        for job in reading.expansion.jobs
    }
    assert jobs == case["jobs"]
    assert [_told(each) for each in reading.expansion.later] == case.get("later", [])
    assert [str(each).removeprefix("not used: ") for each in reading.expansion.unused] == case.get("unused", [])


def _told(later: Later) -> str:
    once = " and ".join(dict.fromkeys(map(str, later.conditions)))
    return f"{later.group['metadata']['name']}: {len(later.pods)} pods {once}"


@pytest.mark.parametrize("name", ["pods of a Job with a zone for itself", "workers with a zone for themselves"])
def test_exclusive_zones_attract_own_pods_and_repel_others(name):
    (given,) = (case["given"] for case in CASES if case["about"].startswith(name))
    found = expand(list(yaml.safe_load_all(given)), Surroundings(with_later=True))
    pods = [each for each in found.manifests if each["kind"] == "Pod"] + [
        pod for each in found.later for pod in each.pods
    ]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for pod in pods:
        labels, affinity = pod["metadata"]["labels"], pod["spec"]["affinity"]
        (near,), (far,) = affinity["podAffinity"][required], affinity["podAntiAffinity"][required]
        (mine,) = near["labelSelector"]["matchExpressions"]
        assert (near["topologyKey"], far["topologyKey"]) == ("rack", "rack")
        assert mine["values"] == [labels[mine["key"]]]
        assert [each["operator"] for each in far["labelSelector"]["matchExpressions"]] == ["Exists", "NotIn"]
    assert len(pods) == 3
