"""Kinds that are described by a Karta, an object of the cluster.

The second part of the module counts the pods that a component and its descendants need, and finds the component that a
pod belongs to.
"""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import attrs

from kai.basics.errors import InputError
from kai.roles.podgrouper.grouper import KARTA, GroupDraft, KindPattern, Request, Settings, SubGroup, Topology
from kai.roles.podgrouper.karta.definition import (
    Component,
    Constraint,
    Definition,
    Member,
    OneGroup,
    TypeSelector,
    described_kind,
    read_definition,
)
from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.karta.values import json_of, number, type_name
from kai.roles.podgrouper.lookup import Absent, Many, Reader
from kai.roles.podgrouper.resource import INT32_MAX, Kind, Manifest, Resource
from kai.roles.podgrouper.rules import standard_draft

GROUP_LABEL = "run.ai/karta-group"
VERSION_LABEL = "run.ai/karta-version"
KIND_LABEL = "run.ai/karta-kind"

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


class Karta:
    """A gang as the Karta of the kind describes it. More than one valid Karta for a kind is none."""

    kinds: ClassVar[tuple[KindPattern, ...]] = ()

    def serves(self, kind: Kind, reader: Reader, settings: Settings, /) -> bool:
        """Return whether exactly one valid Karta describes ``kind``."""
        return _find(kind, reader, settings) is not None

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the group that the Karta describes.

        Raises: InputError when the Karta does not match the workload or the pod.
        Source: the peer's Karta fallback.
        """
        definition = _find(request.owner.kind, request.reader, request.settings)
        draft = standard_draft(request, request.owner)
        if definition is None:
            return draft
        if definition.one_group is not None:
            return _draft_of_one(request, draft, definition, definition.one_group)
        return _draft_by_keys(request, draft, definition)


def _find(kind: Kind, reader: Reader, settings: Settings) -> Definition | None:
    if not settings.karta_fallback:
        return None
    labels = ((GROUP_LABEL, kind.group), (VERSION_LABEL, kind.version), (KIND_LABEL, kind.kind))
    listed = reader.many(Many(KARTA, "", labels))
    found = () if isinstance(listed, Absent) else tuple(_valid(listed, kind))
    return found[0] if len(found) == 1 else None


def _valid(kartas: Iterable[Resource], kind: Kind) -> Iterator[Definition]:
    for karta in kartas:
        try:
            if described_kind(karta) == kind:
                yield read_definition(karta)
        except InputError:
            continue  # an inconsistent Karta does not count; another of the same kind may


def _draft_of_one(request: Request, draft: GroupDraft, definition: Definition, group: OneGroup) -> GroupDraft:
    """Return one group for the workload, with a sub-group for each mapped component."""
    workload = request.owner.manifest
    draft = attrs.evolve(
        draft,
        name=f"pg-{request.owner.uid}-{group.name}",
        topology=draft.topology if group.constraint is None else _topology(group.constraint, group.name),
    )
    subgroups = []
    of_pod = None
    for mapped in group.subgroups:
        name = mapped.component
        if name not in definition.components:
            raise request.owner.error("subGroups of its Karta", name or None, "the name of a component")
        scale = subtree_scale(definition, workload, name)
        if scale == 0:
            raise request.owner.error(f'scale of component "{name}"', scale, "at least 1 pod")
        topology = None if mapped.constraint is None else _topology(mapped.constraint, name)
        subgroups.append(SubGroup(name=name, min_member=scale, topology=topology))
        if of_pod is None and is_in_subtree(definition, name, request.pod):
            of_pod = name
    if not subgroups:
        return attrs.evolve(draft, min_member=subtree_scale(definition, workload, definition.root))
    return attrs.evolve(draft, min_subgroup=len(subgroups), subgroups=tuple(subgroups), pod_subgroup=of_pod)


def _draft_by_keys(request: Request, draft: GroupDraft, definition: Definition) -> GroupDraft:
    """Return the group that the pod's keys name, with the scale of the grouped component."""
    pod, workload = request.pod, request.owner.manifest
    component = component_of_pod(definition, pod)
    member = member_of_pod(definition, pod, component)
    if member is None:
        raise InputError(f"{pod}: found no group in its Karta whose filters it passes")
    instance = _instance(definition, component, request) if member.component == component else None
    keys = tuple(_key(query, pod) for query in member.keys)
    name = "-".join((f"pg-{request.owner.uid}", *keys))
    # Keys are values of the pod, and its owner may write anything there. The API server would refuse the name at each
    # attempt, and its message would not name the key.
    if keys and (len(name) > _LONGEST_NAME or not _OBJECT_NAME.fullmatch(name)):
        raise pod.error(" and ".join(member.keys), ", ".join(keys), f"keys that make a name of an object, not {name}")
    scale = subtree_scale(definition, workload, member.component, instance)
    return attrs.evolve(draft, name=name, min_member=scale)


def _instance(definition: Definition, name: str, request: Request) -> str | None:
    """Return the instance of its component that the pod belongs to, None if there are no instances."""
    component = definition.components[name]
    ids = instance_ids(component, request.owner.manifest)
    if not ids or not ids[0] or not component.has_selector:
        return None
    if not component.instance_selector:
        raise InputError.about(
            f'component "{name}"', "componentInstanceSelector", found=None, wanted="a query for the instance"
        )
    found = _key(component.instance_selector, request.pod)
    if found not in ids:
        raise request.pod.error(component.instance_selector, found, f"one of {', '.join(ids)}")
    return found


def _key(query: str, pod: Resource) -> str:
    found = single(query, pod)
    if isinstance(found, str):
        return found
    if isinstance(found, bool | int | float):
        return json_of(found)
    raise pod.error(query, type_name(found), "a string, a number or a boolean")


