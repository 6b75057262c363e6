"""The steps that tell a container which GPUs it shares, how much of them, and how much memory that is.

Admission made the container read keys of config maps that did not exist; now the GPUs are known and the maps are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import attrs

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.gpu_sharing import Readers, SharedMaps
from kai.api.kinds import title
from kai.api.kubernetes.pod import Container, Pod
from kai.api.plans import Plan
from kai.api.values.bad_value import BadValue
from kai.binder.configmaps import delete_config_map, upsert_config_map
from kai.binder.context import BindContext
from kai.binder.outcome import BindFailureError
from kai.numerals import floating, signed

_CDI_DEVICE: Final = "k8s.device-plugin.nvidia.com/gpu="


@attrs.frozen(kw_only=True)
class GpuSharing:
    """Writes the config maps of a pod that shares GPUs."""

    uses_cdi: bool = False
    """Whether the device plugin wants devices by their CDI names."""
    name: str = "gpusharing"

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Write the pod's devices and portion where its container reads them.

        Source: the peer writes each map two or three times over; the content is the same.
        Raises: BadValue if the pod names no container of its own; BindFailureError; RefusedError.
        """
        if not shares_gpu(context):
            return
        pod = context.pod
        container, maps = sharing_container(pod)
        received = context.request.spec.received_gpu
        if received is None:
            raise BindFailureError(f"{title(context.request)}: names no received GPU", retryable=False)
        visible = ",".join(f"{_CDI_DEVICE}{device}" if self.uses_cdi else device for device in context.devices)
        devices = {gpu_sharing.VISIBLE_DEVICES: visible}
        portion = {gpu_sharing.NUM_OF_GPUS: received.portion, gpu_sharing.GPU_PORTION: received.portion}
        legacy = {gpu_sharing.LEGACY_VISIBLE_DEVICES: visible}
        if _reads_devices_by_key(container):
            yield from upsert_config_map(pod, maps.capabilities, {**devices, **portion}, renewed=legacy)
            yield from upsert_config_map(pod, maps.environment, {})
        else:
            yield from upsert_config_map(pod, maps.capabilities, portion)
            yield from upsert_config_map(pod, maps.environment, devices, renewed=legacy)

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Delete the pod's config maps.

        Raises: RefusedError.
        """
        if not shares_gpu(context):
            return
        try:
            _, maps = sharing_container(context.pod)
        except (BadValue, BindFailureError):
            return  # what cannot be named was never made
        yield from delete_config_map(context.pod, maps.capabilities)
        yield from delete_config_map(context.pod, maps.environment)


@attrs.frozen(kw_only=True)
class HamiCore:
    """Writes the memory limit that a library inside the container keeps; needs the maps that `GpuSharing` makes."""

    name: str = "hamicore"

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Write how much memory the pod's portion is, if the node tells the size of its GPUs.

        Raises: BadValue if the pod names no container of its own; BindFailureError; RefusedError.
        """
        if not shares_gpu(context):
            return
        limit = _memory_limit(context)
        if limit is None:
            return
        _, maps = sharing_container(context.pod)
        yield from upsert_config_map(context.pod, maps.capabilities, {gpu_sharing.CUDA_MEMORY_LIMIT: f"{limit}m"})

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Do nothing: the maps go with `GpuSharing`."""
        yield from ()


def shares_gpu(context: BindContext) -> bool:
    """Return whether the bind is of a pod that was given a part of a GPU."""
    return context.request.spec.received_resource_type == names.FRACTION


def sharing_container(pod: Pod) -> tuple[Container, SharedMaps]:
    """Return the container that gets the shared GPUs, and its maps: those that it reads.

    Raises: BadValue that names the pod, if there is no such container; BindFailureError if admission chose no maps.
    """
    annotations, initial, others = pod.metadata.annotations, pod.spec.init_containers, pod.spec.containers
    try:
        place = gpu_sharing.sharing_container(annotations, _readers(initial), _readers(others))
    except BadValue as error:
        raise error.of(title(pod)) from None
    container = (initial if place.initial else others)[place.index]
    maps = gpu_sharing.shared_maps(annotations, place, _maps_of(container))
    if maps is None:
        message = f"{title(pod)}: has no annotation {names.SHARED_GPU_CONFIG_MAP}; it was created without admission"
        raise BindFailureError(message, retryable=False)
    return container, maps


def _readers(containers: Iterable[Container]) -> Readers:
    return [(container.name, _maps_of(container)) for container in containers]


def _maps_of(container: Container) -> tuple[str, ...]:
    references = [each.value_from.config_map_key_ref for each in container.env if each.value_from is not None]
    return tuple(reference.name for reference in references if reference is not None)


def _reads_devices_by_key(container: Container) -> bool:
    """Return whether the container reads its devices from a key of a config map, and not as a whole environment."""
    return any(
        variable.name == gpu_sharing.VISIBLE_DEVICES
        and variable.value_from is not None
        and variable.value_from.config_map_key_ref is not None
        for variable in container.env
    )


def _memory_limit(context: BindContext) -> int | None:
    """Return the MiB that the pod's portion of a GPU is; None if the node does not tell, or if it is less than one."""
    received = context.request.spec.received_gpu
    total = signed(context.node.metadata.labels.get(names.NODE_GPU_MEMORY, ""))
    portion = floating(received.portion) if received is not None else None
    if total is None or portion is None or not 0 < portion < math.inf or total <= 0:
        return None
    return int(total * portion) or None
