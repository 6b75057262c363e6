"""Volumes as far as placement depends on them: claims, volumes, classes and the capacity of CSI drivers."""

from collections.abc import Mapping

import attrs

from kai.model.constraints import NodeTerm, Selector


@attrs.frozen(kw_only=True)
class VolumeClaim:
    """A persistent volume claim. ``size`` is in bytes; ``owner_pod`` is the uid of the only owner if that is a pod."""

    namespace: str
    name: str
    storage_class: str
    size: int
    phase: str
    volume: str = ""
    owner_pod: str = ""
    deleting: bool = False
    selected_node: str = ""
    """Annotation that the volume provisioner was told, "" if none."""
    access_modes: tuple[str, ...] = ()
    block: bool = False
    """Whether a raw device is wanted rather than a file system."""
    selector: Selector | None = None
    """Labels that a volume must have; None: any will do."""


@attrs.frozen(kw_only=True)
class Volume:
    """A persistent volume: where it may be mounted (None: anywhere)."""

    name: str
    storage_class: str
    size: int
    node_affinity: tuple[NodeTerm, ...] | None = None
    claim: tuple[str, str] | None = None
    phase: str = "Available"
    access_modes: tuple[str, ...] = ()
    block: bool = False
    labels: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    deleting: bool = False


@attrs.frozen(kw_only=True)
class StorageClass:
    """A storage class. ``wait`` says whether volumes are bound only when a pod is placed."""

    name: str
    provisioner: str
    wait: bool
    allowed_topologies: tuple[NodeTerm, ...] = ()


@attrs.frozen(kw_only=True)
class StorageCapacity:
    """What a CSI driver says is left of a class on the nodes that ``nodes`` selects. ``capacity`` is in bytes."""

    name: str
    storage_class: str
    nodes: Selector | None
    capacity: int
    largest: int | None = None
    """The largest single volume, None where the driver does not say."""


@attrs.frozen(kw_only=True)
class VolumeCatalog:
    """Everything about volumes in a snapshot."""

    claims: Mapping[tuple[str, str], VolumeClaim] = attrs.field(factory=dict)
    volumes: Mapping[str, Volume] = attrs.field(factory=dict)
    classes: Mapping[str, StorageClass] = attrs.field(factory=dict)
    drivers: frozenset[str] = frozenset()
    """Drivers that report capacities."""
    capacities: tuple[StorageCapacity, ...] = ()
    share_capacity: bool = True
    """Whether capacities are shared out among the pods of a session; if not, each claim alone must fit in one."""
