import copy
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import Skipped, decode_as, kind_of, structure, structure_all, structure_as, unstructure
from kai.api.kinds import BY_CLASS, KINDS, title
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import LabelSelector, ObjectMeta
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Container, Pod, PodSpec, ResourceRequirements
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec
from kai.api.scheduling.queue import Queue
from kai.basics.errors import InputError
from tests.unit.api import manifests
from tests.unit.api.manifests import COMPLETE, Manifest


def message_of(manifest: Manifest) -> str:
    with pytest.raises(InputError) as caught:
        structure(manifest)
    return str(caught.value)


def pod(**spec: object) -> Manifest:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0", "namespace": "default"}, "spec": spec}


def requesting(resources: object) -> Manifest:
    return pod(containers=[{"name": "main", "resources": {"requests": resources}}])


def queue(**spec: object) -> Manifest:
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team-a"}, "spec": spec}


def group(**spec: object) -> Manifest:
    metadata = {"name": "train", "namespace": "default"}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("manifest", COMPLETE, ids=manifests.title)
def test_a_complete_manifest_survives_reading_and_writing(manifest: Manifest) -> None:
    before = copy.deepcopy(manifest)
    assert unstructure(structure(manifest)) == manifest
    assert manifest == before


def test_there_is_a_complete_manifest_of_every_kind() -> None:
    assert {manifest["kind"] for manifest in COMPLETE} == {kind.kind for kind in KINDS}


def parts(value: object) -> Iterator[object]:
    """Walk an object and everything inside it that is of an api class."""
    if isinstance(value, tuple):
        for item in value:
            yield from parts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from parts(item)
    elif attrs.has(type(value)):
        yield value
        for field in attrs.fields(type(value)):
            yield from parts(getattr(value, field.name))


def test_the_complete_manifests_set_every_field_of_every_class() -> None:
    everything = [part for manifest in COMPLETE for part in parts(structure(manifest))]
    declared = {(type(part), field.name) for part in everything for field in attrs.fields(type(part))}
    given = {
        (type(part), field.name)
        for part in everything
        for field in attrs.fields(type(part))
        if getattr(part, field.name) != field.default
    }
    assert declared - given == set()


def test_an_object_can_be_read_without_naming_its_kind() -> None:
    nameless = {key: value for key, value in manifests.POD.items() if key not in {"apiVersion", "kind"}}
    assert structure_as(Pod, nameless) == structure(manifests.POD)


def test_parts_of_objects_can_be_read_and_written() -> None:
    spec = structure_as(PodGroupSpec, {"queue": "a", "minMember": 2})
    assert spec == PodGroupSpec(queue="a", min_member=2)
    assert unstructure(spec) == {"queue": "a", "minMember": 2}


@pytest.mark.parametrize("manifest", COMPLETE, ids=manifests.title)
def test_objects_are_hashable_and_equal_when_their_manifests_are(manifest: Manifest) -> None:
    first, second = structure(manifest), structure(copy.deepcopy(manifest))
    assert first == second
    assert hash(first) == hash(second)


def test_null_counts_as_absent() -> None:
    manifest = pod(containers=[{"name": "main", "resources": None, "env": None}], volumes=None, affinity=None)
    manifest["metadata"] |= {"creationTimestamp": None, "labels": None}
    manifest["status"] = None
    assert structure(manifest) == Pod(
        metadata=ObjectMeta(name="train-0", namespace="default"),
        spec=PodSpec(containers=(Container(name="main"),)),
    )


def test_unknown_fields_are_passed_over() -> None:
    manifest = pod(containers=[{"name": "main", "image": "x", "lifecycle": {"preStop": 3}}], dnsPolicy=["odd"])
    assert structure(manifest).spec == PodSpec(containers=(Container(name="main"),))


def test_an_empty_selector_is_not_an_absent_one() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    read = structure_as(Pod, pod(affinity=affinity))
    assert read.spec.affinity is not None
    assert read.spec.affinity.pod_affinity is not None
    (found,) = read.spec.affinity.pod_affinity.required
    assert found.label_selector == LabelSelector()
    assert found.namespace_selector is None
    assert unstructure(read)["spec"]["affinity"] == affinity


def test_zero_is_not_absent() -> None:
    assert structure_as(PodGroup, group(minMember=0)).spec.min_member == 0
    assert structure_as(PodGroup, group()).spec.min_member is None
    assert unstructure(PodGroupSpec(min_member=0)) == {"minMember": 0}


