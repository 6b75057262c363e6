"""The configured steps of a bind, and the steps that pass shared GPUs to containers.

Steps run in descending priority and stop at the first failure. Then all are undone, even steps that did not run:
after a crash the binder does not know which did, so every `undo` must do nothing where nothing was done.

`GpuSharing` and `HamiCore` write config maps with the container's GPUs, its portion of them, and its memory limit.
Admission made the container read keys of config maps that did not exist; now the GPUs are known and the maps are
created.

Source: names, priorities and arguments are those of KAI-Scheduler's binder plugins, so that its configuration works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.fields import EMPTY
from kai.api.kinds import title
from kai.api.kubernetes.meta import ConfigMap
from kai.api.plans import Plan, Ref, create, delete, find, get, patch
from kai.api.values import BadValue
from kai.basics.errors import ConfigError
from kai.basics.parsing import floating, signed, truth
from kai.roles.binder.claims import DynamicResources
from kai.roles.binder.outcome import BindContext, BindFailureError, BindStep
from kai.roles.binder.volumes import VolumeBinding

if TYPE_CHECKING:
    from kai.api.conventions.gpu_sharing import Readers, SharedMaps
    from kai.api.kubernetes.pod import Container, Pod


def upsert_config_map(
    pod: Pod,
    name: str,
    values: Mapping[str, str],
    *,
    renewed: Mapping[str, str] = EMPTY,
) -> Plan[ConfigMap]:
    """Create or update the config map of a pod that holds ``values``, and return it.

    Other keys in the pod's own map stay. A map that an earlier pod of the same name left, or that holds the same
    values, is taken over and emptied first. Any other map is left alone: the name comes from an annotation of the pod,
    and the user who writes it may have no right to config maps. ``renewed`` are values for keys that are written only
    where they exist.

    Source: KAI-Scheduler takes over any map of that name.
    Raises: BindFailureError if the name is taken; RefusedError.
    """
    ref = Ref(ConfigMap, name, pod.metadata.namespace)
    existing = yield from find(ref)
    if existing is not None:
        # The undo of a failed attempt may just have deleted it, and a pod without its map never starts.
        existing = yield from find(ref, fresh=True)
    if existing is None:
        made = yield from create(ref, _manifest(pod, name, values))
        if made is not None:
            return made
        existing = yield from get(ref, fresh=True)
    body = _change(pod, existing, values, renewed)
    if not body:
        return existing
    # The UID makes the API server refuse the patch if another map has taken the name since.
    return (yield from patch(ref, body, uid=existing.metadata.uid))


def delete_config_map(pod: Pod, name: str) -> Plan[bool]:
    """Delete the config map of a pod; return False if there is none, or it belongs to another pod.

    Raises: RefusedError.
    """
    ref = Ref(ConfigMap, name, pod.metadata.namespace)
    existing = yield from find(ref)
    if existing is None or not (_is_of(pod, existing) or _is_left(existing)):
        return False
    return (yield from delete(ref, uid=existing.metadata.uid))


def _owners_json(pod: Pod) -> list[dict[str, str]]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}]


def _manifest(pod: Pod, name: str, values: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": pod.metadata.namespace, "ownerReferences": _owners_json(pod)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(values)}


def _change(pod: Pod, existing: ConfigMap, values: Mapping[str, str], renewed: Mapping[str, str]) -> dict[str, Any]:
    """Return the merge patch that updates a config map; {} if it is current."""
    if not _is_of(pod, existing):
        if not (_is_left(existing) or _is_of_an_earlier_life(pod, existing) or _says_the_same(existing, values)):
            raise _taken(pod, existing)
        return _take_over(pod, existing, values)
    wanted = {**values, **{key: value for key, value in renewed.items() if key in existing.data}}
    changed = {key: value for key, value in wanted.items() if existing.data.get(key) != value}
    return {"data": changed} if changed else {}


def _take_over(pod: Pod, existing: ConfigMap, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the merge patch that replaces all of a config map but its name."""
    return {
        "metadata": {
            "ownerReferences": _owners_json(pod),
            # Null removes them: nothing of an earlier owner may reach the pod.
            "labels": None,
            "annotations": None,
        },
        "data": {**dict.fromkeys(key for key in existing.data if key not in values), **values},
        "binaryData": None,
    }


