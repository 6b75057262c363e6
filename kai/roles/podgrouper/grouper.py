"""Groupers and their drafts: what a grouper is given and returns, its settings, and the registry that finds one.

A grouper is a class with two members: ``kinds``, the kinds of top owner that it serves, and ``draft``. It must be a
function of the request: no I/O but through ``request.reader``, no clock, no randomness.

Groupers return a ``GroupDraft``; ``manifest`` renders it as a PodGroup object. It is not yet compared with the group
that exists. A draft names the sub-group of the given pod only: other pods of the group are other decisions. Segments
are runs of workers of equal size that should be placed close together.

`Settings` are an administrator's settings for the pod grouper, with the peer's defaults. `KindPattern` is how a grouper
names its kinds.

Groupers are found by the entry point group ``kai.groupers``, built-in ones like others. In a source tree that takes an
editable install (``uv pip install -e . --no-deps``), which makes its entry points visible. Precedence, first match: the
exact kind; the kind in any version; a declaration (Karta); the default grouper.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Final, Protocol, TypeGuard

import attrs

from kai.api import names
from kai.basics.errors import ConfigError, InputError, PluginError, error_text
from kai.roles.podgrouper.lookup import Reader
from kai.roles.podgrouper.resource import INT32_MAX, Fields, Kind, OwnerReference, Resource

POD: Final = Kind("", "v1", "Pod")
NAMESPACE: Final = Kind("", "v1", "Namespace")
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap")
JOB: Final = Kind("batch", "v1", "Job")
PRIORITY_CLASS: Final = Kind("scheduling.k8s.io", "v1", "PriorityClass")
POD_GROUP: Final = Kind.of(names.POD_GROUP_VERSION, "PodGroup")
KARTA: Final = Kind("run.ai", "v1alpha1", "Karta")


@attrs.frozen
class Topology:
    """How close together pods must or should be; an empty string is an unset level or name."""

    name: str = ""
    required: str = ""
    preferred: str = ""

    def manifest(self) -> dict[str, object]:
        """Return the constraint in manifest form, without unset fields."""
        fields = {
            "topology": self.name,
            "requiredTopologyLevel": self.required,
            "preferredTopologyLevel": self.preferred,
        }
        return {key: value for key, value in fields.items() if value}


@attrs.frozen(kw_only=True)
class SubGroup:
    """A sub-group: a leaf counts pods (``min_member``), a parent sub-groups (``min_subgroup``, which is then set)."""

    name: str
    min_member: int = 0
    min_subgroup: int | None = None
    parent: str | None = None
    topology: Topology | None = None

    def manifest(self) -> dict[str, object]:
        """Return the sub-group in manifest form."""
        fields: dict[str, object] = {"name": self.name}
        if self.parent is not None:
            fields["parent"] = self.parent
        fields |= _minimum(self.min_member, self.min_subgroup, f'sub-group "{self.name}"')
        if self.topology is not None:
            fields["topologyConstraint"] = self.topology.manifest()
        return fields


@attrs.frozen(kw_only=True)
class GroupDraft:
    """The PodGroup that a pod should be in.

    ``pod_subgroup`` is the leaf of the given pod, if the grouper knows one. ``notes`` list invalid values that were
    ignored, one sentence each; ``delays`` are Go durations in their normal form.
    """

    name: str
    namespace: str
    owner: OwnerReference
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    queue: str
    priority_class: str
    preemptibility: str = ""
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None
    min_member: int = 1
    min_subgroup: int | None = None
    topology: Topology = Topology()
    subgroups: tuple[SubGroup, ...] = ()
    pod_subgroup: str | None = None
    notes: tuple[str, ...] = ()

    def manifest(self) -> dict[str, object]:
        """Return the PodGroup object.

        Raises: InputError when a minimum is outside the range of a PodGroup.
        """
        metadata: dict[str, object] = {
            "name": self.name,
            "namespace": self.namespace,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "ownerReferences": [self.owner.manifest()],
        }
        spec = _minimum(self.min_member, self.min_subgroup, f'PodGroup "{self.namespace}/{self.name}"')
        optional = {
            "queue": self.queue,
            "priorityClassName": self.priority_class,
            "preemptibility": self.preemptibility,
            "preemptionDelay": self.preemption_delay,
            "stalenessGracePeriod": self.staleness_grace_period,
            "topologyConstraint": self.topology.manifest(),
            "subGroups": [subgroup.manifest() for subgroup in self.subgroups],
        }
        spec |= {key: value for key, value in optional.items() if value}
        kind = POD_GROUP
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": spec,
        }


def _minimum(min_member: int, min_subgroup: int | None, subject: str) -> dict[str, object]:
    """Return the one minimum to write; a minimum of 0 pods is written too, since it means fully elastic."""
    field, value = ("minMember", min_member) if min_subgroup is None else ("minSubGroup", min_subgroup)
    if not 0 <= value <= INT32_MAX:
        raise InputError.about(subject, field, found=value, wanted=f"a number in 0...{INT32_MAX}")
    return {field: value}


MOST_SEGMENTS = 10_000


def template_annotation(template: Fields | None, key: str) -> str | None:
    """Return an annotation of a pod template; None without a template or annotation.

    Raises: InputError when the annotation is not a string.
    """
    return None if template is None else template.text("metadata", "annotations", key)


def segment_topology(pod: Resource, template: Fields | None, owner: Resource) -> Topology | None:
    """Return the constraint on each segment; None if no topology, or no level of one, is named."""
    name = _stated(pod.annotations, template, names.TOPOLOGY) or owner.annotations.get(names.TOPOLOGY, "")
    required = _stated(pod.annotations, template, names.SEGMENT_TOPOLOGY_REQUIRED)
    preferred = _stated(pod.annotations, template, names.SEGMENT_TOPOLOGY_PREFERRED)
    return Topology(name, required, preferred) if name and (required or preferred) else None


def check_segment_count(count: int, owner: Resource) -> None:
    """Reject more segments than a group can reasonably hold.

    Raises: InputError above ``MOST_SEGMENTS``.
    """
    if count > MOST_SEGMENTS:
        raise InputError.about(str(owner), "number of segments", found=count, wanted=f"at most {MOST_SEGMENTS}")


def _stated(annotations: Mapping[str, str], template: Fields | None, key: str) -> str:
    try:
        return annotations.get(key) or template_annotation(template, key) or ""
    except InputError:
        return ""  # a template with a value of the wrong type counts as unset, as in the peer


ANY_VERSION = "*"


@attrs.frozen
class KindPattern:
    """The kinds that a grouper serves: a group, a kind, and a version, or ``*`` for versions that are not listed."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        """Return ``group/version/Kind``."""
        return str(Kind(self.group, self.version, self.kind))


@attrs.frozen(kw_only=True)
class Settings:
    """Settings of the pod grouper.

    An empty label selector selects everything; an empty ``node_pool_label`` switches node pools off; defaults by kind
    are read only when ``defaults_namespace`` and ``defaults_name`` are both given.
    """

    scheduler_name: str = names.SCHEDULER_NAME
    queue_label: str = names.QUEUE
    node_pool_label: str = names.NODE_POOL
    knative_gangs: bool = True
    legacy_groups: bool = True
    """Keep a group that exists under the name that an earlier release would have given it."""
    karta_fallback: bool = True
    defaults_namespace: str = ""
    defaults_name: str = ""
    namespace_labels: Mapping[str, str] = attrs.field(factory=dict)
    pod_labels: Mapping[str, str] = attrs.field(factory=dict)
    link_delay_seconds: float = 0.0
    """How long a pod's link to its group may wait to be written with the binding; only for a process that binds."""
    keeps_groups: bool = False
    """Whether groups of bare pods stay in memory; only for a process that also decides, binds and counts."""