def test_an_absent_limit_is_zero_as_in_the_peer() -> None:
    read = structure_as(Queue, queue(resources={"gpu": {"quota": 1}}))
    assert read.spec.resources is not None
    assert (read.spec.resources.gpu.limit, read.spec.resources.cpu.limit) == (0.0, 0.0)
    assert structure_as(Queue, queue()).spec.resources is None


def test_only_variables_that_need_a_config_map_are_kept() -> None:
    env = [
        {"name": "A", "value": "secret"},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    assert [variable.name for variable in structure_as(Container, {"env": env}).env] == ["B"]
    assert structure_as(Container, {"env": env[:1]}).env == ()


def test_bare_numbers_are_quantities() -> None:
    read = structure_as(Pod, requesting({"cpu": 2, "memory": 0.5, "nvidia.com/gpu": 1.0}))
    assert read.spec.containers[0].resources.requests == {"cpu": "2", "memory": "0.5", "nvidia.com/gpu": "1.0"}


def test_dates_from_yaml_become_times_or_strings() -> None:
    manifest = pod()
    moment = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    manifest["metadata"] |= {"creationTimestamp": moment, "annotations": {"since": moment}}
    read = structure(manifest).metadata
    assert read.creation_timestamp == 1767268800.0
    assert read.annotations == {"since": "2026-01-01T12:00:00Z"}


def test_equal_parts_of_different_pods_are_one_object() -> None:
    first = structure_as(Pod, copy.deepcopy(manifests.POD)).spec
    second = structure_as(Pod, copy.deepcopy(manifests.POD)).spec
    assert first.tolerations is second.tolerations
    assert first.affinity is second.affinity
    assert first.containers[0].resources is second.containers[0].resources


def test_parts_that_only_look_equal_are_kept_apart() -> None:
    one = structure_as(Container, {"resources": {"requests": {"cpu": 1}}})
    other = structure_as(Container, {"resources": {"requests": {"cpu": 1.0}}})
    assert (one.resources.requests["cpu"], other.resources.requests["cpu"]) == ("1", "1.0")
    assert "found true" in message_of(requesting({"cpu": True}))


def test_an_object_does_not_change_when_its_manifest_does() -> None:
    manifest = copy.deepcopy(manifests.POD)
    read = structure(manifest)
    before = unstructure(read)
    manifest["metadata"]["labels"]["a/b"] = "changed"
    manifest["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9"
    assert unstructure(read) == before


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (
            requesting({"nvidia.com/gpu": "abc"}),
            (
                'pod default/train-0: spec.containers[0].resources.requests["nvidia.com/gpu"]: found "abc", '
                'expected a quantity such as "1", "500m" or "2Gi"'
            ),
        ),
        (
            requesting({"cpu": "-1"}),
            (
                'pod default/train-0: spec.containers[0].resources.requests.cpu: found "-1", '
                "expected a quantity that is not negative"
            ),
        ),
        (
            requesting({"cpu": "10P"}),
            (
                'pod default/train-0: spec.containers[0].resources.requests.cpu: found "10P", '
                "expected a quantity that fits into 64 bits"
            ),
        ),
        (
            requesting({"cpu": float("nan")}),
            (
                "pod default/train-0: spec.containers[0].resources.requests.cpu: found NaN, "
                'expected a quantity such as "1", "500m" or "2Gi"'
            ),
        ),
        (
            pod(containers="main"),
            'pod default/train-0: spec.containers: found "main", expected a list',
        ),
        (
            pod(containers=[None]),
            "pod default/train-0: spec.containers[0]: found nothing, expected an object",
        ),
        (
            pod(nodeSelector={"gpu": True}),
            "pod default/train-0: spec.nodeSelector.gpu: found true, expected a string (in YAML, put it in quotes)",
        ),
        (
            pod(priority=2**31),
            "pod default/train-0: spec.priority: found 2147483648, expected at most 2147483647",
        ),
        (
            pod(priority="high"),
            'pod default/train-0: spec.priority: found "high", expected a whole number',
        ),
        (
            pod(tolerations=[{"operator": "Matches"}]),
            (
                'pod default/train-0: spec.tolerations[0].operator: found "Matches", '
                'expected one of "Equal", "Exists", "Lt", "Gt"'
            ),
        ),
        (
            pod(resourceClaims=[{"resourceClaimName": "x"}]),
            "pod default/train-0: spec.resourceClaims[0].name: found nothing, expected a value",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "yesterday"}},
            'pod a: metadata.creationTimestamp: found "yesterday", expected a time such as "2026-01-31T12:00:00Z"',
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"phase": "Lost"}},
            'pod a: status.phase: found "Lost", expected one of "Pending", "Running", "Succeeded", "Failed", "Unknown"',
        ),
        (
            queue(resources={"gpu": {"quota": -2}}),
            "queue team-a: spec.resources.gpu.quota: found -2, expected -1 (unlimited), 0 or a positive number",
        ),
        (
            queue(resources={"gpu": {"limit": float("inf")}}),
            "queue team-a: spec.resources.gpu.limit: found Infinity, expected a finite number",
        ),
        (
            queue(preemptMinRuntime="soon"),
            'queue team-a: spec.preemptMinRuntime: found "soon", expected a duration such as "90s", "1h30m" or "2d"',
        ),
        (
            group(preemptibility="sometimes"),
            (
                'podgroup default/train: spec.preemptibility: found "sometimes", '
                'expected one of "preemptible", "non-preemptible"'
            ),
        ),
        (
            group(minMember=-1),
            "podgroup default/train: spec.minMember: found -1, expected a whole number that is not negative",
        ),
        (
            group(subGroups=[{"name": "Workers"}]),
            (
                'podgroup default/train: spec.subGroups[0].name: found "Workers", '
                "expected a name that matches ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            ),
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": []},
            "a pod without a name: metadata: found a list of 0, expected an object",
        ),
    ],
)
def test_a_bad_value_is_named_with_object_and_path(manifest: Manifest, expected: str) -> None:
    assert message_of(manifest) == expected


