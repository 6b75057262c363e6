"""The catalog: namespaces, config maps and topologies, beside volumes and claims."""

from collections.abc import Iterable, Mapping

from kai.api import topology as api
from kai.api.objects import ClusterObjects
from kai.model.catalog import Catalog
from kai.model.topology import Topology


def read_topologies(sources: Iterable[api.Topology]) -> Mapping[str, Topology]:
    """Return topologies by name."""
    return {source.metadata.name: _topology(source) for source in sorted(sources, key=lambda each: each.metadata.name)}


def _topology(source: api.Topology) -> Topology:
    levels = source.spec.levels
    return Topology(
        name=source.metadata.name,
        levels=tuple(level.node_label for level in levels),
        aliases=tuple((level.alias, level.node_label) for level in levels if level.alias),
    )


def read_catalog(objects: ClusterObjects) -> Catalog:
    """Return what filters look up by name. In a cluster without any config map none counts as missing: they were not listed."""
    return Catalog(
        namespaces={each.metadata.name: each.metadata.labels for each in objects.namespaces},
        config_maps=frozenset((each.metadata.namespace, each.metadata.name) for each in objects.config_maps),
        config_maps_known=bool(objects.config_maps),
    )
