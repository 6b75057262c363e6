import copy

import attrs
import pytest

from kai.roles.admission.review import AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import mutate, validate

SETTINGS = AdmissionSettings(gpu_sharing_enabled=True)


def pod(*containers, annotations=None, init=(), **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "annotations": annotations or {}, **metadata},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": list(containers) or [{"name": "main"}],
            "initContainers": list(init),
        },
    }


def request(manifest, operation="CREATE", **fields):
    return AdmissionRequest(operation=operation, kind="Pod", object=manifest, **fields)


def draw(length):
    return "r" * length


def mutated(manifest, settings=SETTINGS, **fields):
    return mutate(request(manifest, **fields), settings, draw)


def reason(manifest, settings=SETTINGS):
    response = validate(request(manifest), settings, lambda _: None)
    return "" if response.allowed else response.message


def variables(response, index=0, kind="containers"):
    return {variable["name"]: variable for variable in response.object["spec"][kind][index].get("env", ())}


HALF = {"gpu-fraction": "0.5"}


def test_a_pod_of_another_scheduler_is_never_changed():
    foreign = {"metadata": {"annotations": 7}, "spec": {"schedulerName": "default-scheduler", "containers": "no"}}
    response = mutated(foreign)
    assert (response.allowed, response.object, response.patch) == (True, None, ())
    assert reason(foreign) == ""


def test_a_pod_that_shares_no_gpu_stays_unchanged():
    manifest = pod()
    response = mutated(manifest)
    assert response.object is manifest
    assert response.patch == ()


def test_a_sharing_pod_reads_its_devices_by_config_map():
    response = mutated(pod(annotations=HALF))
    name = "p-rrrrrrr-shared-gpu-0"
    assert response.object["metadata"]["annotations"]["runai/shared-gpu-configmap"] == "p-rrrrrrr-shared-gpu"
    assert list(variables(response)) == ["NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION"]
    assert all(v["valueFrom"]["configMapKeyRef"]["name"] == name for v in variables(response).values())
    container = response.object["spec"]["containers"][0]
    assert container["envFrom"] == [{"configMapRef": {"name": f"{name}-evar", "optional": False}}]
    assert response.object["spec"]["volumes"] == [{"name": f"{name}-vol", "configMap": {"name": name}}]


def test_a_mutated_pod_is_not_changed_again():
    settings = AdmissionSettings(
        gpu_sharing_enabled=True,
        hami_core_enabled=True,
        block_nvidia_visible_devices=True,
    )
    once = mutated(pod({"name": "a"}, {"name": "b"}, annotations=HALF), settings).object
    twice = mutate(request(once), settings, lambda length: "z" * length)
    assert twice.object == once
    assert twice.patch == ()


@pytest.mark.parametrize("named", [{}, {"gpu-fraction-container-name": "a"}])
@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_a_container_put_in_front_changes_no_reference(named, place):
    settings = AdmissionSettings(gpu_sharing_enabled=True, hami_core_enabled=True, block_nvidia_visible_devices=True)
    once = mutated(pod({"name": "a"}, annotations={**HALF, **named}), settings).object
    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    proxy = {"name": "proxy", "env": [void]}
    once["spec"][place] = [proxy, *once["spec"][place]]
    assert mutate(request(once), settings, lambda length: "z" * length).patch == ()
    assert reason(once, settings) == ""


def test_another_named_container_gets_config_maps_of_its_own():
    once = mutated(pod({"name": "a"}, {"name": "b"}, annotations=HALF)).object
    once["metadata"]["annotations"]["gpu-fraction-container-name"] = "b"
    name = variables(mutated(once), 1)["GPU_PORTION"]["valueFrom"]["configMapKeyRef"]["name"]
    assert name == "p-rrrrrrr-shared-gpu-1"


def test_the_original_manifest_is_left_alone():
    manifest = pod({"name": "a", "env": [{"name": "GPU_PORTION", "value": "9"}]}, annotations=HALF)
    before = copy.deepcopy(manifest)
    mutated(manifest, AdmissionSettings(block_nvidia_visible_devices=True))
    assert manifest == before


def test_fields_that_kai_does_not_know_survive():
    manifest = pod({"name": "a", "newField": {"x": 1}}, annotations=HALF)
    manifest["spec"]["futureField"] = [1, 2]
    result = mutated(manifest).object
    assert result["spec"]["futureField"] == [1, 2]
    assert result["spec"]["containers"][0]["newField"] == {"x": 1}