DEFAULT = "default"
"""The entry point name of the default grouper, for kinds that no other grouper claims."""


@attrs.frozen
class Request:
    """One pod to group.

    ``owner`` is the workload to group by. ``owners`` are the pod's owners from the nearest to the farthest. They are
    empty for a pod without owners: its ``owner`` is then the pod itself.
    """

    pod: Resource
    owner: Resource
    owners: tuple[Resource, ...]
    reader: Reader
    settings: Settings
    groupers: "Groupers" = attrs.field(repr=False, eq=False)


class Grouper(Protocol):
    """Decide on the group of a pod whose top owner is of one of ``kinds``."""

    kinds: ClassVar[tuple[KindPattern, ...]]

    def draft(self, request: Request, /) -> GroupDraft | None:
        """Return the group, or None if the pod is not to be grouped.

        Raises: InputError when an object lacks a required value or has an invalid one; the pod is tried again later.
        """
        ...


class DeclaredGrouper(Grouper, Protocol):
    """A grouper whose kinds are declared at run time, by objects of the cluster, instead of in a list."""

    def serves(self, kind: Kind, reader: Reader, settings: Settings, /) -> bool:
        """Return whether ``kind`` has been declared."""
        ...


@attrs.frozen
class Groupers:
    """The groupers of one process, by entry point name and by kind."""

    by_name: Mapping[str, Grouper]
    by_kind: Mapping[KindPattern, Grouper]

    @property
    def default(self) -> Grouper:
        """Return the grouper of kinds that no other grouper claims."""
        return self.by_name[DEFAULT]

    def of_kind(self, kind: Kind) -> Grouper | None:
        """Return the grouper that serves exactly this kind and version."""
        return self.by_kind.get(KindPattern(kind.group, kind.version, kind.kind))

    def knows(self, kind: Kind) -> bool:
        """Return whether a grouper serves the kind in some version."""
        return any((each.group, each.kind) == (kind.group, kind.kind) for each in self.by_kind)

    def choose(self, kind: Kind, reader: Reader, settings: Settings) -> Grouper:
        """Return the grouper for a top owner of ``kind``."""
        exact = self.of_kind(kind) or self.by_kind.get(KindPattern(kind.group, ANY_VERSION, kind.kind))
        if exact is not None:
            return exact
        for _, grouper in sorted(self.by_name.items()):
            if _is_declared(grouper) and grouper.serves(kind, reader, settings):
                return grouper
        return self.default


