import pytest

from kai.api.codec.structuring import structure
from kai.basics.errors import InputError
from tests.unit.api import manifests

OLD = "resource.k8s.io/v1beta1"
OLD_REQUESTS = [
    {"name": "one", **manifests.EXACTLY},
    {"name": "two", "firstAvailable": manifests.DEVICES["requests"][1]["firstAvailable"]},
]
OLD_DEVICES = {**manifests.DEVICES, "requests": OLD_REQUESTS}


def test_a_first_beta_claim_is_converted() -> None:
    old = {**manifests.RESOURCE_CLAIM, "apiVersion": OLD, "spec": {"devices": OLD_DEVICES}}
    assert structure(old) == structure(manifests.RESOURCE_CLAIM)


def test_a_first_beta_claim_template_is_converted() -> None:
    spec = {**manifests.CLAIM_TEMPLATE["spec"], "spec": {"devices": OLD_DEVICES}}
    old = {**manifests.CLAIM_TEMPLATE, "apiVersion": OLD, "spec": spec}
    assert structure(old) == structure(manifests.CLAIM_TEMPLATE)


def test_a_first_beta_slice_is_converted() -> None:
    basic = {key: value for key, value in manifests.DEVICE.items() if key != "name"}
    spec = {**manifests.RESOURCE_SLICE["spec"], "devices": [{"name": "gpu-0", "basic": basic}]}
    old = {**manifests.RESOURCE_SLICE, "apiVersion": OLD, "spec": spec}
    assert structure(old) == structure(manifests.RESOURCE_SLICE)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("x", "spec: "),
        ({"devices": []}, "spec.devices: "),
        ({"devices": {"requests": 3}}, "spec.devices.requests: "),
        ({"devices": {"requests": [3]}}, r"spec.devices.requests\[0\]: "),
        ({"devices": {"requests": [{"deviceClassName": "x"}]}}, r"spec.devices.requests\[0\].name: "),
    ],
)
def test_a_malformed_first_beta_claim_is_refused_as_usual(spec: object, path: str) -> None:
    old = {**manifests.RESOURCE_CLAIM, "apiVersion": OLD, "spec": spec}
    with pytest.raises(InputError, match=f"^resourceclaim default/gpus: {path}found"):
        structure(old)
