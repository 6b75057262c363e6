"""Objects that only plugins read: handed on as they are, by kind and in name order."""

from collections.abc import Mapping, Sequence

from kai.api.codec import unstructure
from kai.api.foreign import Foreign
from kai.api.kinds import BY_CLASS
from kai.api.objects import ClusterObjects
from kai.api.topology import Topology
from kai.intake.record_cache import in_order
from kai.model.foreign import RawObject
from kai.state.memory import Memory

Raws = Mapping[tuple[str, str], tuple[RawObject, ...]]


def read_foreign(objects: ClusterObjects, memory: Memory) -> Raws:
    """Return the objects by apiVersion and kind; the same values for the same objects. Cost: O(1) if none changed.

    Raises: InputError for two objects of one kind and name.
    """
    sources, written = objects.foreign, objects.topologies
    return memory.once("foreign", (sources, written), lambda: _by_kind([*in_order(written), *sources], memory))


def _by_kind(sources: Sequence[Foreign | Topology], memory: Memory) -> Raws:
    ordered = sorted(sources, key=lambda each: (each.metadata.namespace, each.metadata.name))
    raws = memory.each("foreign objects", tuple(ordered), _raw)
    out: dict[tuple[str, str], list[RawObject]] = {}
    for source, raw in zip(ordered, raws, strict=True):
        kind = BY_CLASS[type(source)]
        out.setdefault((kind.api_version, kind.kind), []).append(raw)
    return {kind: tuple(found) for kind, found in out.items()}


def _raw(source: Foreign | Topology) -> RawObject:
    metadata = source.metadata
    spec, status = (source.spec, source.status) if isinstance(source, Foreign) else (unstructure(source.spec), {})
    return RawObject(
        name=metadata.name,
        namespace=metadata.namespace,
        labels=metadata.labels,
        annotations=metadata.annotations,
        spec=spec,
        status=status,
    )
