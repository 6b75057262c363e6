"""What a grouper is asked, and what one is.

A grouper is a class with two names that matter: ``kinds``, the kinds of top owner it serves, and ``draft``. It is found
by an entry point in the group ``kai.groupers``; built-in ones come through the same door. It must be a function of the
request: no I/O but through ``request.reader``, no clock, no randomness.
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol, TypeGuard

import attrs

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.lookup import Reader
from kai.podgrouper.resource import Kind, Resource
from kai.podgrouper.settings import ANY_VERSION, KindPattern, Settings

DEFAULT = "default"
"""The entry point name of the grouper of kinds that no other grouper claims."""


@attrs.frozen
class Request:
    """One pod to group.

    ``owner`` is the workload to group by. ``owners`` are the pod's owners from the nearest to the farthest, and empty
    for a pod without any: its ``owner`` is then the pod itself.
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
        """Return the group, or nothing when the pod is to be left alone.

        Raises: InputError when an object does not say what it must; the pod is tried again later.
        """
        ...


class DeclaredGrouper(Grouper, Protocol):
    """A grouper whose kinds are declared somewhere at run time, instead of being a list."""

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
    """Return whether a grouper takes declarations."""
    return callable(getattr(grouper, "serves", None))