def _is_declared(grouper: Grouper) -> TypeGuard[DeclaredGrouper]:
    """Return whether a grouper supports declarations."""
    return callable(getattr(grouper, "serves", None))


ENTRY_POINTS = "kai.groupers"


def load_groupers() -> Groupers:
    """Return every installed grouper.

    Raises: ConfigError when none is installed, or two claim one kind. PluginError when an entry point does not lead to
        a grouper.
    """
    return assemble((point.name, _load(point)) for point in entry_points(group=ENTRY_POINTS))


def assemble(groupers: Iterable[tuple[str, Grouper]]) -> Groupers:
    """Return the registry of named ``groupers``.

    Raises: ConfigError as ``load_groupers`` does.
    """
    by_name: dict[str, Grouper] = {}
    # Entry points come in the order in which packages were installed, and a choice must not depend on that.
    for name, grouper in sorted(groupers, key=lambda named: named[0]):
        if name in by_name:
            raise ConfigError(f'entry points "{ENTRY_POINTS}": found "{name}" twice, expected each name once')
        by_name[name] = grouper
    if DEFAULT not in by_name:
        raise ConfigError(
            f'entry points "{ENTRY_POINTS}": found {", ".join(by_name) or "none"}, expected "{DEFAULT}" among them; '
            "is the project installed (`uv pip install -e . --no-deps` from the tree)?"
        )
    claims: dict[KindPattern, str] = {}
    for name, grouper in by_name.items():
        for pattern in grouper.kinds:
            if pattern in claims:
                raise ConfigError(f'kind {pattern}: claimed by groupers "{claims[pattern]}" and "{name}", expected one')
            claims[pattern] = name
    return Groupers(by_name, {pattern: by_name[name] for pattern, name in claims.items()})


def _load(point: EntryPoint) -> Grouper:
    hook = f'entry point of "{ENTRY_POINTS}"'
    try:
        made = point.load()()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an imported module may raise anything, SystemExit included
        raise PluginError(f"cannot be made: {error_text(error)}", plugin=point.name, hook=hook) from error
    if not _is_grouper(made):
        raise PluginError(f"{point.value} lacks `kinds` or `draft`, which a grouper has", plugin=point.name, hook=hook)
    return made


def _is_grouper(made: object) -> TypeGuard[Grouper]:
    kinds = getattr(made, "kinds", None)
    is_listed = isinstance(kinds, tuple) and all(isinstance(each, KindPattern) for each in kinds)
    return is_listed and callable(getattr(made, "draft", None))
