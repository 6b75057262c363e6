"""What a pod may ask of GPUs: whole ones, or a part by fraction or by memory, but not both."""

from __future__ import annotations

import math

from kai.admission.podshape import PodShape
from kai.api import names
from kai.api.values.bad_value import BadValue
from kai.api.values.quantity import amount
from kai.numerals import floating, unsigned


def refuse_gpu_requests(shape: PodShape) -> str:
    """Return why the pod's requests for GPUs are refused; empty if they are not.

    Source: messages and their order are the peer's, whose users' scripts match on them. Whole GPUs are looked for in
    the limits of all containers.
    """
    fraction = shape.annotations.get(names.GPU_FRACTION)
    memory = shape.annotations.get(names.GPU_MEMORY)
    devices = shape.annotations.get(names.GPU_FRACTION_DEVICES)
    whole = any(names.NVIDIA_GPU in container.limits for container in (*shape.containers, *shape.init_containers))
    shares = fraction is not None or memory is not None
    if not shares and shape.annotations.get(names.MPS) == "true":
        return "MPS is only supported with GPU fraction request"
    if fraction is not None and whole:
        return "cannot have both GPU fraction request and whole GPU resource request/limit"
    if memory is not None and (fraction is not None or whole):
        return "cannot request both GPU and GPU memory"
    if devices is not None and not shares:
        return "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
    if memory is not None and not unsigned(memory):
        return "gpu-memory annotation value must be a positive integer greater than 0"
    if fraction is not None and (reason := _refuse_fraction(fraction)):
        return reason
    if devices is not None and not unsigned(devices):
        return "fraction count annotation value must be a positive integer greater than 0"
    return ""


def _refuse_fraction(text: str) -> str:
    number = floating(text)
    # NaN is neither too small nor too large; like a hexadecimal number it fails as a quantity below.
    if number is None or not (math.isnan(number) or 0 < number < 1):
        return "gpu-fraction annotation value must be a positive number smaller than 1.0"
    try:
        amount(text, 10**9)
    except BadValue:
        return (
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation"
            f" .given value: {text}"
        )
    return ""
