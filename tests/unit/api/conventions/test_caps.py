import msgspec
import pytest

from kai.api.conventions.caps import APPLIED, GATE, excess, excess_of, kept
from kai.api.kubernetes.pod import Pod
from kai.cluster.caching.assume_cache import AssumeCache
from kai.cluster.caching.raw import line_of, take

NODE, PODS = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def node_terms(count, values=1):
    one = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"] * values}]}
    return {"affinity": {"nodeAffinity": {NODE: {"nodeSelectorTerms": [one] * count}}}}


def pod_terms(count):
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}
    return {"affinity": {"podAntiAffinity": {PODS: [term] * count}}}


def near(**term):
    return {"affinity": {"podAffinity": {NODE: [{"topologyKey": "zone", **term}]}}}


def wanting(count, each="requests", **more):
    """Return containers that ask for so many resources together."""
    asked = [{f"x.example/r{at}": "1"} for at in range(count // 2)]
    return {
        "containers": [{"name": "c", "resources": {each: one | {f"{key}-b": "1" for key in one}}} for one in asked]
    } | more


def container(**parts):
    return {"containers": [{"name": "main", **parts}]}


NAMES = [f"n{at}" for at in range(16_385)]
KEYS = [{"name": "x", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}] * 1025


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (node_terms(1025), "spec.affinity: found 1,025 terms, expected at most 1,024"),
        (pod_terms(41_000), "spec.affinity: found 41,000 terms, expected at most 1,024"),
        (node_terms(1, 16_385), "spec.affinity: found 16,385 values, expected at most 16,384"),
        ({"tolerations": [{}] * 2000}, "spec.tolerations: found 2,000 tolerations, expected at most 1,024"),
        ({"nodeSelector": dict.fromkeys(map(str, range(1025)), "x")}, "spec.nodeSelector: found 1,025 labels"),
        ({"topologySpreadConstraints": [{}] * 1025}, "spec.topologySpreadConstraints: found 1,025 constraints"),
        (near(namespaces=NAMES), "spec.affinity: found 16,385 values, expected at most 16,384"),
        (near(labelSelector={"matchLabels": dict.fromkeys(NAMES, "x")}), "spec.affinity: found 16,385 values"),
        (near(namespaceSelector={"matchLabels": dict.fromkeys(NAMES, "x")}), "spec.affinity: found 16,385 values"),
        (near(matchLabelKeys=NAMES), "spec.affinity: found 16,385 values"),
        (near(topologyKey="z" * 262_145), "spec.affinity: found 262,"),
        (
            {"topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"a": "z" * 262_145}}}]},
            "spec.topologySpreadConstraints: found 262,",
        ),
        (
            container(resources={"limits": dict.fromkeys(NAMES, "1")}),
            "spec.containers: found 16,385 resources, expected at most 1,024",
        ),
        (wanting(1200), "spec.containers: found 1,200 resources, expected at most 1,024"),
        ({"initContainers": wanting(1200)["containers"]}, "spec.containers: found 1,200 resources"),
        (container(ports=[{"containerPort": 1}] * 1025), "spec.containers: found 1,025 ports, expected at most 1,024"),
        (container(volumeMounts=[{"name": "v"}] * 1025), "spec.containers: found 1,025 mounts"),
        (container(envFrom=[{"configMapRef": {"name": "m"}}] * 1025), "spec.containers: found 1,025 config maps"),
        (container(env=KEYS), "spec.containers: found 1,025 config maps"),
        ({"containers": [{}] * 1025}, "spec.containers: found 1,025 containers"),
        ({"volumes": [{"name": "v"}] * 1025}, "spec.volumes: found 1,025 volumes"),
        ({"volumes": [{"projected": {"sources": [{}] * 1025}}]}, "spec.volumes: found 1,025 sources"),
        ({"resourceClaims": [{"name": "c"}] * 1025}, "spec.resourceClaims: found 1,025 claims"),
    ],
)
def test_what_is_too_much_is_named_with_its_bound(spec, found):
    assert excess(spec).startswith(found)


@pytest.mark.parametrize(
    "spec",
    [
        node_terms(1024),
        pod_terms(1024),
        node_terms(1, 16_384),
        {"tolerations": [{}] * 1024},
        {},
        None,
        "nonsense",
        {"affinity": 3, "tolerations": "x", "nodeSelector": []},
        {"affinity": {"nodeAffinity": [], "podAffinity": {NODE: {"nodeSelectorTerms": 1}}}},
        near(namespaces=NAMES[1:]),
        wanting(1024),
        container(env=[{"name": "x", "value": "y"}] * 5000),
        container(ports=[{}] * 1024, envFrom=[{}] * 1024),
        {"containers": 3, "initContainers": [3, {"resources": 3, "ports": 4}], "volumes": [{"projected": 3}, None]},
    ],
)
def test_values_within_caps_and_non_specs_stay_the_same(spec):
    assert excess(spec) == ""
    assert kept({"spec": spec})["spec"] is spec


def manifest(**spec):
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"}, "spec": spec}


def cached(pod, raw):
    cache = AssumeCache(Pod, lambda *_: None)
    if raw:
        line = line_of(msgspec.json.encode({"type": "ADDED", "object": pod}))
        assert line is not None
        take(cache, line.object)
    else:
        cache.see(pod)
    found = cache.get(("n", "p"))
    assert found is not None
    return found


@pytest.mark.parametrize("raw", [True, False])
def test_a_pod_beyond_caps_is_gated_without_its_terms(raw):
    found = cached(manifest(**pod_terms(2000), containers=[{"name": "main"}]), raw)
    assert found.spec.affinity is None
    assert [gate.name for gate in found.spec.scheduling_gates] == [
        f"{GATE}spec.affinity: found 2,000 terms, expected at most 1,024"
    ]
    assert found.spec.containers[0].name == "main"


@pytest.mark.parametrize("raw", [True, False])
def test_one_that_has_a_node_is_counted_there(raw):
    found = cached(manifest(**pod_terms(2000), nodeName="here"), raw)
    assert (found.spec.affinity, found.spec.node_name, found.spec.scheduling_gates) == (None, "here", ())


@pytest.mark.parametrize("raw", [True, False])
def test_a_large_pod_within_the_caps_is_kept_whole(raw):
    spec = node_terms(1000)
    spec["affinity"]["nodeAffinity"][NODE]["nodeSelectorTerms"][0] = {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["x" * 50] * 100}]
    }
    found = cached(manifest(**spec), raw)
    assert found.spec.affinity.node_affinity.required is not None
    assert found.spec.scheduling_gates == ()


