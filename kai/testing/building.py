"""Small clusters for tests, in the words of the short form of scenarios."""

from collections.abc import Mapping
from typing import Any

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.foreign import Foreign
from kai.configuration.profiles import default_profile
from kai.configuration.registry import Registry
from kai.engine.profile import Profile
from kai.framework.hooks import Plugin, PluginUse
from kai.framework.objects import Objects
from kai.intake import take_snapshot
from kai.kernels import begin_plainly
from kai.simulation.scenarios.scenario import read_objects
from kai.simulation.scenarios.shorthand import NOW, expand
from kai.simulation.scenarios.validation import fields
from kai.simulation.sources.plugin_kinds import declare_objects
from kai.state.snapshot import Snapshot

Values = Mapping[str, Any]
ObjectsByName = Mapping[Objects, Mapping[str, Values]]
"""Objects that plugins read: by kind, then by ``name`` or ``namespace/name``."""

ONE_QUEUE: Values = {"root": {}, "queue": {"parent": "root", "quota": -1}}
"""What a cluster has that does not say which queues it wants."""
_NOTES = ("labels", "annotations")
_OBJECT_KEYS = (*_NOTES, "spec", "status")


def cluster(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    topologies: Values | None = None,
    objects: ObjectsByName | None = None,
) -> ClusterObjects:
    """Return the objects of a small cluster.

        cluster(nodes={"n1": {"gpu": 8}}, groups={"train": {"members": 2, "each": {"gpu": 1}}})

    The keys are those of scenarios in the short form (``kai.simulation.scenarios.shorthand``). Without queues there
    is one, which may use everything. ``objects`` are those of kinds that plugins read, with their labels and
    annotations, and what their manifests have beside the metadata:

        cluster(nodes={"n1": {"gpu": 8}}, objects={CAPS: {"rack-a": {"spec": {"watts": 2000}}}})

    Such a cluster is not worth a compiler: kernels run as plain Python from here on, unless
    the process has compiled some, or has said `kai.kernels.run_compiled`.

    Raises: InputError that names the key.
    """
    begin_plainly()
    document = {
        "cluster": {"nodes": nodes, "topologies": topologies or {}, "objects": _manifests(objects or {})},
        "queues": ONE_QUEUE if queues is None else queues,
        "groups": groups or {},
    }
    return read_objects(expand(document, "cluster"), "cluster")[0]


def snapshot(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    topologies: Values | None = None,
    objects: ObjectsByName | None = None,
) -> Snapshot:
    """Return the snapshot of a small cluster, taken at the instant at which scenarios happen."""
    return take_snapshot(cluster(nodes, groups, queues, topologies, objects), NOW)


def _manifests(objects: ObjectsByName) -> list[Values]:
    """Return objects that plugins read as manifests; their kinds are known afterwards.

    Raises: InputError that names the key, for one that no object of a plugin's own kind has.
    """
    out: list[Values] = []
    for kind, members in objects.items():
        is_own = issubclass(declare_objects(kind), Foreign)
        for name, values in members.items():
            if is_own:
                fields(values, _OBJECT_KEYS, f"cluster: objects.{kind.kind}.{name}")
            namespace, _, own = name.rpartition("/")
            place = {"namespace": namespace or "default"} if kind.namespaced else {}
            notes = {key: values[key] for key in _NOTES if key in values}
            rest = {key: value for key, value in values.items() if key not in _NOTES}
            metadata = {"name": own, "uid": name, **place, **notes}
            out.append({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest})
    return out


def default_profile_with(*plugins: Plugin, registry: Registry | None = None) -> Profile:
    """Return the built-in profile with more plugins behind its own."""
    profile = default_profile(registry)
    added = tuple(PluginUse(name=type(plugin).__name__, plugin=plugin) for plugin in plugins)
    return attrs.evolve(profile, plugins=profile.plugins + added)
