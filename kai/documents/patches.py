"""Changes of objects as JSON patches (RFC 6902): what would have to be written for a suggestion to come true."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kai.api.codec.structuring import unstructure
from kai.api.kinds import key_of

if TYPE_CHECKING:
    from kai.api.cluster_objects import ClusterObjects
    from kai.api.kinds import ApiObject

Operation = dict[str, Any]


def patches_of(before: "ClusterObjects", after: "ClusterObjects") -> list[dict[str, Any]]:
    """Return a patch for each object that differs; an object that is the same is the same in memory as well.

    An object that is gone has the one operation that removes it as a whole.
    """
    found = []
    for field in attrs.fields_dict(type(before)):
        olds, news = getattr(before, field), getattr(after, field)
        if olds is news:
            continue
        new_of = {key_of(each): each for each in news}
        for old in olds:
            new = new_of.get(key_of(old))
            if new is old:
                continue
            operations = [_operation("remove", "")] if new is None else _difference(old, new)
            if operations:
                found.append(_patch(old, operations))
    return found


def _patch(obj: "ApiObject", operations: list[Operation]) -> dict[str, Any]:
    namespace, name = key_of(obj)
    kind = str(unstructure(obj).get("kind", ""))
    return {"kind": kind, "namespace": namespace or None, "name": name, "patch": operations}


def _difference(old: "ApiObject", new: "ApiObject") -> list[Operation]:
    return list(_changes(unstructure(old), unstructure(new), ""))


def _changes(old: object, new: object, path: str) -> Iterator[Operation]:
    """Yield the operations that make one value of another.

    The parts of a list are changed one by one where that can be done: a container has fields that are not read here.
    """
    if old == new:
        return
    if isinstance(old, list) and isinstance(new, list) and new[: len(old)] != old and len(old) != len(new):
        yield _operation("replace", path, new)
        return
    if isinstance(old, list) and isinstance(new, list):
        for at, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _changes(one, other, f"{path}/{at}")
        yield from (_operation("add", f"{path}/-", each) for each in new[len(old) :])
        return
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield _operation("replace", path, new)
        return
    for key in sorted({*old, *new}):
        place = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield _operation("remove", place)
        elif key not in old:
            yield _operation("add", place, new[key])
        else:
            yield from _changes(old[key], new[key], place)


def _operation(name: str, path: str, value: object = None) -> Operation:
    return {"op": name, "path": path} if name == "remove" else {"op": name, "path": path, "value": value}