def test_an_unknown_kind_is_refused() -> None:
    assert message_of({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "a"}}) == (
        'job a/j: found "batch/v1 Job", expected the apiVersion and kind of an object that kai knows'
    )
    assert "found nothing, expected the apiVersion and kind" in message_of({})


def test_unknown_kinds_are_passed_over_and_reported_among_many() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    result = structure_all([manifests.NODE, job, manifests.POD])
    assert [title(obj) for obj in result.objects] == ["node n1", "pod default/train-0"]
    assert result.skipped == (Skipped(api_version="batch/v1", kind="Job", name="j"),)


def test_every_bad_object_among_many_is_reported() -> None:
    with pytest.raises(InputError) as caught:
        structure_all([group(minMember=-1), manifests.POD, queue(priority="x"), {"no": "kind"}])
    first, second, third = caught.value.messages
    assert first.startswith("podgroup default/train: spec.minMember")
    assert second.startswith("queue team-a: spec.priority")
    assert third == "a object without a name: found an object with 1 field, expected an object with apiVersion and kind"


def test_objects_without_a_namespace_are_put_into_one() -> None:
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    (default,) = structure_all([manifest]).objects
    (other, node) = structure_all([manifest, manifests.NODE], namespace="team").objects
    assert (default.metadata.namespace, other.metadata.namespace, node.metadata.namespace) == ("default", "team", "")


@pytest.mark.parametrize("version", ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"])
def test_versions_of_one_shape_are_read_alike(version: str) -> None:
    assert structure({**manifests.RESOURCE_CLAIM, "apiVersion": version}) == structure(manifests.RESOURCE_CLAIM)


def test_kinds_are_told_by_version_too() -> None:
    assert kind_of({"apiVersion": "v2", "kind": "Pod"}) is None
    assert kind_of({"apiVersion": ["v1"], "kind": "Pod"}) is None
    assert kind_of("Pod") is None


def test_writing_leaves_out_defaults_and_nulls() -> None:
    assert unstructure(Pod()) == {"apiVersion": "v1", "kind": "Pod"}
    resources = ResourceRequirements(requests={"cpu": "1"})
    assert unstructure(PodSpec(containers=(Container(name="a", resources=resources),))) == {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
    }


def test_what_is_written_belongs_to_the_caller() -> None:
    read = structure_as(Node, manifests.NODE)
    written = unstructure(read)
    written["metadata"]["labels"]["a/b"] = "changed"
    written["status"]["conditions"].clear()
    assert unstructure(read) == manifests.NODE


# --- Fuzzing -------------------------------------------------------------------------------------------------------


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def changed(manifest: Manifest, path: tuple[str | int, ...], value: object) -> Manifest:
    result = copy.deepcopy(manifest)
    inner: Any = result
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return result


RING: list[object] = []
RING.append({"ring": RING})

ODD_TEXTS = ["-1", "1e400", "NaN", "1" * 500, "2026-99-99T00:00:00Z", "9" * 30 + "h", "Ünknown", "\x00", "\ud800"]
ODD_NUMBERS = [2**31, -(2**31) - 1, 2**63, -(2**63) - 1, 10**400, -1, 1e308, -0.0]
ODD_THINGS = [RING, RING[0], {"ring": {"ring": RING}}, {1: 2}, {None: None}, (), {"a"}, object, 1j]
KEYS = st.one_of(st.text(max_size=4), st.integers())
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.datetimes(),
    st.dates(),
    st.binary(max_size=4),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just({})), max_size=2),
    st.dictionaries(KEYS, st.one_of(st.none(), st.floats(), st.just([])), max_size=2),
    st.sampled_from(ODD_TEXTS),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_THINGS),
)
PLACES = [(manifest, path) for manifest in COMPLETE for path in places(manifest)]


