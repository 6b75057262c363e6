"""Pod: the fields that decide where it may run, and its state."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Format, Int32, Labels, Port, Requests, Time, by_content, shared
from kai.api.kubernetes.meta import Condition, ObjectMeta
from kai.api.kubernetes.node import Affinity, Toleration, TopologySpreadConstraint
from kai.api.kubernetes.storage import PersistentVolumeClaimTemplate

PodPhase: TypeAlias = Literal["", "Pending", "Running", "Succeeded", "Failed", "Unknown"]
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases in which no container of a pod runs any more, nor will."""
GRACE_SECONDS: Final = 30.0
"""Kubernetes' default grace period: the most that a deleted pod takes to stop, unless its spec says otherwise."""
UNCOUNTED: Final = ENDED | {"Unknown"}
"""Phases in which a pod is charged to no account: the ended ones, and Unknown, when its node does not answer.

Source: the peer's pod status. Writes to nodes test ``ENDED`` instead, as containers of an unknown pod may still run.
"""


@attrs.frozen(kw_only=True, weakref_slot=False)
class ContainerClaim:
    """The use of one of the pod's resource claims by a container."""

    name: str
    request: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class ResourceRequirements:
    """The requests and limits of a container or pod."""

    requests: Requests = attrs.field(default=EMPTY, eq=by_content)
    limits: Requests = attrs.field(default=EMPTY, eq=by_content)
    claims: tuple[ContainerClaim, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class ContainerPort:
    """A port of a container; only one with a host port matters to scheduling."""

    container_port: Port = 0
    host_port: Port = 0
    host_ip: str = ""
    protocol: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class ConfigMapRef:
    """A reference to a config map, or to one key of it."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class EnvVarSource:
    """The source of an environment variable's value; sources other than config maps are dropped."""

    config_map_key_ref: ConfigMapRef | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class EnvVar:
    """An environment variable that takes its value from a config map."""

    name: str = ""
    value_from: EnvVarSource | None = None


ReferringEnv: TypeAlias = Annotated[tuple[EnvVar, ...], Format("referring")]
"""Only the variables that need a config map: no decision depends on other values, and they may be secrets."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class EnvFromSource:
    """A config map all of whose keys become environment variables."""

    prefix: str = ""
    config_map_ref: ConfigMapRef | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class VolumeMount:
    """The pod volume that a container mounts; no decision depends on the mount path."""

    name: str = ""
    bind_mount_options: tuple[str, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class ContainerRestartRule:
    """The action to take when a container exits in some way."""

    action: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class Container:
    """A container, init container or ephemeral container.

    An init container with `restart_policy` ``Always`` is a sidecar.
    """

    name: str = ""
    resources: ResourceRequirements = attrs.field(default=ResourceRequirements(), metadata=shared())
    ports: tuple[ContainerPort, ...] = ()
    env: ReferringEnv = ()
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodSchedulingGate:
    """A reason to keep a pod out of scheduling for now."""

    name: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodResourceClaim:
    """A claim of a pod: an object by name, or a template from which one is made for this pod."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class PersistentVolumeClaimSource:
    """The claim that a volume mounts."""

    claim_name: str = ""
    read_only: bool = False


@attrs.frozen(kw_only=True, weakref_slot=False)
class ConfigMapVolume:
    """The config map that a volume mounts."""

    name: str = ""
    optional: bool | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class SecretVolume:
    """The secret that a volume mounts."""

    secret_name: str = ""
    optional: bool | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class SecretProjection:
    """The secret that one source of a projected volume mounts."""

    name: str = ""
    optional: bool | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class EphemeralVolume:
    """A claim that is created for the pod and deleted with it."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class VolumeProjection:
    """One part of a projected volume."""

    config_map: ConfigMapVolume | None = None
    secret: SecretProjection | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class ProjectedVolume:
    """A volume put together from several sources."""

    sources: tuple[VolumeProjection, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class CsiVolume:
    """An ephemeral volume served directly by a driver."""

    driver: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class Volume:
    """A volume of a pod; of volume types that need nothing from a node only the name is kept."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None
    ephemeral: EphemeralVolume | None = None
    csi: CsiVolume | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodSpec:
    """The spec of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: Int32 | None = None
    node_selector: Labels = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    affinity: Affinity | None = attrs.field(default=None, metadata=shared())
    tolerations: tuple[Toleration, ...] = attrs.field(default=(), metadata=shared())
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = attrs.field(default=(), metadata=shared())
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    overhead: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    resources: ResourceRequirements | None = attrs.field(default=None, metadata=shared())
    """Pod-level requests and limits."""
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    runtime_class_name: str | None = None


TemplatedSpec: TypeAlias = Annotated[PodSpec, Format("templated")]
"""Pods of one template share everything but the name of the node."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodResourceClaimStatus:
    """The object behind a claim of a pod; without a name the pod needs none."""

    name: str
    resource_claim_name: str | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class ExtendedResourceMapping:
    """The request of the extended-resource claim that serves one resource of one container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class ExtendedResourceClaimStatus:
    """The claim that was made for extended resources which a device class backs."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedResourceMapping, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class ContainerStatus:
    """The resources of a container by its kubelet: those allocated on the node, and those applied."""

    name: str = ""
    allocated_resources: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    resources: ResourceRequirements | None = attrs.field(default=None, metadata=shared())


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodStatus:
    """The status of a pod."""

    phase: PodPhase = ""
    conditions: tuple[Condition, ...] = attrs.field(default=())
    nominated_node_name: str = ""
    start_time: Time | None = None
    qos_class: str = ""
    container_statuses: tuple[ContainerStatus, ...] = attrs.field(default=(), metadata=shared())
    init_container_statuses: tuple[ContainerStatus, ...] = attrs.field(default=(), metadata=shared())
    allocated_resources: Requests = attrs.field(default=EMPTY, eq=by_content, metadata=shared())
    resources: ResourceRequirements | None = attrs.field(default=None, metadata=shared())
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class Pod:
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TemplatedSpec = PodSpec()
    # Statuses of containers differ between running pods.
    status: PodStatus = attrs.field(default=PodStatus(), metadata=shared())


def condition_of(pod: Pod, kind: str) -> Condition | None:
    """Return the first condition of a type that a pod has, None if it has none."""
    return next((each for each in pod.status.conditions if each.type == kind), None)


def claim_behind(pod: Pod, reference: PodResourceClaim) -> str | None:
    """Return the name of the claim behind a reference; empty if none is needed, None if it is not known yet."""
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == reference.name:
            return status.resource_claim_name or ""
    return None
