"""The catalog: what filters look up by name."""

from collections.abc import Mapping, Sequence

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.intake.claims import are_same, gpus_of_claim, gpus_of_nodes, read_claims
from kai.intake.settings import IntakeSettings
from kai.model.catalog import Catalog
from kai.model.claim import ClaimCatalog

_NAMED = ("namespaces",)
_SLICES = ("resource_slices",)
_SOURCES = (
    *_NAMED,
    *_SLICES,
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
    template_gpus: Mapping[tuple[str, str], int]
    """GPUs in a claim made from a template, by the template's namespace and name."""
    node_gpus: Mapping[str, int]
    """GPUs that drivers offer beside device plugins, by node."""


def read_library(objects: ClusterObjects, settings: IntakeSettings, before: Library | None) -> Library:
    """Return the library of a cluster; the same one as ``before`` while it is made of the same objects."""
    if before is not None and _are_same(objects, before.objects, _SOURCES):
        return before
    named = before.catalog.namespaces if before is not None and _are_same(objects, before.objects, _NAMED) else None
    offered = before.node_gpus if before is not None and _are_same(objects, before.objects, _SLICES) else None
    known = None if before is None else (before.objects, before.catalog.claims)
    return Library(
        objects=objects,
        catalog=_catalog(objects, read_claims(objects, settings, known), named),
        template_gpus={key_of(each): gpus_of_claim(each.spec.spec) for each in objects.resource_claim_templates},
        node_gpus=gpus_of_nodes(objects.resource_slices) if offered is None else offered,
    )


def _are_same(objects: ClusterObjects, before: ClusterObjects, fields: Sequence[str]) -> bool:
    return all(are_same(getattr(objects, field), getattr(before, field)) for field in fields)


def _catalog(objects: ClusterObjects, claims: ClaimCatalog, named: Mapping[str, Mapping[str, str]] | None) -> Catalog:
    """Return the catalog, with the labels of namespaces as they are ``named``, if these did not change.

    Without any config map in the cluster none is missing: they were not listed.
    """
    if named is None:
        named = {each.metadata.name: each.metadata.labels for each in objects.namespaces}
    return Catalog(
        namespaces=named,
        config_maps=frozenset(key_of(each) for each in objects.config_maps),
        config_maps_known=bool(objects.config_maps),
        claims=claims,
    )
