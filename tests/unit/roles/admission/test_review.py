import base64
import json

import pytest

from kai.api.values import BadValue
from kai.roles.admission import AdmissionSettings, mutate, read_review, validate, write_review
from kai.roles.admission.review import refused

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "ns",
        "object": {
            "metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]},
        },
        "oldObject": None,
    },
}


def test_a_review_is_answered_with_the_patch_in_base64():
    request = read_review(REVIEW)
    answer = write_review(request, mutate(request, AdmissionSettings(), lambda n: "a" * n))["response"]
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == ("u-1", True, "JSONPatch")
    paths = {operation["path"] for operation in json.loads(base64.b64decode(answer["patch"]))}
    assert "/metadata/annotations/runai~1shared-gpu-configmap" in paths
    assert "/metadata/namespace" in paths


def test_an_unchanged_allowed_object_is_answered_without_a_patch():
    request = read_review({"request": {**REVIEW["request"], "kind": {"kind": "Node"}}})
    answer = write_review(request, mutate(request, AdmissionSettings(), lambda n: "a" * n))["response"]
    assert answer == {"uid": "u-1", "allowed": True}


def test_a_refusal_is_403_and_an_unreadable_object_400():
    request = read_review(REVIEW)
    by_rule = write_review(request, validate(request, AdmissionSettings(), lambda _: None))["response"]
    assert by_rule["status"]["code"] == 403
    assert "GPU sharing is disabled" in by_rule["status"]["message"]
    unreadable = write_review(request, refused("what", malformed=True, warnings=("careful",)))["response"]
    assert unreadable["status"]["code"] == 400
    assert unreadable["warnings"] == ["careful"]


@pytest.mark.parametrize(
    ("review", "message"),
    [
        (None, "AdmissionReview: request: found nothing"),
        ([], "AdmissionReview: found a list of 0, expected an object"),
        ({}, "AdmissionReview: request: found nothing"),
        ({"request": 5}, "request: found 5, expected an object"),
        ({"request": {"operation": "PEEK"}}, 'request.operation: found "PEEK", expected one of CREATE, UPDATE'),
        ({"request": {"operation": ["CREATE"]}}, "request.operation: found"),
        ({"request": {"operation": "CREATE", "object": "x"}}, 'request.object: found "x", expected an object'),
    ],
)
def test_a_malformed_review_body_is_refused_with_its_path(review, message):
    with pytest.raises(BadValue) as caught:
        read_review(review)
    assert message in str(caught.value)
