"""The webhooks, mutating and validating: one request in, one response out; with the rules of small kinds.

Read this first, then `pods` and `queues`. Everything here is a pure function of its arguments; external inputs, random
characters and a look-up of queues, are passed in. An object that cannot be read is refused with the path of the bad
value, never with a traceback.

Topologies: an alias must name one level, and must not look like the label of another.

Pod groups: the sub-groups must form a tree, and every minimum must stand where it has a meaning. A group without a tree
is refused. A misplaced minimum is refused when the group is created. On update some only cause a warning, since older
releases admitted them and the group must stay editable.
"""

from __future__ import annotations

import json
from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.conventions.caps import excess_of
from kai.api.scheduling.pod_group import DEEPEST_SUB_GROUP, MOST_SUB_GROUPS
from kai.api.values import BadValue
from kai.roles.admission.pods import json_patch, mutate_pod, validate_pod
from kai.roles.admission.queues import FindQueue, validate_queue
from kai.roles.admission.review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    AdmissionSettings,
    Piece,
    piece_of,
    refused,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kai.roles.admission.podshape import Draw


def validate_topology(request: AdmissionRequest) -> AdmissionResponse:
    """Return whether a topology may be created or changed as requested; it may always be deleted.

    The CRD's own rules ensure that labels are unique.

    Raises: BadValue if the levels cannot be read.
    Source: rules and messages of the peer's topology webhook.
    """
    if request.operation == "DELETE":
        return ALLOWED
    levels = list(piece_of(request.object, "Topology")["spec"]["levels"].each())
    labels = {level["nodeLabel"].text() for level in levels}
    aliases = [alias for level in levels if (alias := level["alias"].text())]
    repeated = sorted(alias for alias, times in Counter(aliases).items() for _ in range(times - 1))
    taken = sorted(alias for alias in aliases if alias in labels)
    faults = []
    if repeated:
        faults.append(f"aliases must be unique within the topology; duplicated: [{' '.join(repeated)}]")
    if taken:
        faults.append(f"an alias must not equal a nodeLabel; conflicting: [{' '.join(taken)}]")
    return refused(f"invalid topology aliases: {'; '.join(faults)}") if faults else ALLOWED


class MinimumFault(Enum):
    """A fault of a minimum; decides whether it is refused or causes a warning."""

    MISPLACED = auto()
    MISSING = auto()
    MEMBERS_OF_PARENT = auto()
    MORE_THAN_CHILDREN = auto()


_WARNINGS: Final = {
    "CREATE": frozenset({MinimumFault.MORE_THAN_CHILDREN}),
    "UPDATE": frozenset({MinimumFault.MORE_THAN_CHILDREN, MinimumFault.MEMBERS_OF_PARENT}),
}


@attrs.frozen
class SubGroupShape:
    """The fields of a sub-group that rules read. An empty parent name counts as a parent."""

    name: str
    parent: str | None
    min_member: int | None
    min_sub_group: int | None


def validate_pod_group(request: AdmissionRequest) -> AdmissionResponse:
    """Return whether a pod group may be created or changed as requested; it may always be deleted.

    Raises: BadValue if a name or minimum cannot be read.
    Source: rules, their order and messages of the peer's pod-group webhook.
    """
    if request.operation not in _WARNINGS:
        return ALLOWED
    group = piece_of(request.object, "PodGroup")
    found = excess_of((request.object or {}).get("metadata")) if request.operation == "CREATE" else ""
    if found:  # an existing group must stay changeable
        return refused(found)
    spec = group["spec"]
    min_member, min_sub_group = spec["minMember"].integer(), spec["minSubGroup"].integer()
    if min_member is not None and min_sub_group is not None:
        return refused(
            f"minMember and minSubGroup are mutually exclusive: set minMember ({min_member}) to schedule a fixed number"
            " of pods, or set minSubGroup to require a minimum number of child SubGroups, but not both",
        )
    sub_groups = [_read(sub_group) for sub_group in spec["subGroups"].each()]
    children = _children(sub_groups)
    broken = _broken_tree(sub_groups, children)
    if broken:
        return refused(broken)
    faults = [fault for sub_group in sorted(sub_groups, key=_name) for fault in _misplaced(sub_group, children)]
    roots = len(children.get(None, ()))
    if min_sub_group is not None and min_sub_group > roots:
        faults.append((MinimumFault.MORE_THAN_CHILDREN, f"minSubGroup ({min_sub_group}) {_exceeds(roots)}"))
    warned = _WARNINGS[request.operation]
    warnings = tuple(message for fault, message in faults if fault in warned)
    errors = [message for fault, message in faults if fault not in warned]
    if errors:
        return refused("\n".join(errors), warnings=warnings)
    return AdmissionResponse(warnings=warnings)


def _read(piece: Piece) -> SubGroupShape:
    parent = piece["parent"]
    return SubGroupShape(
        name=piece["name"].text(),
        parent=parent.text() if parent.present else None,
        min_member=piece["minMember"].integer(),
        min_sub_group=piece["minSubGroup"].integer(),
    )


def _name(sub_group: SubGroupShape) -> str:
    return sub_group.name


def _children(sub_groups: list[SubGroupShape]) -> dict[str | None, list[str]]:
    """Return the names of the direct children of every sub-group, and under None those of the group itself."""
    children: dict[str | None, list[str]] = {}
    for sub_group in sub_groups:
        children.setdefault(sub_group.parent, []).append(sub_group.name)
    return children


