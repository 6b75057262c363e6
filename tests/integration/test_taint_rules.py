"""Rules that taint devices, on an API server that serves them: before Kubernetes 1.37 it has to be told to."""

from tests.integration.behaviour import Play
from tests.integration.programs import minor
from tests.integration.stage import Stage, scene

VERSION = {"1.35": "resource.k8s.io/v1alpha3", "1.36": "resource.k8s.io/v1beta2"}.get(minor(), "resource.k8s.io/v1")
API_SERVER_FLAGS = ("--feature-gates=DRADeviceTaintRules=true", f"--runtime-config={VERSION}=true")
DRIVER = "nic.example.com"
CURRENT = "resource.k8s.io/v1"
RULE = {"apiVersion": VERSION, "kind": "DeviceTaintRule", "metadata": {"name": "sick"}}
REQUEST = {"name": "nic", "exactly": {"deviceClassName": DRIVER}}
SLICE = {
    "driver": DRIVER,
    "nodeName": "n1",
    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
    "devices": [{"name": "nic-0"}],
}


def test_a_tainted_device_is_unused_until_its_rule_changes(whole: Stage) -> None:
    taint = {"key": "sick", "effect": "NoSchedule"}
    case = {
        "objects": [
            {"apiVersion": CURRENT, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}},
            {"apiVersion": CURRENT, "kind": "ResourceSlice", "metadata": {"name": "n1-nics"}, "spec": SLICE},
            {**RULE, "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint}},
            {
                "apiVersion": CURRENT,
                "kind": "ResourceClaim",
                "metadata": {"name": "one"},
                "spec": {"devices": {"requests": [REQUEST]}},
            },
        ],
        "steps": [
            {
                "jobs": {"a": {"spec": {"resourceClaims": [{"name": "nic", "resourceClaimName": "one"}]}}},
                "expect": {"a": {"waiting": 1, "pod_says": "devices have taints that the claims do not tolerate"}},
            },
            {"change": [{**RULE, "spec": {"taint": {"effect": "None"}}}], "expect": {"a": 1}},
        ],
    }
    with scene(whole) as stage:
        Play(stage).perform(case)
