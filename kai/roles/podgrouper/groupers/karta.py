"""Kinds that are described by a Karta, an object of the cluster."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import attrs

from kai.basics.errors import InputError
from kai.roles.podgrouper.draft import KARTA, GroupDraft, SubGroup, Topology
from kai.roles.podgrouper.grouper import KindPattern, Request, Settings
from kai.roles.podgrouper.karta.definition import Constraint, Definition, OneGroup, described_kind, read_definition
from kai.roles.podgrouper.karta.scale import (
    component_of_pod,
    instance_ids,
    is_in_subtree,
    member_of_pod,
    single,
    subtree_scale,
)  # fmt: skip
from kai.roles.podgrouper.karta.values import json_of, type_name
from kai.roles.podgrouper.lookup import Absent, Many, Reader
from kai.roles.podgrouper.resource import Kind, Resource
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