def test_a_variable_of_the_same_name_is_replaced():
    mine = {"name": "a", "env": [{"name": "GPU_PORTION", "value": "9"}, {"name": "X", "value": "1"}]}
    response = mutated(pod(mine, annotations=HALF))
    assert "value" not in variables(response)["GPU_PORTION"]
    assert next(iter(variables(response))) == "X"


@pytest.mark.parametrize(
    ("metadata", "prefix"),
    [
        ({"name": "a" * 60}, "a" * 33),
        ({"name": "a" * 32 + ".b"}, "a" * 32),
        ({"ownerReferences": [{"name": "owner"}]}, "owner"),
        ({"name": "", "generateName": "drawn-"}, "drawn"),
        ({"name": "", "generateName": "drawn-", "ownerReferences": [{"name": "owner"}]}, "owner"),
        ({"name": ""}, "pod"),
    ],
)
def test_config_map_names_are_cut_to_volume_name_length(metadata, prefix):
    response = mutated(pod(annotations=HALF, **metadata))
    assert response.object["metadata"]["annotations"]["runai/shared-gpu-configmap"] == f"{prefix}-rrrrrrr-shared-gpu"
    assert len(response.object["spec"]["volumes"][0]["name"]) <= 63


def test_a_change_is_refused_only_for_new_faults():
    """The Job of a pod removes a finalizer from it before it counts it, also where sharing was switched off since."""
    off = attrs.evolve(SETTINGS, gpu_sharing_enabled=False)
    wrong, worse, right = (pod({"name": "main"}, annotations={"gpu-fraction": each}) for each in ("2", "x", "0.5"))
    plain = pod({"name": "main"})

    def change(before, after, settings=SETTINGS):
        asked = request(after, operation="UPDATE", old_object=before)
        return validate(asked, settings, lambda _: None).allowed

    assert change(wrong, {**wrong, "metadata": {**wrong["metadata"], "finalizers": []}})
    assert change(right, {**right, "metadata": {**right["metadata"], "finalizers": []}}, off)
    assert change(wrong, right)
    assert not change(right, wrong)
    assert not change(plain, right, off)
    assert not change({"spec": {"schedulerName": "kai-scheduler"}}, worse)


def test_an_init_container_may_get_the_gpu():
    annotations = {**HALF, "gpu-fraction-container-name": "setup"}
    response = mutated(pod(init=[{"name": "setup"}], annotations=annotations))
    source = variables(response, kind="initContainers")["GPU_PORTION"]["valueFrom"]["configMapKeyRef"]
    assert source["name"].endswith("-shared-gpu-i0")
    assert "env" not in response.object["spec"]["containers"][0]


def test_a_container_that_does_not_exist_refuses_the_pod():
    response = mutated(pod(annotations={**HALF, "gpu-fraction-container-name": "ghost"}))
    assert not response.allowed
    assert response.message.endswith("container with name ghost not found for fraction request")
    assert reason(pod(annotations={**HALF, "gpu-fraction-container-name": "ghost"})) == ""
    assert "ghost" in reason(pod(annotations={**HALF, "gpu-fraction-container-name": "ghost"}), BLOCKING)


def test_the_memory_limit_is_optional_and_comes_last():
    response = mutated(pod(annotations=HALF), AdmissionSettings(hami_core_enabled=True))
    name, variable = list(variables(response).items())[-1]
    assert name == "CUDA_DEVICE_MEMORY_LIMIT"
    assert variable["valueFrom"]["configMapKeyRef"]["optional"] is True


def test_a_runtime_class_is_set_where_none_is_named():
    assert mutated(pod(annotations=HALF)).object["spec"]["runtimeClassName"] == "nvidia"
    named = pod(annotations=HALF)
    named["spec"]["runtimeClassName"] = "kata"
    assert mutated(named).object["spec"]["runtimeClassName"] == "kata"
    off = AdmissionSettings(gpu_fraction_runtime_class_name="")
    assert "runtimeClassName" not in mutated(pod(annotations=HALF), off).object["spec"]


BLOCKING = AdmissionSettings(gpu_sharing_enabled=True, block_nvidia_visible_devices=True)


