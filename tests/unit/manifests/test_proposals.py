import yaml
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.scheduling.queue import Queue
from kai.manifests import documents_of, open_text
from kai.manifests.lint import lint
from kai.manifests.manifest_reading import read
from kai.manifests.proposals import named_queue, propose, root_name


def node(gpus):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{gpus}"},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


def quota(namespace, name="q", **hard):
    spec = {"hard": {key.replace("_", "."): value for key, value in hard.items()}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def gpus(namespace, amount, name="q"):
    found = quota(namespace, name)
    found["spec"]["hard"]["requests.nvidia.com/gpu"] = amount
    return found


def made(manifests, source, *wanted):
    return {each.name: each for each in propose(manifests, source).made(wanted)}


def shares(proposal, resource="gpu"):
    share = proposal.share(resource)
    return share.quota, share.weight, share.limit


def test_namespaces_without_a_quota_share_the_gpus_equally():
    found = made([node(8), node(4)], "namespace", "a", "b")
    assert shares(found["a"]) == shares(found["b"]) == (6, 1, -1)
    assert found["a"].parent == found["b"].parent == "all"
    assert shares(found["all"]) == (12, 1, -1)


def test_a_namespaces_quota_becomes_its_queues_quota_and_limit():
    found = made([node(8), gpus("a", "5"), quota("a", "r", requests_cpu="2", requests_memory="1G")], "namespace", "b")
    assert shares(found["a"]) == (5, 1, 5)
    assert shares(found["a"], "cpu") == (2000, 1, 2000)
    assert shares(found["a"], "memory") == (1000, 1, 1000)
    assert found["a"].reason == "ResourceQuota a/q, ResourceQuota a/r"
    assert shares(found["b"]) == (3, 1, -1)


def test_the_lowest_of_several_quotas_of_a_namespace_counts():
    assert shares(made([gpus("a", "5"), gpus("a", "3", "r")], "namespace")["a"]) == (3, 1, 3)


def test_a_quota_with_scopes_is_left_out_and_told():
    scoped = gpus("a", "5")
    scoped["spec"]["scopes"] = ["BestEffort"]
    found = propose([scoped], "namespace")
    assert found.made(()) == ()
    assert found.notes == ("ResourceQuota a/q: its scopes have no counterpart in a queue; it is left out",)


def test_a_queue_that_exists_is_not_made():
    there = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "a"}, "spec": {}}
    assert made([there, node(8)], "namespace", "a") == {}


def test_an_amount_that_is_none_is_left_out():
    assert made([gpus("a", "many")], "namespace") == {}


KUEUE = list(
    yaml.safe_load_all("""
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohort: lab
  fairSharing: {weight: "2"}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: h100
      resources:
      - {name: cpu, nominalQuota: 64}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4}
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 32}
      - {name: nvidia.com/gpu, nominalQuota: 4, borrowingLimit: 0}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-b}
spec:
  cohortName: lab
  stopPolicy: Hold
  resourceGroups:
  - flavors:
    - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: "8", lendingLimit: 2}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: alone}
spec:
  resourceGroups:
  - flavors:
    - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 2}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: lab}
spec:
  parentName: house
  resourceGroups: [{flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 5}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: default, namespace: ml}
spec: {clusterQueue: team-a}
""")
)


def test_a_cluster_queue_sums_its_flavors():
    found = made(KUEUE, "kueue")
    assert shares(found["team-a"]) == (12, 2, 16)
    assert shares(found["team-a"], "cpu") == (96000, 2, -1)
    assert shares(found["team-b"]) == (8, 1, -1)
    assert shares(found["alone"]) == (2, 1, 2)
    assert (found["team-a"].parent, found["alone"].parent) == ("lab", "")


def test_a_cohort_becomes_the_parent_queue():
    found = made(KUEUE, "kueue")
    assert shares(found["lab"]) == (25, 1, -1)
    assert (found["lab"].parent, found["house"].parent) == ("house", "")
    assert list(found)[:2] == ["house", "lab"]


