"""Suggested changes as edits: JSON patches of objects, and the part of a manifest to merge or the command to type.

Changes are tried on pods and on their group. Users write neither, but a workload with a pod template, which sets fields
of the group by labels and annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kinds import key_of

if TYPE_CHECKING:
    from kai.answers.outcomes.job_lines import Owner
    from kai.api.cluster_objects import ClusterObjects
    from kai.api.kinds import ApiObject

_TEMPLATE: Final = "pod template"
_SPEC: Final = {
    "queue": ("labels", names.QUEUE),
    "preemptibility": ("labels", names.PREEMPTIBILITY),
    "minMember": ("annotations", names.MIN_MEMBER),
    "preemptionDelay": ("annotations", names.PREEMPTION_DELAY),
}
"""Fields of a group, with the label or annotation of a workload that sets each."""
_COUNTED_BY_ANNOTATION: Final = "Job"
"""The one kind that sets by annotation how many pods start together; other kinds have fields of their own for that."""
_LEVELS: Final = {
    "requiredTopologyLevel": names.TOPOLOGY_REQUIRED,
    "preferredTopologyLevel": names.TOPOLOGY_PREFERRED,
}


def in_file(before: ClusterObjects, after: ClusterObjects, owner: Owner | None) -> list[dict[str, Any]]:
    """Return the edit of each file: ``object`` and ``merge``, or a ``command``.

    ``owner`` is the workload that the group was made for; None for a group that a user wrote. The result is empty for
    changes that no file makes, such as nodes becoming ready.
    """
    found: list[dict[str, Any]] = []
    for field, old, new in changed_objects(before, after):
        if new is None:
            return []  # fewer pods: each kind of workload has its own field for that
        found += _said(field, unstructure(old), unstructure(new), owner)
    # All pods of a workload change alike, and their template is one.
    return [each for at, each in enumerate(found) if each not in found[:at]]


def changed_objects(before: ClusterObjects, after: ClusterObjects) -> Iterator[tuple[str, ApiObject, ApiObject | None]]:
    """Yield field, old and new form of each object that differs; the new form is None for an object that is gone.

    Objects that are equal must be identical in memory. New objects are not yielded.
    """
    for field in attrs.fields_dict(type(before)):
        olds, news = getattr(before, field), getattr(after, field)
        if olds is news:
            continue
        new_of = {key_of(each): each for each in news}
        for old in olds:
            new = new_of.get(key_of(old))
            if new is not old:
                yield field, old, new


def _said(field: str, old: Any, new: Any, owner: Owner | None) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - an object as plain values
    merge, name = _merge(old, new), new["metadata"]["name"]
    if field == "nodes":
        # Cordoning is a command: no file says it.
        if old.get("spec", {}).get("unschedulable") and not new.get("spec", {}).get("unschedulable"):
            yield {"command": f"kubectl uncordon {name}"}
    elif field == "pods" and owner is not None:
        yield {"object": _TEMPLATE, "merge": merge}
    elif field == "pod_groups" and owner is not None:
        yield from _of_workload(merge.get("spec", {}), owner)
    elif merge:
        yield {"object": f"{new.get('kind', '')} {name}".strip(), "merge": merge}


def _of_workload(spec: Mapping[str, Any], owner: Owner) -> Iterator[dict[str, Any]]:
    """Yield the labels and annotations of a workload that set a group's spec; nothing unless they can set all of it."""
    metadata: dict[str, dict[str, Any]] = {}
    for key, value in spec.items():
        if key == "topologyConstraint":
            # Null takes the annotation away.
            levels = {_LEVELS[each]: level or None for each, level in value.items() if each in _LEVELS}
            metadata.setdefault("annotations", {}).update(levels)
        elif key in _SPEC and (key != "minMember" or owner.kind == _COUNTED_BY_ANNOTATION):
            where, name = _SPEC[key]
            metadata.setdefault(where, {})[name] = value if isinstance(value, str) else str(value)
        else:
            return
    if metadata:
        yield {"object": f"{owner.kind} {owner.name}", "merge": {"metadata": metadata}}


def _merge(old: Any, new: Any) -> Any:  # noqa: ANN401 - objects as plain values
    """Return a merge patch that turns ``old`` into ``new``; null removes a field."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        changed = {key: _merge(old[key], new[key]) for key in new if key in old and old[key] != new[key]}
        more = {key: new[key] for key in new if key not in old}
        return {**changed, **more, **{key: None for key in old if key not in new}}
    # By name, as a strategic merge does: the file may have containers in another order.
    if isinstance(old, list) and isinstance(new, list) and _names(old) == _names(new) != []:
        parts = zip(old, new, strict=True)
        return [{"name": new_part["name"], **_merge(part, new_part)} for part, new_part in parts if part != new_part]
    return new


def _names(parts: list[Any]) -> list[str]:
    """Return the names of list elements, such as containers; empty if any has none."""
    found = [each.get("name") if isinstance(each, Mapping) else None for each in parts]
    return [each for each in found if each] if all(found) else []


# --- JSON patches --------------------------------------------------------------------------------------------------


Operation = dict[str, Any]


def patches_of(before: ClusterObjects, after: ClusterObjects) -> list[dict[str, Any]]:
    """Return a patch for each object that differs; objects that are equal must be identical in memory.

    For an object that is gone, the patch is a single operation that removes it.
    """
    found = []
    for _, old, new in changed_objects(before, after):
        operations = [_operation("remove", "")] if new is None else _difference(old, new)
        if operations:
            found.append(_patch(old, operations))
    return found


def _patch(obj: ApiObject, operations: list[Operation]) -> dict[str, Any]:
    namespace, name = key_of(obj)
    kind = str(unstructure(obj).get("kind", ""))
    return {"kind": kind, "namespace": namespace or None, "name": name, "patch": operations}


def _difference(old: ApiObject, new: ApiObject) -> list[Operation]:
    return list(_changes(unstructure(old), unstructure(new), ""))


def _changes(old: object, new: object, path: str) -> Iterator[Operation]:
    """Yield the operations that turn one value into another.

    Lists are changed element by element where possible: a container in the cluster has fields that kai does not read,
    and replacing the whole list would drop them.
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
        # The tilde first, since the escape of a slash contains one (RFC 6901).
        place = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield _operation("remove", place)
        elif key not in old:
            yield _operation("add", place, new[key])
        else:
            yield from _changes(old[key], new[key], place)


def _operation(name: str, path: str, value: object = None) -> Operation:
    return {"op": name, "path": path} if name == "remove" else {"op": name, "path": path, "value": value}
