"""A Karta's description of one kind: its components and their scale, and which of them make a gang.

Facts of the format: ``run.ai/v1alpha1`` Karta. ``spec.structureDefinition`` has a root component, of the described
kind, and children that name their owner; ``spec.optimizationInstructions.gangScheduling`` has either
``podGroup`` (one group whose sub-groups are components) or the older ``podGroups`` (groups by keys of the pod).
"""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from kai.basics.errors import InputError
from kai.roles.podgrouper.karta.syntax import UnsupportedSyntaxError, check_reads_only, parse
from kai.roles.podgrouper.resource import Fields, Kind, Resource

KINDS_WITHOUT_GROUP = frozenset({"Pod"})
POD_DEFINITIONS = ("podTemplateSpecPath", "podSpecPath", "fragmentedPodSpecDefinition")
FRAGMENTS = (
    "schedulerName", "labels", "annotations", "resources", "resourceClaims", "podAffinity", "nodeAffinity",
    "containers", "container", "priorityClassName", "image",
)  # fmt: skip
STATUSES = ("initializing", "running", "completed", "failed", "degraded")


@attrs.frozen
class Scale:
    """Queries for numbers of replicas, on the workload; several results are several instances."""

    replicas: str | None
    minimum: str | None
    maximum: str | None


@attrs.frozen
class TypeSelector:
    """A query that recognises the pods of a component: by its result, or by having one."""

    key: str
    value: str | None


@attrs.frozen(kw_only=True)
class Component:
    """A part of the workload. A leaf has pods; ``instances`` is a query for the names of its instances."""

    name: str
    owner: str | None
    is_leaf: bool
    scale: Scale | None
    instances: str | None
    has_selector: bool
    type_selector: TypeSelector | None
    instance_selector: str | None


@attrs.frozen
class Constraint:
    """A topology constraint in a Karta's form."""

    name: str
    required: str
    preferred: str


@attrs.frozen
class Mapped:
    """A component that becomes a sub-group."""

    component: str
    constraint: Constraint | None


@attrs.frozen
class OneGroup:
    """The newer instruction: one group for the workload, named, with components as sub-groups."""

    name: str
    constraint: Constraint | None
    subgroups: tuple[Mapped, ...]


@attrs.frozen
class Member:
    """The older instruction: pods of a component that pass all filters are grouped by these keys."""

    component: str
    keys: tuple[str, ...]
    filters: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Definition:
    """A valid Karta. ``components`` are by name, the root first."""

    root: str
    components: Mapping[str, Component]
    one_group: OneGroup | None
    members: tuple[Member, ...]

    def children_of(self, name: str) -> tuple[str, ...]:
        """Return the components that name ``name`` as their owner."""
        return tuple(each.name for each in self.components.values() if each.owner == name)

    def line_of(self, name: str) -> Iterator[str]:
        """Yield the component and its ancestors, up to the root."""
        current: str | None = name
        while current is not None:
            yield current
            current = self.components[current].owner

    @property
    def leaves(self) -> tuple[Component, ...]:
        """Return the components that have pods."""
        return tuple(each for each in self.components.values() if each.is_leaf)

    @property
    def states_scale(self) -> bool:
        """Return whether any component has a number of replicas."""
        return any(each.scale is not None for each in self.components.values())


def described_kind(karta: Resource) -> Kind | None:
    """Return the kind that a Karta describes; None if it defines no gangs for it, or is being deleted.

    Raises: InputError when the Karta is malformed.
    """
    fields = karta.fields
    gangs = _gangs(fields)
    root = _structure(fields).child("rootComponent")
    if karta.is_terminating or gangs is None or root is None:
        return None
    if gangs.value.get("podGroup") is None and not gangs.children("podGroups"):
        return None
    kind = root.child("kind")
    if kind is None:
        return None
    return Kind(kind.text("group") or "", kind.text("version") or "", kind.text("kind") or "")