def _is_of(pod: Pod, existing: ConfigMap) -> bool:
    return any(owner.uid == pod.metadata.uid for owner in existing.metadata.owner_references)


def _is_of_an_earlier_life(pod: Pod, existing: ConfigMap) -> bool:
    """Return whether only an earlier pod of this name owns a map: garbage collection will delete it."""
    owners = existing.metadata.owner_references
    return bool(owners) and all((owner.kind, owner.name) == ("Pod", pod.metadata.name) for owner in owners)


def _is_left(existing: ConfigMap) -> bool:
    """Return whether a map has no owner, and its name shows that it was created for GPU sharing."""
    return not existing.metadata.owner_references and gpu_sharing.is_drawn(existing.metadata.name)


def _says_the_same(existing: ConfigMap, values: Mapping[str, str]) -> bool:
    """Return whether a map holds exactly the values of the pod's own: taking it over loses nothing."""
    # Without values each empty map of a user would be the same.
    return bool(values) and dict(existing.data) == dict(values)


def _taken(pod: Pod, existing: ConfigMap) -> BindFailureError:
    found = f"found one that was not made for {title(pod)}"
    wanted = f"expected none of that name: its annotation {names.SHARED_GPU_CONFIG_MAP} must begin no other's name"
    return BindFailureError(f"{title(existing)}: {found}, {wanted}", retryable=False)


_CDI_DEVICE: Final = "k8s.device-plugin.nvidia.com/gpu="


@attrs.frozen(kw_only=True)
class GpuSharing:
    """Writes the config maps of a pod that shares GPUs."""

    uses_cdi: bool = False
    """Whether the device plugin expects CDI names of devices."""
    name: str = "gpusharing"

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Write the pod's devices and portion to where its container reads them.

        Source: KAI-Scheduler writes each map two or three times; the content is the same.
        Raises: BadValue if the annotation names no container of the pod; BindFailureError; RefusedError.
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
            return  # maps without a name were never created
        yield from delete_config_map(context.pod, maps.capabilities)
        yield from delete_config_map(context.pod, maps.environment)


@attrs.frozen(kw_only=True)
class HamiCore:
    """Writes the memory limit that a library inside the container enforces; needs the maps of `GpuSharing`."""

    name: str = "hamicore"

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Write the memory of the pod's portion, if the node has the memory of its GPUs as a label.

        Raises: BadValue if the annotation names no container of the pod; BindFailureError; RefusedError.
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
    """Return whether the bind gives its pod a fraction of a GPU."""
    return context.request.spec.received_resource_type == names.FRACTION


def sharing_container(pod: Pod) -> tuple[Container, SharedMaps]:
    """Return the container that gets the shared GPUs, and the config maps that it reads.

    Raises: BadValue that names the pod, if there is no such container; BindFailureError if admission set no maps.
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
    """Return whether the container reads its devices from a key of a config map, not from the map as a whole."""
    return any(
        variable.name == gpu_sharing.VISIBLE_DEVICES
        and variable.value_from is not None
        and variable.value_from.config_map_key_ref is not None
        for variable in container.env
    )


def _memory_limit(context: BindContext) -> int | None:
    """Return the pod's portion of GPU memory in MiB; None if the node has no label for it, or if it is below 1 MiB."""
    received = context.request.spec.received_gpu
    total = signed(context.node.metadata.labels.get(names.NODE_GPU_MEMORY, ""))
    portion = floating(received.portion) if received is not None else None
    if total is None or portion is None or not 0 < portion < math.inf or total <= 0:
        return None
    # Rounded down: the pods of a GPU together must not get more than it has.
    return int(total * portion) or None


BIND_TIMEOUT: Final = "bindTimeoutSeconds"
CDI_ENABLED: Final = "cdiEnabled"