def _topology(constraint: Constraint, where: str) -> Topology:
    if not constraint.name:
        raise InputError.about(f'topology of "{where}"', "topologyName", found=None, wanted="the name of a topology")
    if not constraint.required and not constraint.preferred:
        raise InputError.about(
            f'topology of "{where}"', "requiredTopologyLevel", found=None, wanted="a level, or a preferred one"
        )
    return Topology(constraint.name, constraint.required, constraint.preferred)


def subtree_scale(definition: Definition, workload: Manifest, name: str, instance: str | None = None) -> int:
    """Return how many pods the component ``name``, or one instance of it, needs with all its descendants.

    If the Karta has no scale at all, every kind of pod counts once.
    Raises: InputError when a query, or its result, is invalid.
    """
    if definition.states_scale:
        return _stated_scale(definition, workload, name, instance)
    return _counted_leaves(definition, workload, name, instance)


def instance_ids(component: Component, workload: Manifest) -> tuple[str, ...]:
    """Return the names of the component's instances; one empty name if it has no instances."""
    if component.instances is None:
        return ("",)
    found = evaluate(component.instances, workload)
    for each in found:
        if not isinstance(each, str) or not each:
            raise InputError.about(f'component "{component.name}"', "instanceIdPath", found=each, wanted="names")
    return tuple(each for each in found if isinstance(each, str))


def component_of_pod(definition: Definition, pod: Resource) -> str:
    """Return the leaf that the pod belongs to: the only leaf, or the first whose selector matches.

    Raises: InputError when none matches.
    """
    leaves = definition.leaves
    if len(leaves) == 1:
        return leaves[0].name
    for leaf in leaves:
        if is_of_type(leaf.type_selector, pod):
            return leaf.name
    raise InputError(f"{pod}: found no component of its Karta that it is of")


def is_of_type(selector: TypeSelector | None, pod: Resource) -> bool:
    """Return whether ``selector`` matches the pod; a missing selector matches none."""
    if selector is None:
        return False
    if selector.value is None:
        return any(found is not None for found in evaluate(selector.key, pod.manifest))
    # The comparison is part of the query's text, so that its precedence is the same as in the peer.
    return any(found is True for found in evaluate(f"{selector.key} == {json_of_text(selector.value)}", pod.manifest))


def is_in_subtree(definition: Definition, name: str, pod: Resource) -> bool:
    """Return whether the pod belongs to the component ``name`` or to a descendant."""
    if is_of_type(definition.components[name].type_selector, pod):
        return True
    return any(is_in_subtree(definition, child, pod) for child in definition.children_of(name))


def member_of_pod(definition: Definition, pod: Resource, component: str) -> Member | None:
    """Return the first instruction whose filters the pod passes: of its own component, else of an ancestor."""
    for level in definition.line_of(component):
        for member in definition.members:
            if member.component == level and all(single(query, pod) is True for query in member.filters):
                return member
    return None


def single(query: str, pod: Resource) -> object:
    """Return the one result of ``query`` on the pod.

    Raises: InputError when there is not exactly one, or it is empty.
    """
    found = evaluate(query, pod.manifest)
    if len(found) != 1 or found[0] is None or found[0] == "":
        raise InputError.about(str(pod), query, found=[*found] or None, wanted="one value that is not empty")
    return found[0]


def json_of_text(text: str) -> str:
    """Return ``text`` as a string literal of a query."""
    return json_of([text])[1:-1]


def _stated_scale(definition: Definition, workload: Manifest, name: str, instance: str | None) -> int:
    component = definition.components[name]
    scales = _scales(component, workload)
    if instance is None:
        own = sum(scales.values())
    elif instance in scales:
        own = scales[instance]
    else:
        raise InputError.about(
            f'component "{name}"', "instanceIdPath", found=[*scales], wanted=f'"{instance}" among them'
        )
    below = sum(_stated_scale(definition, workload, child, None) for child in definition.children_of(name))
    # A component without a scale leaves it to the level above or below.
    return own * below if own and below else own or below


def _counted_leaves(definition: Definition, workload: Manifest, name: str, instance: str | None) -> int:
    component = definition.components[name]
    if not component.is_leaf:
        return sum(_counted_leaves(definition, workload, child, None) for child in definition.children_of(name))
    if component.instances is None:
        return 1
    found = instance_ids(component, workload)
    if instance is None:
        return len(found)
    if instance not in found:
        raise InputError.about(
            f'component "{name}"', "instanceIdPath", found=[*found], wanted=f'"{instance}" among them'
        )
    return 1


def _scales(component: Component, workload: Manifest) -> dict[str, int]:
    """Return the replicas that each instance needs: its minimum if it has one, else all of them."""
    if component.scale is None:
        return {}
    replicas, minimums, maximums = (
        _numbers(component, query, workload)
        for query in (component.scale.replicas, component.scale.minimum, component.scale.maximum)
    )
    count = max(len(replicas), len(minimums), len(maximums))
    ids = instance_ids(component, workload)
    if len(ids) != count:
        raise InputError.about(
            f'component "{component.name}"', "scaleDefinition", found=count, wanted=f"{len(ids)} results"
        )
    return {
        each: next((found[row] for found in (minimums, replicas) if row < len(found) and found[row] > 0), 0)
        for row, each in enumerate(ids)
    }


def _numbers(component: Component, query: str | None, workload: Manifest) -> tuple[int, ...]:
    if query is None:
        return ()
    found = []
    for each in evaluate(query, workload):
        count = 0 if each is None else number(each)
        if count is None or count != count // 1 or abs(count) > INT32_MAX:
            raise InputError.about(
                f'component "{component.name}"', query, found=each, wanted="a whole number of replicas"
            )
        found.append(int(count))
    return tuple(found)