def test_containers_without_gpus_see_none():
    gpu = {"name": "gpu", "resources": {"requests": {"nvidia.com/gpu": 1}}}
    mig = {"name": "mig", "resources": {"requests": {"nvidia.com/mig-1g.5gb": "1"}}}
    zero = {"name": "zero", "resources": {"requests": {"nvidia.com/gpu": "0"}}}
    mine = {"name": "mine", "env": [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    response = mutated(pod(gpu, mig, zero, mine), BLOCKING)
    values = [variables(response, i).get("NVIDIA_VISIBLE_DEVICES", {}).get("value") for i in range(4)]
    assert values == [None, None, "void", "void"]


def looked_into(*added, before=()):
    """Return the request that adds ephemeral containers to a pod that has some ``before``."""
    old, new = pod(), pod()
    old["spec"]["ephemeralContainers"] = list(before)
    new["spec"]["ephemeralContainers"] = [*before, *added]
    return request(new, "UPDATE", old_object=old, sub_resource="ephemeralcontainers")


def test_an_added_ephemeral_container_sees_no_gpus():
    """Its image may name them all, as those of CUDA do; what was there before cannot be changed any more."""
    before = {"name": "old", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    greedy = {"name": "greedy", "env": [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    response = mutate(looked_into({"name": "plain"}, greedy, before=[before]), BLOCKING, draw)
    found = [variables(response, i, "ephemeralContainers")["NVIDIA_VISIBLE_DEVICES"]["value"] for i in range(3)]
    assert found == ["all", "void", "void"]
    assert {step["path"].split("/")[2] for step in response.patch} == {"ephemeralContainers"}
    assert mutate(looked_into({"name": "plain"}), SETTINGS, draw).patch == ()


def test_a_container_that_is_added_may_name_no_devices():
    def told(*added, before=(), settings=BLOCKING):
        return validate(looked_into(*added, before=before), settings, lambda _: None).message

    greedy = {"name": "greedy", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    assert "container greedy has an environment variable NVIDIA_VISIBLE_DEVICES" in told(greedy)
    assert told({"name": "plain"}, before=[greedy]) == ""
    assert "container more has" in told({**greedy, "name": "more"}, before=[greedy])
    assert told(greedy, settings=SETTINGS) == ""


def test_a_missing_namespace_is_taken_from_the_request():
    manifest = pod()
    del manifest["metadata"]["namespace"]
    assert mutated(manifest, namespace="elsewhere").object["metadata"]["namespace"] == "elsewhere"


def test_a_namespace_that_differs_from_the_request_is_refused():
    assert not mutated(pod(), namespace="elsewhere").allowed


def test_a_deletion_is_never_held_up():
    for door in (lambda r: mutate(r, SETTINGS, draw), lambda r: validate(r, SETTINGS, lambda _: None)):
        assert door(request(pod(annotations={"gpu-fraction": "9"}), "DELETE")).allowed


WHOLE = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


@pytest.mark.parametrize(
    ("annotations", "container", "expected"),
    [
        ({"mps": "true"}, {}, "MPS is only supported with GPU fraction request"),
        (HALF, WHOLE, "cannot have both GPU fraction request and whole GPU resource request/limit"),
        ({"gpu-memory": "1"}, WHOLE, "cannot request both GPU and GPU memory"),
        ({"gpu-memory": "1", **HALF}, {}, "cannot request both GPU and GPU memory"),
        ({"gpu-fraction-num-devices": "2"}, {}, "cannot request multiple fractional devices without"),
        ({"gpu-memory": "0"}, {}, "gpu-memory annotation value must be a positive integer"),
        ({"gpu-memory": "+5"}, {}, "gpu-memory annotation value must be a positive integer"),
        ({"gpu-fraction": "1"}, {}, "gpu-fraction annotation value must be a positive number smaller than 1.0"),
        ({"gpu-fraction": "-0.1"}, {}, "gpu-fraction annotation value must be a positive number smaller than 1.0"),
        ({"gpu-fraction": "500m"}, {}, "gpu-fraction annotation value must be a positive number smaller than 1.0"),
        ({"gpu-fraction": "inf"}, {}, "gpu-fraction annotation value must be a positive number smaller than 1.0"),
        ({"gpu-fraction": "0x1p-1"}, {}, "gpu-fraction annotation value must be a float written with a decimal point"),
        ({"gpu-fraction": "NaN"}, {}, "gpu-fraction annotation value must be a float written with a decimal point"),
        ({**HALF, "gpu-fraction-num-devices": "0"}, {}, "fraction count annotation value must be a positive integer"),
        ({**HALF, "gpu-fraction-num-devices": "1.5"}, {}, "fraction count annotation value must be a positive integer"),
    ],
)
def test_requests_for_gpus_that_contradict_themselves_are_refused(annotations, container, expected):
    assert reason(pod({"name": "c", **container}, annotations=annotations)).startswith(expected)


@pytest.mark.parametrize(
    "annotations",
    [
        HALF,
        {"gpu-fraction": "1.2e-10"},
        {"gpu-memory": "2000", "gpu-fraction-num-devices": "2"},
        {**HALF, "mps": "true"},
        {},
    ],
)
def test_sensible_requests_pass(annotations):
    assert reason(pod(annotations=annotations)) == ""


def test_sharing_is_refused_where_it_is_switched_off():
    message = reason(pod(annotations=HALF), AdmissionSettings())
    assert message == "attempting to create a pod ns/p with gpu sharing request, while GPU sharing is disabled"


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_words_that_mean_no_device_are_allowed(value):
    container = {"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}
    assert reason(pod(container), BLOCKING) == ""


def test_devices_by_value_or_by_reference_are_refused():
    by_value = {"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    by_reference = {"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}]}
    assert "defined with a value of all" in reason(pod(by_value), BLOCKING)
    assert "valueFrom reference" in reason(pod(init=[by_reference]), BLOCKING)
    assert reason(pod(by_value), SETTINGS) == ""


def test_the_sharing_container_may_read_devices_by_reference():
    admitted = mutated(pod({"name": "c"}, {"name": "d"}, annotations=HALF), BLOCKING).object
    assert reason(admitted, BLOCKING) == ""


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("metadata",), [], "metadata: found a list of 0, expected an object"),
        (("metadata", "annotations"), {"gpu-fraction": 0.5}, "metadata.annotations.gpu-fraction: found 0.5"),
        (
            ("metadata", "ownerReferences"),
            {"a": 1},
            "metadata.ownerReferences: found an object with 1 field, expected a list",
        ),
        (("spec", "containers"), [{}, 3], "spec.containers[1]: found 3, expected an object"),
        (("spec", "containers"), [None], "spec.containers[0]: found nothing, expected an entry"),
        (("spec", "containers"), [{"env": [None]}], "spec.containers[0].env[0]: found nothing"),
        (("spec", "volumes"), 4, "spec.volumes: found 4, expected a list"),
        (("spec", "volumes"), ["v"], 'spec.volumes[0]: found "v", expected an object'),
        (
            ("spec", "containers"),
            [{"name": {}}],
            "spec.containers[0].name: found an object with 0 fields, expected a string",
        ),
        (("spec", "containers"), [{"env": "x"}], 'spec.containers[0].env: found "x", expected a list'),
        (("spec", "containers"), [{"env": [{"valueFrom": 1}]}], "spec.containers[0].env[0].valueFrom: found 1"),
        (("spec", "containers"), [{"envFrom": [{"configMapRef": 1}]}], "spec.containers[0].envFrom[0].configMapRef"),
        (("spec", "containers"), [{"resources": {"requests": {"nvidia.com/gpu": "x"}}}], "expected a quantity"),
        (("spec", "containers"), [{"resources": {"requests": {"cpu": []}}}], "expected a quantity"),
        (("spec", "schedulerName"), 5, "spec.schedulerName: found 5, expected a string"),
    ],
)
def test_a_malformed_pod_is_refused_with_the_values_path(path, value, message):
    manifest = pod(annotations=HALF)
    *parents, last = path
    target = manifest
    for step in parents:
        target = target[step]
    target[last] = value
    answers = [mutated(manifest), validate(request(manifest), SETTINGS, lambda _: None)]
    for response in answers:
        assert not response.allowed
        assert response.malformed
        assert message in response.message


def test_too_many_placement_terms_are_refused_at_creation():
    large = pod({"name": "main"})
    large["spec"]["tolerations"] = [{"operator": "Exists"}] * 1025
    assert reason(large).endswith("spec.tolerations: found 1,025 tolerations, expected at most 1,024")
    assert validate(request(large, operation="UPDATE"), SETTINGS, lambda _: None).allowed
    noted = pod({"name": "main"}, annotations={"note": "x" * 70_000})
    assert reason(noted).endswith("metadata.annotations: found 70,004 characters, expected at most 65,536")
    foreign = {**large, "spec": {**large["spec"], "schedulerName": "other"}}
    assert validate(request(foreign), SETTINGS, lambda _: None).allowed
