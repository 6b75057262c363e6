from pathlib import Path
from typing import Any

import pytest
import yaml

from kai.manifests import documents_of, open_text, read
from kai.manifests.lint import lint

REFUSED = yaml.safe_load((Path(__file__).parent / "refused.yaml").read_text())


def merged(value: Any, patch: Any) -> Any:
    """Return a value with a merge patch over it; None takes a key away."""
    if not isinstance(patch, dict) or not isinstance(value, dict):
        return patch
    changed = {key: merged(value.get(key), inner) for key, inner in patch.items() if inner is not None}
    return {**{key: inner for key, inner in value.items() if key not in patch}, **changed}


def lint_manifest(manifest):
    source, values = open_text(yaml.safe_dump(manifest).encode(), "x.yaml")
    return [finding for finding in lint(read(documents_of(source, values))) if finding.is_error]


@pytest.mark.parametrize("kind", REFUSED["bases"])
def test_what_an_api_server_takes_is_right(kind):
    assert lint_manifest(REFUSED["bases"][kind]) == []


@pytest.mark.parametrize("case", REFUSED["cases"], ids=lambda case: case["about"])
def test_what_an_api_server_refuses_is_found_in_place(case):
    first = lint_manifest(merged(REFUSED["bases"][case["kind"]], case["with"]))[0]
    assert f"{first.code} {first.message}".removesuffix(f" (in {first.object})") == case["said"]
    assert first.line > 0


@pytest.mark.parametrize(("value", "is_wrong"), [("many", True), ("1.5", True), ("9" * 19, True), ("-7", False)])
def test_comparing_a_label_with_a_word_is_an_error(value, is_wrong):
    expression = {"key": "gpus", "operator": "Gt", "values": [value]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    found = lint_manifest(merged(REFUSED["bases"]["Job"], {"spec": {"template": {"spec": {"affinity": affinity}}}}))
    said = f'J026 values[0]: found "{value}", expected a whole number beside operator Gt'
    assert [f"{each.code} {each.message}" for each in found] == [f"{said} (in job default/j)"] * is_wrong


def test_whole_floats_and_null_values_are_accepted():
    patch = {"spec": {"backoffLimit": 4.0, "suspend": False}}
    manifest = merged(REFUSED["bases"]["Job"], patch)
    manifest["spec"]["activeDeadlineSeconds"] = None
    assert lint_manifest(manifest) == []


def test_what_comes_from_a_cluster_is_not_judged():
    patch = {"metadata": {"resourceVersion": "1"}, "spec": {"containers": [{"name": "A_b"}]}}
    assert lint_manifest(merged(REFUSED["bases"]["Pod"], patch)) == []


def test_fields_that_a_controller_fills_may_be_missing():
    pod = REFUSED["bases"]["Pod"]
    manifest = {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "s", "labels": pod["metadata"]["labels"]},
        "spec": {"template": {"spec": {"schedulerName": "kai-scheduler", "containers": [{"image": "x"}]}}},
    }
    assert lint_manifest(manifest) == []


def test_an_indexed_job_may_leave_out_both_numbers():
    assert lint_manifest(merged(REFUSED["bases"]["Job"], {"spec": {"completionMode": "Indexed"}})) == []


@pytest.mark.parametrize("odd", [None, 1, True, "", [], {}, [None], [[]], [{"name": []}], {1: 2}, {"a": None}])
def test_whatever_stands_at_any_place_ends_in_sentences(odd):
    def places(value, path=()):
        yield path
        steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in steps:
            yield from places(inner, (*path, key))

    def replaced(value, path):
        if not path:
            return odd
        first, *rest = path
        if isinstance(value, list):
            return [replaced(each, rest) if at == first else each for at, each in enumerate(value)]
        return {**value, first: replaced(value[first], rest)}

    for base in REFUSED["bases"].values():
        for path in places(base):
            if path and path[0] not in {"apiVersion", "kind"}:
                manifest = replaced(base, path)
                source, values = open_text(yaml.safe_dump(manifest).encode(), "x.yaml")
                for finding in lint(read(documents_of(source, values))):
                    assert finding.message


