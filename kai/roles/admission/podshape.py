"""A pod as webhook rules read it, a draft for changes, and the references that GPU sharing adds.

`PodShape` validates and keeps the few fields that rules read. `PodDraft` copies the parts that rules change and shares
the rest with the original manifest, so that the patch between the two is found without comparing whole pods.

The devices of a pod that shares GPUs are not known at admission. So its container gets variables that refer to keys of
a config map, which the binder creates before it binds the pod; the config map's name is generated here and kept in an
annotation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.values import WANTED, BadValue, amount
from kai.roles.admission.review import Piece, piece_of

if TYPE_CHECKING:
    from kai.api.conventions.gpu_sharing import ContainerPlace, SharedMaps

Manifest: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = dict[str, Any]


@attrs.frozen(kw_only=True)
class Variable:
    """An environment variable: a literal value, or a reference."""

    name: str
    value: str
    is_reference: bool
    config_map: str = ""
    """The config map that the variable refers to; "" for none."""


@attrs.frozen(kw_only=True)
class ContainerShape:
    """The fields of a container that rules read."""

    name: str
    variables: tuple[Variable, ...]
    requests: Mapping[str, str]
    limits: Mapping[str, str]

    @property
    def config_maps(self) -> tuple[str, ...]:
        """The config maps that its variables refer to."""
        return tuple(variable.config_map for variable in self.variables if variable.config_map)

    @property
    def requests_device(self) -> bool:
        """Whether the container requests whole GPUs or MIG devices; the API server fills requests from limits."""
        return any(
            amount(text) != 0
            for name, text in self.requests.items()
            if name == names.NVIDIA_GPU or name.startswith(names.MIG_PREFIX)
        )


@attrs.frozen(kw_only=True)
class PodShape:
    """The fields of a pod that rules read."""

    name: str
    name_start: str
    """The generateName of a pod without a name: the API server completes it after admission."""
    namespace: str
    annotations: Mapping[str, str]
    first_owner: str | None
    """The name of the first owner, whatever its kind; None for a pod without owners."""
    runtime_class: str
    init_containers: tuple[ContainerShape, ...]
    containers: tuple[ContainerShape, ...]
    ephemeral_containers: tuple[ContainerShape, ...] = ()
    """Containers added for debugging while the pod runs; they have no resource requests."""

    @property
    def shares_gpu(self) -> bool:
        """Whether the pod asks for a part of a GPU."""
        return gpu_sharing.requests_fraction(self.annotations)

    def sharing_place(self) -> ContainerPlace | None:
        """Return the place of the container that gets the shared GPUs; None for a pod without a share.

        A pod without containers has none either: the webhook may see it before the API server has refused it.

        Raises: BadValue if the annotation names no container of the pod.
        """
        if not self.shares_gpu or not self.containers:
            return None
        return gpu_sharing.sharing_container(
            self.annotations,
            [(container.name, container.config_maps) for container in self.init_containers],
            [(container.name, container.config_maps) for container in self.containers],
        )

    def container(self, place: ContainerPlace) -> ContainerShape:
        """Return one container."""
        return (self.init_containers if place.initial else self.containers)[place.index]


def read_pod(manifest: Manifest) -> PodShape:
    """Return the shape of a pod.

    Raises: BadValue if a field that a rule reads is invalid.
    """
    pod = piece_of(manifest, "Pod")
    metadata, spec = pod["metadata"], pod["spec"]
    # Only looked at: `_set_volume` reads them as mappings, and a pod that is malformed must be refused here with its
    # path.
    for volume in spec["volumes"].each():
        volume.mapping()
    owners = [owner["name"].text() for owner in metadata["ownerReferences"].each()]
    return PodShape(
        name=metadata["name"].text(),
        name_start=metadata["generateName"].text(),
        namespace=metadata["namespace"].text(),
        annotations=metadata["annotations"].texts(),
        first_owner=owners[0] if owners else None,
        runtime_class=spec["runtimeClassName"].text(),
        init_containers=tuple(_read_container(container) for container in spec["initContainers"].each()),
        containers=tuple(_read_container(container) for container in spec["containers"].each()),
        ephemeral_containers=tuple(_read_container(container) for container in spec["ephemeralContainers"].each()),
    )


def _read_container(container: Piece) -> ContainerShape:
    variables = tuple(
        Variable(
            name=variable["name"].text(),
            value=variable["value"].text(),
            is_reference=variable["valueFrom"].mapping_or_none() is not None,
            config_map=variable["valueFrom"]["configMapKeyRef"]["name"].text(),
        )
        for variable in container["env"].each()
    )
    for source in container["envFrom"].each():
        source["configMapRef"].mapping()
    return ContainerShape(
        name=container["name"].text(),
        variables=variables,
        requests=_amounts(container["resources"]["requests"]),
        limits=_amounts(container["resources"]["limits"]),
    )


def _amounts(resources: Piece) -> dict[str, str]:
    """Return amounts as text; JSON may hold them as numbers."""
    amounts = {}
    for name, value in resources.mapping().items():
        # A truth value is an int in Python, but no amount.
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise resources[name].bad(WANTED)
        amounts[name] = str(value)
        if name == names.NVIDIA_GPU or name.startswith(names.MIG_PREFIX):
            try:
                amount(amounts[name])
            except BadValue as error:
                raise resources[name].bad(error.wanted) from None
    return amounts


@attrs.define
class PodDraft:
    """A pod under change. Fields that are not listed here stay as they are, unknown fields included."""

    manifest: Manifest
    namespace: str
    annotations: Fields
    init_containers: list[Fields]
    containers: list[Fields]
    volumes: list[Fields]
    runtime_class: str | None
    ephemeral_containers: list[Fields]

    @classmethod
    def of(cls, manifest: Manifest) -> PodDraft:
        """Return a draft of a pod that `read_pod` has read."""
        metadata, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
        return cls(
            manifest=manifest,
            namespace=metadata.get("namespace") or "",
            annotations=dict(metadata.get("annotations") or {}),
            init_containers=list(spec.get("initContainers") or ()),
            containers=list(spec.get("containers") or ()),
            volumes=list(spec.get("volumes") or ()),
            runtime_class=spec.get("runtimeClassName"),
            ephemeral_containers=list(spec.get("ephemeralContainers") or ()),
        )

    def change_container(self, place: ContainerPlace, **fields: object) -> None:
        """Set fields of one container."""
        containers = self.init_containers if place.initial else self.containers
        containers[place.index] = {**containers[place.index], **fields}

    def container(self, place: ContainerPlace) -> Fields:
        """Return one container; it must not be changed in place."""
        return (self.init_containers if place.initial else self.containers)[place.index]

    def finish(self) -> Manifest:
        """Return the changed pod; the original manifest itself if nothing changed."""
        metadata = self.manifest.get("metadata") or {}
        spec = self.manifest.get("spec") or {}
        new_metadata = _with(metadata, namespace=self.namespace, annotations=self.annotations)
        new_spec = _with(
            spec,
            initContainers=self.init_containers,
            containers=self.containers,
            volumes=self.volumes,
            runtimeClassName=self.runtime_class,
            ephemeralContainers=self.ephemeral_containers,
        )
        if new_metadata is metadata and new_spec is spec:
            return self.manifest
        return {**self.manifest, "metadata": new_metadata, "spec": new_spec}


def _with(fields: Mapping[str, Any], **values: object) -> Mapping[str, Any]:
    """Return `fields` with the values that differ; the same object if none does. Empty values are not added."""
    # An empty list that the pod did not have would be a change, and a patch for each pod.
    changed = {key: value for key, value in values.items() if (value or fields.get(key)) and fields.get(key) != value}
    return {**fields, **changed} if changed else fields


Draw: TypeAlias = Callable[[int], str]
"""Draws random lower-case letters and digits, given their number. It is the only randomness in admission, so it is
passed in.
"""

_VOLUME_NAME_LIMIT: Final = 63
_UNNAMED: Final = "pod"
_NOT_IN_A_DNS_LABEL: Final = re.compile(r"[^a-z0-9-]+")


def inject_references(shape: PodShape, draft: PodDraft, draw: Draw) -> None:
    """Let the container that shares GPUs read its devices and its portion from future config maps.

    Holds: idempotent: the names are kept, even if another webhook has inserted containers before the one with the
        references.
    """
    place = shape.sharing_place()
    if place is None:
        return
    if names.SHARED_GPU_CONFIG_MAP not in draft.annotations:
        draft.annotations[names.SHARED_GPU_CONFIG_MAP] = _draw_prefix(shape, place, draw)
    maps = _maps(shape, draft, place)
    if maps is None:
        return
    for key in (gpu_sharing.VISIBLE_DEVICES, gpu_sharing.NUM_OF_GPUS, gpu_sharing.GPU_PORTION):
        set_reference(draft, place, key, maps.capabilities)
    _set_volume(draft, maps.capabilities)
    _add_environment(draft, place, maps.environment)


def inject_memory_limit(shape: PodShape, draft: PodDraft) -> None:
    """Let the container that shares GPUs read its memory limit, which the binder computes later.

    It needs the names that `inject_references` chose. The key may stay absent: the binder writes none where the node
    does not report the size of its GPUs.
    """
    place = shape.sharing_place()
    maps = None if place is None else _maps(shape, draft, place)
    if place is not None and maps is not None:
        set_reference(draft, place, gpu_sharing.CUDA_MEMORY_LIMIT, maps.capabilities, optional=True)


def _maps(shape: PodShape, draft: PodDraft, place: ContainerPlace) -> SharedMaps | None:
    return gpu_sharing.shared_maps(draft.annotations, place, shape.container(place).config_maps)


def set_reference(draft: PodDraft, place: ContainerPlace, key: str, config_map: str, **more: bool) -> None:
    """Make a container's variable read the key of its own name in a config map; an earlier definition is replaced."""
    reference = {"key": key, "name": config_map, **more}
    kept = [variable for variable in draft.container(place).get("env") or () if variable.get("name") != key]
    variable: dict[str, Any] = {"name": key, "valueFrom": {"configMapKeyRef": reference}}
    draft.change_container(place, env=[*kept, variable])