@pytest.mark.parametrize("raw", [True, False])
def test_the_shortest_terms_count_too(raw):
    spec = {"affinity": {"nodeAffinity": {NODE: {"nodeSelectorTerms": [{}] * 1025}}}}
    assert cached(manifest(**spec), raw).spec.scheduling_gates != ()


@pytest.mark.parametrize("raw", [True, False])
def test_oversized_containers_are_kept_only_on_a_node(raw):
    asked = container(resources={"requests": dict.fromkeys(NAMES, "1")}, image="x")
    waiting, bound = (cached(manifest(**asked, **where), raw) for where in ({}, {"nodeName": "here"}))
    assert [gate.name for gate in waiting.spec.scheduling_gates] == [
        f"{GATE}spec.containers: found 16,385 resources, expected at most 1,024"
    ]
    assert waiting.spec.containers == ()
    assert len(bound.spec.containers[0].resources.requests) == 16_385


def described(spec=None, **metadata):
    made = manifest(**(spec or {}))
    return {**made, "metadata": {**made["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        (
            {"annotations": {"a": "x" * 65_536}},
            "metadata.annotations: found 65,537 characters, expected at most 65,536",
        ),
        ({"annotations": {f"{at:05}": "x" * 5 for at in range(7000)}}, "metadata.annotations: found 70,000 characters"),
        ({"labels": dict.fromkeys(map(str, range(1025)), "")}, "metadata.labels: found 1,025 labels, expected at most"),
        ({"annotations": {"a": "x" * 65_535, APPLIED: "y" * 200_000}, "labels": {"a": "b"}}, ""),
        ({"annotations": [1], "labels": 3}, ""),
        ({"annotations": {"a": 7}}, ""),
        ({"ownerReferences": [{}] * 1025}, "metadata.ownerReferences: found 1,025 owners, expected at most 1,024"),
        ({"finalizers": ["x/y"] * 1025}, "metadata.finalizers: found 1,025 finalizers, expected at most 1,024"),
        ({"ownerReferences": [{}] * 1024, "finalizers": 3}, ""),
        ("nonsense", ""),
        (None, ""),
    ],
)
def test_oversized_metadata_is_named_with_its_cap(metadata, found):
    assert excess_of(metadata).startswith(found)
    assert bool(excess_of(metadata)) is bool(found)


@pytest.mark.parametrize("raw", [True, False])
def test_kubectls_applied_annotation_is_dropped_alone(raw):
    found = cached(described(annotations={APPLIED: '{"env": "PASSWORD"}', "mine": "x"}), raw)
    assert found.metadata.annotations == {"mine": "x"}
    assert found.spec.scheduling_gates == ()


@pytest.mark.parametrize("raw", [True, False])
def test_excess_annotations_are_cut_and_the_pod_gated(raw):
    found = cached(described(annotations={"pod-group-name": "g", "gpu-fraction": "1" * 5000, "big": "x" * 70_000}), raw)
    assert found.metadata.annotations == {"pod-group-name": "g"}
    (gate,) = found.spec.scheduling_gates
    assert gate.name.startswith(f"{GATE}metadata.annotations: found 75,")


def test_an_overlabelled_pod_on_a_node_still_counts():
    labels = {**dict.fromkeys(map(str, range(1025)), ""), "kai.scheduler/queue": "team"}
    found = cached(described({"nodeName": "here"}, labels=labels), raw=True)
    assert (found.metadata.labels, found.spec.scheduling_gates) == ({"kai.scheduler/queue": "team"}, ())