def _broken_tree(sub_groups: list[SubGroupShape], children: Mapping[str | None, list[str]]) -> str:
    """Return why sub-groups do not form a tree, or why one of them contradicts itself; empty if neither.

    A contradiction counts here because, like a broken tree, it is refused without looking at other faults.
    """
    if len(sub_groups) > MOST_SUB_GROUPS:
        return f"spec.subGroups: found {len(sub_groups)} sub-groups, expected at most {MOST_SUB_GROUPS}"
    known: set[str] = set()
    for sub_group in sub_groups:
        if sub_group.name in known:
            return f"duplicate subgroup name {sub_group.name}"
        known.add(sub_group.name)
    in_order = sorted(sub_groups, key=_name)
    for sub_group in in_order:
        if sub_group.parent is not None and sub_group.parent not in known:
            return f"parent {sub_group.parent} of {sub_group.name} was not found"
    depth, reached = _depth(children)
    if reached < len(known):
        return "cycle detected in subgroups"
    if depth > DEEPEST_SUB_GROUP:
        return f"spec.subGroups: found sub-groups nested {depth} deep, expected at most {DEEPEST_SUB_GROUP}"
    for sub_group in in_order:
        if sub_group.min_member is not None and sub_group.min_sub_group is not None:
            return f"subgroup {_quoted(sub_group.name)}: minMember and minSubGroup are mutually exclusive"
    return ""


def _depth(children: Mapping[str | None, list[str]]) -> tuple[int, int]:
    """Return the depth of sub-groups, and how many of them descend from the group; those on a cycle do not."""
    depth = reached = 0
    # Level by level and without recursion: a user writes the tree, and how deep it is shows only at the end.
    level = list(children.get(None, ()))
    while level:
        depth += 1
        reached += len(level)
        level = [child for name in level for child in children.get(name, ())]
    return depth, reached


def _misplaced(sub_group: SubGroupShape, children: Mapping[str | None, list[str]]) -> list[tuple[MinimumFault, str]]:
    """Return the faults in the minimums of one sub-group."""
    count = len(children.get(sub_group.name, ()))
    name = _quoted(sub_group.name)
    faults: list[tuple[MinimumFault, str]] = []
    if count == 0:
        if sub_group.min_sub_group is not None:
            message = f"subgroup {name}: minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)"
            faults.append((MinimumFault.MISPLACED, message))
        if sub_group.min_member is None:
            faults.append((MinimumFault.MISSING, f"subgroup {sub_group.name}: minMember is required"))
        return faults
    if sub_group.min_member is not None:
        message = (
            f"subgroup {name}: minMember cannot be set on a mid-level SubGroup (has child SubGroups);"
            " use minSubGroup instead"
        )
        faults.append((MinimumFault.MEMBERS_OF_PARENT, message))
    if sub_group.min_sub_group is not None and sub_group.min_sub_group > count:
        message = f"subgroup {name}: minSubGroup ({sub_group.min_sub_group}) {_exceeds(count)}"
        faults.append((MinimumFault.MORE_THAN_CHILDREN, message))
    return faults


def _exceeds(count: int) -> str:
    return f"exceeds the number of direct child SubGroups ({count})"


def _quoted(name: str) -> str:
    return json.dumps(name)


def note_user(request: AdmissionRequest) -> AdmissionResponse:
    """Return the object with the note of the account that creates it, or with the note that it had.

    Raises: BadValue if its annotations cannot be read.
    """
    if request.operation == "CREATE":
        return _noted(request, request.user)
    before = piece_of(request.old_object, request.kind)["metadata"]["annotations"].texts()
    return _noted(request, before.get(names.NOTED_USER))


def drop_user(request: AdmissionRequest) -> AdmissionResponse:
    """Return the object without a note: a controller copied it from a template, which a user wrote.

    Raises: BadValue if its annotations cannot be read.
    """
    return _noted(request, None)


def _noted(request: AdmissionRequest, user: str | None) -> AdmissionResponse:
    before = request.object or {}
    annotations = piece_of(before, request.kind)["metadata"]["annotations"].texts()
    if annotations.get(names.NOTED_USER) == user:
        return ALLOWED
    others = {key: text for key, text in annotations.items() if key != names.NOTED_USER}
    noted = others if user is None else {**others, names.NOTED_USER: user}
    after = {**before, "metadata": {**before.get("metadata", {}), "annotations": noted}}
    return AdmissionResponse(object=after, patch=json_patch(before, after))


def readable(decide: Callable[[AdmissionRequest], AdmissionResponse], request: AdmissionRequest) -> AdmissionResponse:
    """Return the answer of ``decide``, or the refusal of an object that cannot be read."""
    try:
        return decide(request)
    except BadValue as error:
        return unreadable(error)


def mutate(request: AdmissionRequest, settings: AdmissionSettings, draw: Draw) -> AdmissionResponse:
    """Return the mutating webhook's response; kinds other than Pod pass unchanged."""
    if request.kind != "Pod":
        return ALLOWED
    try:
        return mutate_pod(request, settings, draw)
    except BadValue as error:
        return unreadable(error)


def validate(request: AdmissionRequest, settings: AdmissionSettings, find_queue: FindQueue) -> AdmissionResponse:
    """Return whether the validating webhook allows a change of an object; kinds without rules always pass."""
    try:
        match request.kind:
            case "Pod":
                return validate_pod(request, settings)
            case "Queue":
                return validate_queue(request, settings, find_queue)
            case "PodGroup":
                return validate_pod_group(request)
            case "Topology":
                return validate_topology(request)
            case _:
                return ALLOWED
    except BadValue as error:
        return unreadable(error)