def _add_environment(draft: PodDraft, place: ContainerPlace, config_map: str) -> None:
    sources = list(draft.container(place).get("envFrom") or ())
    if any((source.get("configMapRef") or {}).get("name") == config_map for source in sources):
        return
    sources.append({"configMapRef": {"name": config_map, "optional": False}})
    draft.change_container(place, envFrom=sources)


def _set_volume(draft: PodDraft, config_map: str) -> None:
    name = _volume_name(config_map)
    # Replaced where it is there already: the API server may call a webhook twice for one pod.
    kept = [volume for volume in draft.volumes if volume.get("name") != name]
    draft.volumes = [*kept, {"name": name, "configMap": {"name": config_map}}]


def _volume_name(config_map: str) -> str:
    """Return the name of the volume of a config map: the map's name, as a DNS label."""
    return _NOT_IN_A_DNS_LABEL.sub("-", f"{config_map}-vol".lower()).strip("-")


def _draw_prefix(shape: PodShape, place: ContainerPlace, draw: Draw) -> str:
    """Return the common prefix of the names of a pod's config maps.

    It begins with the name of the first owner, or of the pod, which may have none yet, cut so that the longest
    name with the prefix fits: 13 characters go to the random part, its hyphens and ``-vol``, then ``shared-gpu``, the
    container's place and ``-evar``.
    """
    room = (
        _VOLUME_NAME_LIMIT
        - (gpu_sharing.MAP_DRAWN + 6)
        - len(gpu_sharing.MAP_SUFFIX)
        - (len(str(place.index)) + 1)
        - len("-evar")
    )
    base = (shape.name or shape.name_start) if shape.first_owner is None else shape.first_owner
    return f"{base[:room].rstrip('.-') or _UNNAMED}-{draw(gpu_sharing.MAP_DRAWN)}-{gpu_sharing.MAP_SUFFIX}"
