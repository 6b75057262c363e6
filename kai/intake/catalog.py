"""The catalog: what filters look up by name."""

from collections.abc import Mapping, Sequence

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.intake.claims import are_same, gpus_of_claim, gpus_of_nodes, read_claims
from kai.intake.settings import IntakeSettings
from kai.model.catalog import Catalog

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
    before = before or _NOTHING
    if _are_same(objects, before.objects, _SOURCES):
        return before
    is_offered = _are_same(objects, before.objects, _SLICES)
    return Library(
        objects=objects,
        catalog=_catalog(objects, settings, before),
        template_gpus={key_of(each): gpus_of_claim(each.spec.spec) for each in objects.resource_claim_templates},
        node_gpus=before.node_gpus if is_offered else gpus_of_nodes(objects.resource_slices),
    )


_NOTHING = Library(objects=ClusterObjects(), catalog=Catalog(), template_gpus={}, node_gpus={})


def _are_same(objects: ClusterObjects, before: ClusterObjects, fields: Sequence[str]) -> bool:
    return all(are_same(getattr(objects, field), getattr(before, field)) for field in fields)


def _catalog(objects: ClusterObjects, settings: IntakeSettings, before: Library) -> Catalog:
    """Return the catalog, with what did not change as it was ``before``.

    Without any config map in the cluster none is missing: they were not listed.
    """
    named = before.catalog.namespaces
    if not _are_same(objects, before.objects, _NAMED):
        named = {each.metadata.name: each.metadata.labels for each in objects.namespaces}
    return Catalog(
        namespaces=named,
        config_maps=frozenset(key_of(each) for each in objects.config_maps),
        config_maps_known=bool(objects.config_maps),
        claims=read_claims(objects, settings, before.objects, before.catalog.claims),
    )