def test_what_a_queue_cannot_say_is_told():
    assert propose(KUEUE, "kueue").notes == (
        "ClusterQueue team-b is stopped (Hold); its queue is open",
        "ClusterQueue team-b: lendingLimit has no counterpart; kai lends what is not used, and reclaims it",
    )


def test_workloads_without_local_queue_use_the_default_one():
    queue_of = propose(KUEUE, "kueue").queue_of
    assert queue_of({"kind": "Job", "metadata": {"namespace": "ml"}}) == "team-a"
    assert queue_of({"kind": "Job", "metadata": {"namespace": "other"}}) == ""
    named = {"namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "none"}}
    assert queue_of({"kind": "Job", "metadata": named}) == ""


def test_cohorts_in_a_circle_end():
    circle = [
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": a}, "spec": {"parentName": b}}
        for a, b in (("x", "y"), ("y", "x"))
    ]
    assert set(made(circle, "kueue")) == {"x", "y"}


def test_a_queue_of_volcano_keeps_weight_deserved_and_capability():
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "research"},
        "spec": {
            "weight": 4,
            "deserved": {"nvidia.com/gpu": "8"},
            "capability": {"nvidia.com/gpu": 16, "cpu": "64"},
            "reclaimable": False,
            "parent": "root",
        },
    }
    found = made([queue], "volcano", "default")
    assert shares(found["research"]) == (8, 4, 16)
    assert shares(found["research"], "cpu") == (-1, 4, 64000)
    assert found["research"].parent == ""
    assert found["default"].reason == "no Queue of this name: no bounds"


def test_a_volcano_queue_comes_from_spec_or_annotation():
    queue_of = propose([], "volcano").queue_of
    assert queue_of({"kind": "Job", "metadata": {}, "spec": {"queue": "a"}}) == "a"
    said = {"annotations": {"scheduling.volcano.sh/queue-name": "b"}}
    assert queue_of({"kind": "Pod", "metadata": said}) == "b"
    template = {"metadata": said, "spec": {"containers": []}}
    assert queue_of({"kind": "Deployment", "metadata": {}, "spec": {"template": template}}) == "b"
    assert queue_of({"kind": "Pod", "metadata": {}}) == "default"


def test_proposals_are_valid_queues_without_a_finding():
    for source, manifests in (("namespace", [node(8), gpus("a", "5")]), ("kueue", KUEUE)):
        texts = [yaml.safe_dump(each.manifest()) for each in propose(manifests, source).made(("b",))]
        documents = documents_of(*open_text("---\n".join(texts).encode(), "queues.yaml"))
        assert lint(read(documents)) == []


def test_a_name_that_is_taken_gets_a_number():
    assert root_name({"a"}) == "all"
    assert root_name({"all", "all-2"}) == "all-3"


@given(st.text())
def test_any_name_becomes_a_valid_queue_name(text):
    name = named_queue(text)
    structure_as(Queue, {"metadata": {"name": name}, "spec": {"parentQueue": name}})
    assert name.strip("-") == name.lower() != ""


_AMOUNT = st.integers(0, 64)


@given(st.lists(st.tuples(_AMOUNT, st.none() | _AMOUNT, st.sampled_from(["", "lab"])), max_size=5))
def test_a_limit_is_never_below_a_quota(queues):
    manifests = []
    for number, (nominal, borrowed, cohort) in enumerate(queues):
        resource = {"name": "nvidia.com/gpu", "nominalQuota": nominal, "borrowingLimit": borrowed}
        spec = {"cohort": cohort, "resourceGroups": [{"flavors": [{"name": "f", "resources": [resource]}]}]}
        head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": f"q{number}"}}
        manifests.append({**head, "spec": spec})
    found = made(manifests, "kueue")
    for each in found.values():
        amount, _, limit = shares(each)
        assert limit == -1 or limit >= amount
    total = sum(nominal for nominal, _, cohort in queues if cohort)
    assert "lab" not in found or shares(found["lab"])[0] == total
