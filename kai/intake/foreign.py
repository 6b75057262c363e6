"""Objects that plugins read: handed on as they are, by kind and in name order."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.kinds import BY_CLASS, ApiObject, key_of
from kai.api.kubernetes.foreign import Foreign
from kai.api.plugin_kinds import HANDED_ON
from kai.api.scheduling.bind_request import BindRequest
from kai.intake.record_cache import in_order
from kai.model.foreign import RawObject
from kai.state.memory import Memory

Raws = Mapping[tuple[str, str], tuple[RawObject, ...]]

_METADATA: Final = "metadata"


def read_foreign(objects: ClusterObjects, memory: Memory) -> Raws:
    """Return the objects by apiVersion and kind; the same values for the same objects. Cost: O(1) if none changed.

    Raises: InputError for two objects of one kind and name.
    """
    listings: list[Sequence[ApiObject]] = [getattr(objects, FIELD_OF[cls]) for cls in HANDED_ON]
    listings.append(objects.foreign)
    return memory.once("foreign", tuple(listings), lambda: _by_kind(listings, memory))


def _by_kind(listings: Sequence[Sequence[ApiObject]], memory: Memory) -> Raws:
    out: dict[tuple[str, str], tuple[RawObject, ...]] = {}
    for at, listing in enumerate(listings):
        name = f"foreign {at}"
        # What plugins made of a kind is theirs for as long as its tuple is the same: no kind pays for another one.
        out.update(memory.once(f"{name} by kind", (listing,), partial(_of_listing, name, listing, memory)))
    return out


def _of_listing(name: str, listing: Sequence[ApiObject], memory: Memory) -> Raws:
    out: dict[tuple[str, str], list[RawObject]] = {}
    ordered = memory.once(name, (listing,), partial(_ordered, listing))
    for source, raw in zip(ordered, memory.each(name, ordered, raw_object), strict=True):
        kind = BY_CLASS[type(source)]
        out.setdefault((kind.api_version, kind.kind), []).append(raw)
    return {kind: tuple(found) for kind, found in out.items()}


def _ordered(listing: Sequence[ApiObject]) -> tuple[ApiObject, ...]:
    if listing and isinstance(listing[0], Foreign):  # of several kinds, so that two may have one name
        return tuple(sorted(listing, key=key_of))
    return tuple(in_order(listing))


def bind_requests(requests: Mapping[int, BindRequest], memory: Memory) -> Mapping[int, RawObject]:
    """Return live bind requests as plugins read them, by pod row; the same values for the same objects."""
    if not requests:
        return {}
    raws = memory.each("bind requests", tuple(requests.values()), raw_object)
    return dict(zip(requests, raws, strict=True))


def raw_object(source: ApiObject) -> RawObject:
    """Return an object as plugins read it."""
    metadata = source.metadata
    return RawObject(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owners=tuple([(each.kind, each.uid) for each in metadata.owner_references]),
        deleting=metadata.deletion_timestamp is not None,
        write=partial(_content, source),
    )


def _content(source: ApiObject) -> Mapping[str, Any]:
    if isinstance(source, Foreign):
        return {"spec": source.spec, "status": source.status}
    written: Mapping[str, Any] = unstructure(source)
    return {name: value for name, value in written.items() if name != _METADATA}
