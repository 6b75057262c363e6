import pytest

from kai.api.conventions.gpu_sharing import gpu_model, is_model_name, model_of, weighed_model


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("NVIDIA-H100-PCIe", "h100"),
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA-GH200-480GB", "gh200"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100-mig-1g.5gb"),
        ("NVIDIA-A10G-SHARED", "a10g-shared"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "h100-mig-1g.10gb-shared"),
        ("Tesla-V100-SXM2-16GB", "v100"),
        ("Tesla-T4", "t4"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA-GeForce-RTX-4090", "rtx-4090"),
        ("NVIDIA-RTX-6000-Ada-Generation", "rtx-6000"),
        ("NVIDIA-RTX-PRO-6000-Blackwell", "rtx-pro-6000"),
        ("NVIDIA-TITAN", "titan"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("A100", "a100"),
        ("", "other"),
        ("---", "other"),
        ("x" * 100, "x" * 63),
    ],
)
def test_a_model_is_the_first_word_after_the_maker(product, model):
    assert model_of(product) == model
    assert is_model_name(model)


def test_a_label_with_the_model_goes_before_the_product():
    labels = {"kai.scheduler/gpu-model": "h100-pcie", "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}
    assert gpu_model(labels) == "h100-pcie"


def test_an_invalid_model_label_is_ignored():
    labels = {"kai.scheduler/gpu-model": "No_Model", "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}
    assert gpu_model(labels) == "h100"


def test_device_products_name_the_model_without_a_label():
    assert gpu_model({}, ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"]) == "h100"
    assert gpu_model({}, ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"]) == "mixed"
    assert gpu_model({"nvidia.com/gpu.product": "Tesla-T4"}, ["NVIDIA H100 80GB HBM3"]) == "t4"


def test_unnamed_gpus_are_other_and_no_gpus_nothing():
    assert gpu_model({}) == "other"
    assert gpu_model({}, has_gpus=False) == ""


@pytest.mark.parametrize(
    ("labels", "model"),
    [
        ({}, ""),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}, "NVIDIA-H100-PCIe"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-PCIe", "kai.scheduler/gpu-model": "h100-pcie"}, "h100-pcie"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-PCIe", "kai.scheduler/gpu-model": "H100!"}, "NVIDIA-H100-PCIe"),
    ],
)
def test_the_label_of_an_administrator_is_weighed_first(labels, model):
    assert weighed_model(labels) == model
