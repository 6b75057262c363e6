"""The catalog: what filters look up by name."""

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.intake.claimed_gpus import ClaimedGpus, Wanted
from kai.intake.claims import KnownClaims, gpus_wanted, read_claims
from kai.intake.devices import Devices, are_same, read_devices
from kai.intake.record_cache import in_order
from kai.intake.settings import IntakeSettings
from kai.model.catalog import Catalog

_NAMED = ("namespaces",)
_SOURCES = (
    *_NAMED,
    "resource_slices",
    "config_maps",
    "resource_claims",
    "resource_claim_templates",
    "device_classes",
    "device_taint_rules",
)


@attrs.frozen(kw_only=True, eq=False)
class Library:
    """The catalog, with what else follows from the same objects."""

    objects: ClusterObjects
    catalog: Catalog
    devices: Devices
    claimed_gpus: ClaimedGpus
    templates: Mapping[tuple[str, str], Wanted]
    """The GPUs of a claim made from a template, by the template's namespace and name."""
    node_gpus: Mapping[str, int]
    """GPUs that drivers offer beside device plugins, by node."""


def read_library(objects: ClusterObjects, settings: IntakeSettings, before: Library | None) -> Library:
    """Return the library of a cluster; the same one as ``before`` while it is made of the same objects."""
    before = before or _NOTHING
    if _are_same(objects, before.objects, _SOURCES):
        return before
    devices, claimed_gpus, node_gpus = before.devices, before.claimed_gpus, before.node_gpus
    read = zip(map(id, in_order(before.objects.resource_claims)), before.catalog.claims.claims.values(), strict=True)
    known: KnownClaims = dict(read)
    if (now := read_devices(objects, devices)) is not devices:
        claimed_gpus = ClaimedGpus(gpus=now.gpus, classes=now.classes)
        if devices.gpus.are_divided or now.gpus.are_divided:
            known = {}  # what claims come to may be another part
        if now.gpus is not devices.gpus:
            node_gpus = Counter(gpu.node for gpu in now.gpus.all if gpu.node)
        devices = now
    templates = {key_of(each): gpus_wanted(each.spec.spec, claimed_gpus) for each in objects.resource_claim_templates}
    return Library(
        objects=objects,
        catalog=Catalog(
            namespaces=_namespaces(objects, before),
            config_maps=frozenset(key_of(each) for each in objects.config_maps),
            config_maps_known=bool(objects.config_maps),  # without any in the cluster none is missing: none was listed
            claims=read_claims(objects, settings, devices, claimed_gpus, known),
            gpus=devices.gpus,
        ),
        devices=devices,
        claimed_gpus=claimed_gpus,
        templates=templates,
        node_gpus=node_gpus,
    )


_NOTHING = Library(
    objects=ClusterObjects(),
    catalog=Catalog(),
    devices=Devices(objects=ClusterObjects()),
    claimed_gpus=ClaimedGpus(),
    templates={},
    node_gpus={},
)


def _are_same(objects: ClusterObjects, before: ClusterObjects, fields: Sequence[str]) -> bool:
    return all(are_same(getattr(objects, field), getattr(before, field)) for field in fields)


def _namespaces(objects: ClusterObjects, before: Library) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of namespaces, the same ones while these are the same objects."""
    if _are_same(objects, before.objects, _NAMED):
        return before.catalog.namespaces
    return {each.metadata.name: each.metadata.labels for each in objects.namespaces}