def read_definition(karta: Resource) -> Definition:
    """Return the definition in a Karta.

    Raises: InputError when it is inconsistent: repeated names, missing or circular owners, queries that are not
        jq or that write.
    """
    structure = _structure(karta.fields)
    root = structure.child("rootComponent")
    if root is None:
        raise structure.error(("rootComponent",), None, "the component of the described kind")
    children = structure.children("childComponents") or ()
    _check_root(root)
    components: dict[str, Component] = {}
    for fields in (root, *children):
        component = _component(fields)
        if component.name in components:
            raise fields.error(("name",), component.name, "a name of its own")
        components[component.name] = component
    for fields in children:
        _check_owner(fields, components)
    gangs = _gangs(karta.fields) or Fields({}, str(karta))
    definition = Definition(
        root=_text(root, "name"),
        components=components,
        one_group=_one_group(gangs),
        members=tuple(_members(gangs, components)),
    )
    for fields in (root, *children):
        _check_queries(fields)
    for group in gangs.children("podGroups") or ():
        for member in group.children("members") or ():
            _check_each(member, (*(member.texts("groupByKeyPaths") or ()), *(member.texts("filters") or ())))
    return definition


def _structure(fields: Fields) -> Fields:
    found = fields.child("spec", "structureDefinition")
    return Fields({}, fields.subject, "spec.structureDefinition") if found is None else found


def _gangs(fields: Fields) -> Fields | None:
    instructions = fields.child("spec", "optimizationInstructions")
    if instructions is None or instructions.value.get("gangScheduling") is None:
        return None
    return instructions.child("gangScheduling")


def _text(fields: Fields, *path: str) -> str:
    value = fields.text(*path)
    if not value:
        raise fields.error(path, value, "a name")
    return value


def _child(fields: Fields, key: str) -> Fields | None:
    """Return an optional part; null means absent, as in typed objects."""
    return None if fields.value.get(key) is None else fields.child(key)


def _optional(fields: Fields | None, key: str) -> str | None:
    return None if fields is None or fields.value.get(key) is None else fields.text(key)


def _component(fields: Fields) -> Component:
    spec, scale, selector = (_child(fields, key) for key in ("specDefinition", "scaleDefinition", "podSelector"))
    by_type = _child(selector, "componentTypeSelector") if selector else None
    by_instance = _child(selector, "componentInstanceSelector") if selector else None
    instances = _optional(fields, "instanceIdPath")
    if (instances is None) != (by_instance is None):
        found = "only one of instanceIdPath and podSelector.componentInstanceSelector"
        raise fields.error((), found, "both or neither")
    definitions = [key for key in POD_DEFINITIONS if spec and spec.value.get(key) is not None]
    if len(definitions) > 1:
        raise fields.error(("specDefinition",), " and ".join(definitions), "one of them")
    return Component(
        name=_text(fields, "name"),
        owner=_optional(fields, "ownerRef"),
        is_leaf=bool(definitions),
        scale=Scale(*(_optional(scale, f"{key}Path") for key in ("replicas", "minReplicas", "maxReplicas")))
        if scale
        else None,
        instances=instances,
        has_selector=selector is not None,
        type_selector=TypeSelector(by_type.text("keyPath") or "", _optional(by_type, "value")) if by_type else None,
        instance_selector=by_instance.text("idPath") if by_instance else None,
    )


def _check_root(root: Fields) -> None:
    kind = root.child("kind")
    group, version, name = (_optional(kind, key) for key in ("group", "version", "kind"))
    if not version or not name or (not group and name not in KINDS_WITHOUT_GROUP):
        raise root.error(("kind",), f"{group}/{version}/{name}", "group, version and kind")
    if _optional(root, "ownerRef") is not None:
        raise root.error(("ownerRef",), root.value["ownerRef"], "no owner of the root component")
    if root.value.get("statusDefinition") is None:
        raise root.error(("statusDefinition",), None, "how to read the status of the workload")


