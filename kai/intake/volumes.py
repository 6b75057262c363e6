"""Volumes: claims, the volumes and classes behind them, and what storage drivers say they have left."""

from collections.abc import Iterable

from kai.api import names, quantity
from kai.api import storage as api
from kai.api.meta import OwnerReference
from kai.api.objects import ClusterObjects
from kai.intake import selection
from kai.intake.record_cache import in_order
from kai.intake.settings import IntakeSettings
from kai.model.constraints import NodeTerm, Requirement
from kai.model.volume import StorageCapacity, StorageClass, Volume, VolumeCatalog, VolumeClaim


def read_volumes(objects: ClusterObjects, settings: IntakeSettings) -> VolumeCatalog:
    """Return everything about volumes; of drivers, those that report what they can still provision.

    Source: the peer asks for room for each claim by itself whatever its settings; under ``schedule-csi-storage`` it
        shares capacities out instead.
    """
    claims = [_claim(source) for source in in_order(objects.persistent_volume_claims)]
    volumes = [_volume(source) for source in in_order(objects.persistent_volumes)]
    classes = [_class(source) for source in in_order(objects.storage_classes)]
    return VolumeCatalog(
        claims={(claim.namespace, claim.name): claim for claim in claims},
        volumes={volume.name: volume for volume in volumes},
        classes={each.name: each for each in classes},
        drivers=frozenset(source.metadata.name for source in objects.csi_drivers if source.spec.storage_capacity),
        capacities=tuple(_capacity(source) for source in in_order(objects.csi_storage_capacities)),
        share_capacity=settings.schedule_csi_storage,
    )


def _claim(source: api.PersistentVolumeClaim) -> VolumeClaim:
    metadata, spec = source.metadata, source.spec
    return VolumeClaim(
        namespace=metadata.namespace,
        name=metadata.name,
        storage_class=spec.storage_class_name or "",
        size=_bytes(spec.resources.requests.get(names.STORAGE)),
        phase=source.status.phase,
        volume=spec.volume_name,
        owner_pod=only_pod(metadata.owner_references),
        deleting=metadata.deletion_timestamp is not None,
        selected_node=metadata.annotations.get(names.VOLUME_NODE, ""),
        access_modes=spec.access_modes,
        block=_is_block(spec.volume_mode),
        selector=selection.selector(spec.selector),
    )


def only_pod(owners: Iterable[OwnerReference]) -> str:
    """Return the uid of the only owner if that is a pod, "" otherwise."""
    found = list(owners)
    return found[0].uid if len(found) == 1 and found[0].kind == "Pod" else ""


def _volume(source: api.PersistentVolume) -> Volume:
    spec, claim = source.spec, source.spec.claim_ref
    return Volume(
        name=source.metadata.name,
        storage_class=spec.storage_class_name,
        size=_bytes(spec.capacity.get(names.STORAGE)),
        node_affinity=selection.node_terms(spec.node_affinity.required) if spec.node_affinity else None,
        claim=(claim.namespace, claim.name) if claim else None,
        phase=source.status.phase,
        access_modes=spec.access_modes,
        block=_is_block(spec.volume_mode),
        labels=source.metadata.labels,
        deleting=source.metadata.deletion_timestamp is not None,
    )


def _is_block(mode: str | None) -> bool:
    return mode == "Block"


def _class(source: api.StorageClass) -> StorageClass:
    return StorageClass(
        name=source.metadata.name,
        provisioner=source.provisioner,
        wait=source.volume_binding_mode == "WaitForFirstConsumer",
        allowed_topologies=tuple(_topology_term(term) for term in source.allowed_topologies),
    )


def _topology_term(source: api.TopologySelectorTerm) -> NodeTerm:
    return NodeTerm(tuple(Requirement(each.key, "In", each.values) for each in source.match_label_expressions))


def _capacity(source: api.CsiStorageCapacity) -> StorageCapacity:
    return StorageCapacity(
        name=f"{source.metadata.namespace}/{source.metadata.name}",
        storage_class=source.storage_class_name,
        nodes=selection.selector(source.node_topology),
        capacity=_bytes(source.capacity),
        largest=quantity.amount(source.maximum_volume_size) if source.maximum_volume_size else None,
    )


def _bytes(text: str | None) -> int:
    return quantity.amount(text) if text else 0