@given(st.sampled_from(PLACES), ODD)
def test_any_value_is_read_or_refused_with_clear_message(
    place: tuple[Manifest, tuple[str | int, ...]], value: object
) -> None:
    manifest, path = place
    try:
        read = structure(changed(manifest, path, value))
    except InputError as error:
        (message,) = error.messages
        assert ": found " in message
        assert ", expected " in message
        assert "\n" not in message
        assert len(message) < 1000
    else:
        written = unstructure(read)
        json.dumps(written, allow_nan=False)
        assert unstructure(structure(written)) == written


@given(ODD)
def test_a_non_manifest_is_refused_with_clear_message(value: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        structure(value)
    with pytest.raises(InputError, match="expected"):
        structure_all([value])
    with pytest.raises(InputError, match="expected"):
        structure_as(ResourceClaim, changed(manifests.RESOURCE_CLAIM, ("spec",), [value]))


@pytest.mark.parametrize("amount", [200, 200.0, 0.5])
def test_a_budget_amount_is_written_as_it_was_read(amount):
    spec = {"parentQueue": "root", "budgets": [{"name": "month", "amount": amount}]}
    manifest = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"}, "spec": spec}
    assert unstructure(structure(manifest)) == manifest


DECLARED_KEYS = [
    "metadata",
    "spec",
    "status",
    "name",
    "containers",
    "conditions",
    "type",
    "env",
    "resources",
    "requests",
    "cpu",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "1", "2026-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(DECLARED_KEYS), inner, max_size=4),
    max_leaves=25,
)
PODS = st.fixed_dictionaries(
    {"metadata": st.just({"name": "p"})},
    optional={
        "spec": st.fixed_dictionaries({"containers": VALUES}, optional={"tolerations": VALUES, "volumes": VALUES}),
        "status": VALUES,
    },
)


def read(manifest):
    """What the codec makes of it, or what it says is wrong."""
    try:
        return structure_as(Pod, manifest)
    except InputError as error:
        return str(error)


@given(PODS | VALUES.filter(lambda value: isinstance(value, dict)))
def test_decoding_with_an_outline_reads_like_without_one(manifest):
    assert read(decode_as(Pod, json.dumps(manifest).encode())) == read(manifest)


def test_undeclared_keys_are_dropped_at_every_depth():
    text = b'{"kind":"Pod","x":1,"metadata":{"name":"p","managedFields":[{}]},'
    text += b'"spec":{"containers":[{"name":"c","tty":1}]}}'
    assert decode_as(Pod, text) == {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
    }


def test_values_of_free_keys_stay():
    text = b'{"metadata":{"name":"p","labels":{"any":"thing"}}}'
    assert decode_as(Pod, text)["metadata"]["labels"] == {"any": "thing"}


def test_a_malformed_object_is_decoded_whole_for_the_codec():
    assert decode_as(Pod, b'{"metadata":{"name":"p"},"spec":7,"x":1}') == {"metadata": {"name": "p"}, "spec": 7, "x": 1}


def test_a_kind_with_older_shapes_is_decoded_whole():
    assert decode_as(ResourceClaim, b'{"spec":{"anything":1}}') == {"spec": {"anything": 1}}


@pytest.mark.parametrize("cls", list(BY_CLASS))
def test_every_kind_has_an_outline(cls):
    assert decode_as(cls, b'{"metadata":{"name":"n"}}') == {"metadata": {"name": "n"}}


def test_what_is_no_json_is_an_error():
    with pytest.raises(msgspec.DecodeError):
        decode_as(Pod, b'{"metadata":')
