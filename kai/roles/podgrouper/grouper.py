"""Groupers: their interface, their settings, and the registry that finds one for a kind.

A grouper is a class with two members: ``kinds``, the kinds of top owner that it serves, and ``draft``. It must be a
function of the request: no I/O but through ``request.reader``, no clock, no randomness.

`Settings` are an administrator's settings for the pod grouper, with the peer's defaults. `KindPattern` is how a grouper
names its kinds.

Groupers are found by the entry point group ``kai.groupers``, built-in ones like others. In a source tree that takes an
editable install (``uv pip install -e . --no-deps``), which makes its entry points visible. Precedence, first match: the
exact kind; the kind in any version; a declaration (Karta); the default grouper.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Protocol, TypeGuard

import attrs

from kai.api import names
from kai.basics.errors import ConfigError, PluginError, error_text
from kai.roles.podgrouper.draft import GroupDraft
from kai.roles.podgrouper.lookup import Reader
from kai.roles.podgrouper.resource import Kind, Resource

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
