from hypothesis import given
from hypothesis import strategies as st

from kai.roles.admission.review import AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import mutate, validate

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