Build = Callable[[Mapping[str, str]], BindStep]


@attrs.frozen(kw_only=True)
class StepOptions:
    """The configuration of one step; None keeps a default.

    ``arguments`` replace the default arguments as a whole.
    """

    enabled: bool | None = None
    priority: int | None = None
    arguments: Mapping[str, str] | None = None


@attrs.frozen(kw_only=True)
class _Known:
    """An existing step, with its defaults."""

    build: Build
    priority: int
    enabled: bool = True
    arguments: Mapping[str, str] = EMPTY


def _volumes(arguments: Mapping[str, str]) -> BindStep:
    return VolumeBinding(timeout_seconds=_seconds("volumebinding", arguments))


def _claims(arguments: Mapping[str, str]) -> BindStep:
    # Checked although nothing here waits: a configuration of KAI-Scheduler may set it.
    _seconds("dynamicresources", arguments)
    return DynamicResources()


def _sharing(arguments: Mapping[str, str]) -> BindStep:
    return GpuSharing(uses_cdi=_flag("gpusharing", arguments))


def _hami(_: Mapping[str, str]) -> BindStep:
    return HamiCore()


_KNOWN: Final[Mapping[str, _Known]] = {
    "volumebinding": _Known(build=_volumes, priority=300, arguments={BIND_TIMEOUT: "120"}),
    "dynamicresources": _Known(build=_claims, priority=200, arguments={BIND_TIMEOUT: "120"}),
    "gpusharing": _Known(build=_sharing, priority=100, arguments={CDI_ENABLED: "false"}),
    "hamicore": _Known(build=_hami, priority=50, enabled=False),
}


def resolve_steps(options: Mapping[str, StepOptions] = EMPTY) -> tuple[BindStep, ...]:
    """Return the enabled steps in the order in which they run.

    Raises: ConfigError for an unknown step, a bad argument, or a memory limit without the maps that it is written to.
    """
    unknown = sorted(options.keys() - _KNOWN.keys())
    if unknown:
        raise ConfigError.about(
            "binder", f"plugins.{unknown[0]}", found=unknown[0], wanted=f"one of {', '.join(_KNOWN)}"
        )
    enabled: list[tuple[float, str]] = []
    for name, known in _KNOWN.items():
        given = options.get(name, StepOptions())
        if known.enabled if given.enabled is None else given.enabled:
            enabled.append((-(known.priority if given.priority is None else given.priority), name))
    # By name where priorities are equal, so that the order does not depend on the configuration's.
    order = [name for _, name in sorted(enabled)]
    # Checked here and not when a pod comes: with the wrong order each bind of a shared GPU would fail.
    if "hamicore" in order:
        ranks = {name: rank for rank, name in enabled}
        if not ranks.get("gpusharing", math.inf) < ranks["hamicore"]:
            wanted = (
                "gpusharing enabled with a higher priority, since it makes the config map that hamicore writes into"
            )
            raise ConfigError.about("binder", "plugins.hamicore", found="enabled", wanted=wanted)
    return tuple(_KNOWN[name].build(_arguments(name, options)) for name in order)


def _arguments(name: str, options: Mapping[str, StepOptions]) -> Mapping[str, str]:
    given = options.get(name, StepOptions()).arguments
    return _KNOWN[name].arguments if given is None else given


def _seconds(step: str, arguments: Mapping[str, str]) -> float:
    text = arguments.get(BIND_TIMEOUT)
    seconds = signed(text) if text is not None else None
    if seconds is None or seconds < 0:
        path = f"plugins.{step}.arguments.{BIND_TIMEOUT}"
        raise ConfigError.about("binder", path, found=text, wanted="a whole number of seconds")
    return float(seconds)


def _flag(step: str, arguments: Mapping[str, str]) -> bool:
    text = arguments.get(CDI_ENABLED)
    value = truth(text) if text is not None else None
    if value is None:
        path = f"plugins.{step}.arguments.{CDI_ENABLED}"
        raise ConfigError.about("binder", path, found=text, wanted="true or false")
    return value