POD = "{schedulerName: kai-scheduler, containers: [{name: main, image: x}]}"
CLAIM = "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]"
OTHERS = {
    "PyTorchJob": ("kubeflow.org/v1", "spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, template: {spec: POD}}}}"),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "spec: {replicatedJobs: [{name: a, template: {spec: {template: {spec: POD}}}}]}",
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        "spec: {replicas: 1, leaderWorkerTemplate: {size: 2, workerTemplate: {spec: POD}}}",
    ),
    "RayCluster": ("ray.io/v1", "spec: {headGroupSpec: {rayStartParams: {}, template: {spec: POD}}}"),
    "PodCliqueSet": (
        "grove.io/v1alpha1",
        "spec: {replicas: 1, template: {cliques: [{name: a, spec: {replicas: 1, roleName: a, podSpec: POD}}]}}",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("containers", ["containers: null", "containers: []", CLAIM])
def test_pods_of_other_controllers_need_a_container_too(kind, containers):
    version, spec = OTHERS[kind]
    text = f"{{apiVersion: {version}, kind: {kind}, metadata: {{name: w, labels: {{kai.scheduler/queue: q}}}}, {spec}}}"
    right = text.replace("POD", POD.replace("]}", f"], {CLAIM}}}"))
    assert lint_manifest(yaml.safe_load(right)) == []
    found = lint_manifest(yaml.safe_load(text.replace("POD", f"{{schedulerName: kai-scheduler, {containers}}}")))
    said = [f"J024 containers: found none, expected at least one container (in {kind.lower()} w)"]
    assert [f"{each.code} {each.message}" for each in found] == said


@pytest.mark.parametrize(("kind", "role"), [("SparkApplication", "driver"), ("SparkConnect", "server")])
def test_templates_of_spark_need_no_container(kind, role):
    template = {"template": {"spec": {"schedulerName": "kai-scheduler"}}}
    spec = {"image": "x", role: template, "executor": template}
    named = {"name": "w", "labels": {"kai.scheduler/queue": "q"}}
    manifest = {"apiVersion": "sparkoperator.k8s.io/v1", "kind": kind, "metadata": named, "spec": spec}
    assert lint_manifest(manifest) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jöb-日本", "'jöb-日本' with U+00F6"),
        ("tr\u0430in", "'tr\u0430in' with U+0430"),
        ("a b", "'a b' with U+0020"),
        ("a\u200bb", r'"a\u200bb" with U+200B'),
        ("a\x1bb", r'"a\u001bb" with U+001B'),
    ],
)
def test_odd_letters_in_names_are_shown_with_codes(name, found):
    manifest = merged(REFUSED["bases"]["Pod"], {"metadata": {"name": name}})
    (finding,) = lint_manifest(manifest)
    assert finding.code == "F001"
    assert finding.message == f"name: found {found}, expected letters a to z, digits, '-' and '.'"


KEYS = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml}
spec:
  nodeSelector:
    rack: a
    %s: "1"
    2.5: "2"
  containers: [{name: main, image: x}]
"""


@pytest.mark.parametrize("key", ["off", "yes", "1", "1.5"])
def test_keys_that_are_no_text_are_located(key):
    first, second = lint(read(documents_of(*open_text((KEYS % key).encode(), "x"))))
    wanted = "a string as key (in YAML, put it in quotes)"
    assert (first.code, first.line, first.column, first.width) == ("F001", 7, 5, len(key))
    assert (first.expected, first.help, first.object) == (wanted, f'"{key}":', "pod ml/p")
    # One of a pair at one place is enough; of the second key there is no other.
    assert (second.code, second.line, second.column, second.width) == ("J024", 8, 5, 3)
    assert second.message == '2.5: found 2.5, expected a string: "2.5" (in pod ml/p)'
    assert second.object == "pod ml/p"


@pytest.mark.parametrize(("amount", "code"), [("-1", "F001"), ("lots", "F001"), ("1.5", "J010")])
@pytest.mark.parametrize("kept", [{}, {"resourceVersion": "7"}])
def test_an_impossible_gpu_amount_has_one_code(amount, code, kept):
    containers = [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": amount}}}]
    manifest = merged(REFUSED["bases"]["Pod"], {"metadata": kept, "spec": {"containers": containers}})
    assert [each.code for each in lint_manifest(manifest)] == [code]
