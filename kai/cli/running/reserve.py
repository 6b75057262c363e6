"""``kai reserve``, the program of a reservation pod: it reports which GPU the pod got, and holds it until it is ended.

The kubelet chooses the GPU, and only the container sees which one it is. Its UUID goes into an annotation of the pod,
where the binder waits for it.

Source: KAI-Scheduler's program of the same purpose asks NVML as well and writes the same annotation.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from kai.basics.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LIBRARY: Final = "libnvidia-ml.so.1"
_LONGEST: Final = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
_RETRY_SECONDS: Final = 2.0


@click.command(hidden=True)
@click.option("--device", default="", help="The GPU to name, instead of asking the driver.")
def reserve(device: str) -> int:
    """Say which GPU this pod was given, and hold it. Runs in the reservation pods that the binder makes."""
    anyio.run(hold, device or visible_gpu(), dict(os.environ))
    return 0


def visible_gpu(load: Callable[[str], Any] = ctypes.CDLL) -> str:
    """Return the UUID of the one GPU that this container sees.

    Raises: InputError if there is no driver, or not exactly one GPU.
    """
    wanted = "exactly one GPU, given to this container by the device plugin"
    try:
        # Loaded at run time: the image has no driver, the NVIDIA runtime mounts it.
        library = load(_LIBRARY)
    except OSError as error:
        raise InputError.about("reserve", _LIBRARY, found=str(error), wanted=wanted) from None
    _check(library.nvmlInit_v2(), "nvmlInit")
    try:
        count = ctypes.c_uint(0)
        _check(library.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount")
        if count.value != 1:
            raise InputError.about("reserve", "GPUs", found=str(count.value), wanted=wanted)
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(_LONGEST)
        _check(library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), ctypes.byref(handle)), "nvmlDeviceGetHandle")
        _check(library.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(_LONGEST)), "nvmlDeviceGetUUID")
        return text.value.decode()
    finally:
        library.nvmlShutdown()


def _check(status: int, call: str) -> None:
    if status:
        raise InputError.about("reserve", call, found=f"NVML error {status}", wanted="0, success")


async def hold(device: str, environment: Mapping[str, str]) -> None:
    """Write the GPU into the pod's annotation, unless there is one already, and wait for a signal.

    Raises: ConfigError if the environment does not name the pod.
    """
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    if not name or not namespace:
        raise ConfigError("reserve: found no POD_NAME and POD_NAMESPACE, expected the pod's own name in them")
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_announce, device, name, namespace, environment)
            # It holds the GPU by running: the kubelet frees the device when this process ends.
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


async def _announce(device: str, name: str, namespace: str, environment: Mapping[str, str]) -> None:
    import structlog

    from kai.api import names
    from kai.api.kubernetes.pod import Pod
    from kai.api.plans import Patch, Ref, Refusal
    from kai.cluster.connect import Options, connect
    from kai.cluster.requests import Fetch
    from kai.cluster.transport.credentials import Source

    log = structlog.get_logger()
    async with connect(Options(component="reserve", watched=(), source=Source(environment=environment))) as cluster:
        while True:
            found: Any = await cluster.api.perform(Fetch(api_version="v1", kind="Pod", name=name, namespace=namespace))
            if not isinstance(found, Refusal):
                named = found["metadata"].get("annotations", {}).get(names.RESERVED_GPU, "")
                if named:  # a restarted container keeps its GPU
                    log.info("named before", pod=f"{namespace}/{name}", gpu=named)
                    return
                # The uid is a precondition: a new pod of this name must not be annotated with this pod's GPU.
                patch = {"metadata": {"uid": found["metadata"]["uid"], "annotations": {names.RESERVED_GPU: device}}}
                ref = Ref(Pod, name, namespace)
                found = await cluster.api.perform(Patch(ref=ref, patch=patch))
            if not isinstance(found, Refusal):
                log.info("holding", pod=f"{namespace}/{name}", gpu=device)
                return
            log.warning("not named yet", pod=f"{namespace}/{name}", why=found.why)
            await anyio.sleep(_RETRY_SECONDS)
