import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.names import NOTED_USER
from kai.roles.admission.pods import json_patch
from kai.roles.admission.review import ALLOWED, AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import drop_user, mutate, note_user, readable, validate

EVERYTHING = AdmissionSettings(
    gpu_sharing_enabled=True,
    hami_core_enabled=True,
    block_nvidia_visible_devices=True,
    queue_quota_validation=True,
)
KEYS = st.sampled_from(
    [
        *("metadata", "spec", "status", "annotations", "name", "namespace", "ownerReferences"),
        *("gpu-fraction", "gpu-fraction-container-name", "containers", "initContainers", "env", "envFrom", "valueFrom"),
        *("configMapRef", "resources", "requests", "limits", "nvidia.com/gpu", "volumes"),
        *("levels", "nodeLabel", "alias", "subGroups", "parent", "minMember", "minSubGroup"),
        *("gpu", "quota", "parentQueue", "childQueues"),
    ],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["0.5", "x", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@given(
    st.dictionaries(KEYS, JSON, max_size=4),
    st.dictionaries(KEYS, JSON, max_size=4),
    st.sampled_from(["Pod", "Queue", "PodGroup", "Topology"]),
    st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
)
def test_no_object_ends_in_an_exception(manifest, spec, kind, operation):
    manifest["spec"] = {**spec, "schedulerName": "kai-scheduler"}
    request = AdmissionRequest(operation=operation, kind=kind, object=manifest, old_object=manifest)
    responses = [
        mutate(request, EVERYTHING, lambda length: "a" * length),
        validate(request, EVERYTHING, lambda _: None),
    ]
    assert all(response.allowed or response.message for response in responses)


def noting(operation="CREATE", note=None, before=None, user="maria"):
    def job(value):
        return {"kind": "Job", "metadata": {"name": "a", "annotations": {} if value is None else {NOTED_USER: value}}}

    old = job(before) if operation == "UPDATE" else None
    return AdmissionRequest(operation=operation, kind="Job", object=job(note), old_object=old, user=user)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (noting(), "maria"),
        (noting(note="jo"), "maria"),
        (noting("UPDATE", note="jo", before="kim"), "kim"),
        (noting("UPDATE", note=None, before="kim"), "kim"),
        (noting("UPDATE", note="jo"), None),
    ],
)
def test_the_note_is_the_creators_and_stays(request_, expected):
    response = note_user(request_)
    assert response.allowed
    assert response.object["metadata"]["annotations"].get(NOTED_USER) == expected
    assert response.patch == json_patch(request_.object, response.object)


def test_a_right_note_needs_no_patch():
    assert note_user(noting(note="maria")) is ALLOWED
    assert note_user(noting("UPDATE", note="kim", before="kim")) is ALLOWED


def test_a_copied_note_is_taken_off():
    response = drop_user(noting(note="jo"))
    assert response.object["metadata"]["annotations"] == {}
    assert drop_user(noting()) is ALLOWED


def test_unreadable_annotations_refuse_a_note_in_words():
    request = AdmissionRequest(operation="CREATE", kind="Job", object={"metadata": {"annotations": [1]}}, user="maria")
    response = readable(note_user, request)
    assert not response.allowed
    assert "metadata.annotations" in response.message
