"""The objects for volumes: claims, the volumes and classes behind them, and capacity reports of storage drivers.

Reports about nodes are kept out of the catalog, because a change of the catalog recomputes everything derived from it.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.framework import (
    NodeTerm,
    Objects,
    RawObject,
    Requirement,
    Selector,
    SessionView,
    amount,
    node_terms_of,
    selector_of,
)

_STORAGE: Final = "storage"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_CORE, _GROUP = "v1", "storage.k8s.io/v1"


@attrs.frozen(kw_only=True)
class VolumeClaim:
    """A persistent volume claim. ``size`` is in bytes; ``owner_pod`` is the uid of the only owner if that is a pod."""

    namespace: str
    name: str
    storage_class: str
    size: int
    phase: str
    volume: str = ""
    bind_completed: bool = False
    """Whether an annotation says that the binding is complete, on both sides."""
    owner_pod: str = ""
    deleting: bool = False
    selected_node: str = ""
    """The annotation for the volume provisioner, "" if there is none."""
    access_modes: tuple[str, ...] = ()
    block: bool = False
    """Whether a raw device is wanted rather than a file system."""
    selector: Selector | None = None
    """Labels that a volume must have; None: any will do."""
    uid: str = ""


@attrs.frozen(kw_only=True)
class Volume:
    """A persistent volume: where it may be mounted (None: anywhere)."""

    name: str
    storage_class: str
    size: int
    node_affinity: tuple[NodeTerm, ...] | None = None
    claim: tuple[str, str] | None = None
    """Namespace and name of the claim that it is, was, or will be bound to."""
    claim_uid: str = ""
    """The uid of that claim; "" if the volume gives only the name."""
    phase: str = "Available"
    access_modes: tuple[str, ...] = ()
    block: bool = False
    labels: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    deleting: bool = False
    driver: str = ""
    """The CSI driver behind it, "" for none."""
    handle: str = ""
    """What the driver calls it."""


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


def read_catalog(view: SessionView) -> VolumeCatalog:
    """Return everything about volumes; the same catalog for as long as no object of these kinds changed."""
    found = tuple(view.values(each) for each in (CLAIMS, VOLUMES, CLASSES, DRIVERS, CAPACITIES))

    def catalog() -> VolumeCatalog:
        claims, volumes, classes, drivers, capacities = found
        return VolumeCatalog(
            claims={(each.namespace, each.name): each for each in claims.values() if isinstance(each, VolumeClaim)},
            volumes={name: each for name, each in volumes.items() if isinstance(each, Volume)},
            classes={name: each for name, each in classes.items() if isinstance(each, StorageClass)},
            drivers=frozenset(name for name, reports in drivers.items() if reports is True),
            capacities=tuple(each for each in capacities.values() if isinstance(each, StorageCapacity)),
        )

    return view.once("volumes", found, catalog)


def _claim(raw: RawObject) -> VolumeClaim:
    content = raw.content
    spec, phase = content.get("spec", {}), content.get("status", {}).get("phase", "")
    return VolumeClaim(
        namespace=raw.namespace,
        name=raw.name,
        storage_class=spec.get("storageClassName") or "",
        size=_bytes(spec.get("resources", {}).get("requests", {})),
        phase=phase,
        volume=spec.get("volumeName", ""),
        bind_completed=_BIND_COMPLETED in raw.annotations,
        # With a second owner the claim outlives its pod, so it gives nothing back when the pod goes.
        owner_pod=raw.owners[0][1] if len(raw.owners) == 1 and raw.owners[0][0] == "Pod" else "",
        deleting=raw.deleting,
        selected_node=raw.annotations.get(_SELECTED_NODE, ""),
        access_modes=tuple(spec.get("accessModes", ())),
        block=_is_block(spec),
        selector=selector_of(spec.get("selector")),
        uid=raw.uid,
    )


def _volume(raw: RawObject) -> Volume:
    content = raw.content
    spec, phase = content.get("spec", {}), content.get("status", {}).get("phase", "")
    claim, affinity, csi = spec.get("claimRef"), spec.get("nodeAffinity"), spec.get("csi", {})
    return Volume(
        name=raw.name,
        storage_class=spec.get("storageClassName", ""),
        size=_bytes(spec.get("capacity", {})),
        node_affinity=node_terms_of(affinity.get("required")) if affinity else None,
        claim=(claim.get("namespace", ""), claim.get("name", "")) if claim is not None else None,
        claim_uid=claim.get("uid", "") if claim is not None else "",
        phase=phase,
        access_modes=tuple(spec.get("accessModes", ())),
        block=_is_block(spec),
        labels=raw.labels,
        deleting=raw.deleting,
        driver=csi.get("driver", ""),
        handle=csi.get("volumeHandle", ""),
    )


def _class(raw: RawObject) -> StorageClass:
    content = raw.content
    return StorageClass(
        name=raw.name,
        provisioner=content.get("provisioner", ""),
        wait=content.get("volumeBindingMode") == "WaitForFirstConsumer",
        allowed_topologies=tuple(_topology_term(term) for term in content.get("allowedTopologies", ())),
    )


def _topology_term(written: Mapping[str, Any]) -> NodeTerm:
    found = written.get("matchLabelExpressions", ())
    return NodeTerm(tuple(Requirement(each["key"], "In", tuple(each.get("values", ()))) for each in found))


def _reports(raw: RawObject) -> bool:
    return bool(raw.spec.get("storageCapacity"))


def _capacity(raw: RawObject) -> StorageCapacity:
    content = raw.content
    capacity, largest = content.get("capacity"), content.get("maximumVolumeSize")
    return StorageCapacity(
        name=raw.key,
        storage_class=content.get("storageClassName", ""),
        nodes=selector_of(content.get("nodeTopology")),
        capacity=amount(capacity) if capacity else 0,
        largest=amount(largest) if largest else None,
    )


def _counts(raw: RawObject) -> Mapping[str, int]:
    """Return how many volumes of each driver the node can hold; a driver that sets no limit is left out."""
    found = ((each.get("name", ""), each.get("allocatable", {})) for each in raw.spec.get("drivers", ()))
    # Absent means no limit in Kubernetes, and zero means none at all: they must not be mixed up.
    return {name: allocatable["count"] for name, allocatable in found if "count" in allocatable}


def _bytes(amounts: Mapping[str, str]) -> int:
    text = amounts.get(_STORAGE)
    return amount(text) if text else 0


def _is_block(spec: Mapping[str, Any]) -> bool:
    return spec.get("volumeMode") == "Block"


CLAIMS: Final = Objects(
    api_version=_CORE, kind="PersistentVolumeClaim", plural="persistentvolumeclaims", read=_claim, namespaced=True
)
VOLUMES: Final = Objects(api_version=_CORE, kind="PersistentVolume", plural="persistentvolumes", read=_volume)
CLASSES: Final = Objects(api_version=_GROUP, kind="StorageClass", plural="storageclasses", read=_class)
DRIVERS: Final = Objects(api_version=_GROUP, kind="CSIDriver", plural="csidrivers", read=_reports)
CSI_NODES: Final = Objects(api_version=_GROUP, kind="CSINode", plural="csinodes", read=_counts)
CAPACITIES: Final = Objects(
    api_version=_GROUP, kind="CSIStorageCapacity", plural="csistoragecapacities", read=_capacity, namespaced=True
)