def _check_owner(fields: Fields, components: Mapping[str, Component]) -> None:
    """Refuse a child whose owners do not lead to the root."""
    seen = set[str]()
    current = components[_text(fields, "name")]
    while current.name not in seen:
        seen.add(current.name)
        # The root alone has no owner, so the walk ends well only if it came from below.
        if current.owner is None and len(seen) > 1:
            return
        if current.owner is None or current.owner not in components:
            raise fields.error(("ownerRef",), current.owner, "the name of a component")
        current = components[current.owner]
    raise fields.error(("ownerRef",), current.owner, "owners that lead to the root component")


def _one_group(gangs: Fields) -> OneGroup | None:
    group = _child(gangs, "podGroup")
    if group is None:
        return None
    mappings = group.children("subGroups") if group.value.get("subGroups") is not None else None
    subgroups = tuple(Mapped(mapping.text("componentName") or "", _constraint(mapping)) for mapping in mappings or ())
    return OneGroup(group.text("name") or "", _constraint(group), subgroups)


def _constraint(fields: Fields) -> Constraint | None:
    topology = _child(fields, "topology")
    if topology is None:
        return None
    keys = ("topologyName", "requiredTopologyLevel", "preferredTopologyLevel")
    return Constraint(*(_optional(topology, key) or "" for key in keys))


def _members(gangs: Fields, components: Mapping[str, Component]) -> Iterator[Member]:
    groups = gangs.children("podGroups") if gangs.value.get("podGroups") is not None else None
    for group in groups or ():
        for member in group.children("members") or ():
            component = member.text("componentName") or ""
            if component not in components:
                raise member.error(("componentName",), component, "the name of a component")
            yield Member(component, member.texts("groupByKeyPaths") or (), member.texts("filters") or ())


def _check_queries(fields: Fields) -> None:
    """Refuse a component with a query that is not jq or writes; queries not run here only if surely wrong."""
    selector = _child(fields, "podSelector")
    run = [_optional(fields, "instanceIdPath")]
    scale = _child(fields, "scaleDefinition")
    run += [_optional(scale, f"{key}Path") for key in ("replicas", "minReplicas", "maxReplicas")]
    keys = {"componentTypeSelector": "keyPath", "componentInstanceSelector": "idPath", "replicaSelector": "keyPath"}
    run += [_optional(_child(selector, part), key) for part, key in keys.items()] if selector else []
    _check_each(fields, run)
    for query in _queries_not_run(fields):
        try:
            _check_each(fields, [query])
        # kai never runs this query, and gojq knows the form: it is no fault of the Karta.
        except UnsupportedSyntaxError:
            continue


def _queries_not_run(fields: Fields) -> Iterator[str | None]:
    spec = _child(fields, "specDefinition")
    for key in ("podTemplateSpecPath", "podSpecPath", "metadataPath"):
        yield _optional(spec, key)
    fragments = _child(spec, "fragmentedPodSpecDefinition") if spec else None
    for name in FRAGMENTS:
        yield _optional(fragments, f"{name}Path")
    status = _child(fields, "statusDefinition")
    if status is None:
        return
    for part in ("phaseDefinition", "conditionsDefinition"):
        yield _optional(_child(status, part), "path")
    mappings = _child(status, "statusMappings")
    for name in STATUSES:
        matchers = mappings.children(name) if mappings and mappings.value.get(name) is not None else None
        for matcher in matchers or ():
            yield _optional(_child(matcher, "byExpression"), "expression")


def _check_each(fields: Fields, queries: Iterable[str | None]) -> None:
    for query in queries:
        if not query:
            continue
        try:
            check_reads_only(parse(query))
        except UnsupportedSyntaxError as problem:
            raise UnsupportedSyntaxError(f"{fields.subject}: {fields.path}: {query}: {problem}") from problem
        except InputError as problem:
            raise InputError(f"{fields.subject}: {fields.path}: {query}: {problem}") from problem
