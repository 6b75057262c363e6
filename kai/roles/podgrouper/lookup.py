"""The interface through which grouping reads the cluster.

Grouping is a function and does no I/O. It calls a ``Lookup``; where that answers ``Absent(UNREAD)``, the decision is
``Needs(read)``: the service performs the read, adds the answer to its ``Answers`` and calls again. A decision
takes a handful of reads, so starting over costs microseconds and keeps groupers ordinary functions.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Protocol, Self, TypeAlias

import attrs

from kai.basics.errors import InputError
from kai.roles.podgrouper.resource import Kind, Manifest, Resource


class Why(enum.Enum):
    """Why there is no object."""

    NOT_FOUND = "not found"
    FORBIDDEN = "reading it is not permitted"
    NO_SUCH_KIND = "the kind is not installed"
    FAILED = "the read failed"
    UNREAD = "not read yet"


@attrs.frozen
class Absent:
    """An answer without an object."""

    why: Why
    message: str = ""

    def __str__(self) -> str:
        """Return the reason in words."""
        return f"{self.why.value}: {self.message}" if self.message else self.why.value


@attrs.frozen
class Get:
    """A read of one object. ``namespace`` is ignored for a cluster-scoped kind."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return what is read."""
        return (
            f'{self.kind.kind} "{self.namespace}/{self.name}"' if self.namespace else f'{self.kind.kind} "{self.name}"'
        )


@attrs.frozen
class Many:
    """A read of all objects of a kind in a namespace (in all if empty) that have ``labels``."""

    kind: Kind
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return what is read."""
        where = f' of namespace "{self.namespace}"' if self.namespace else ""
        return f"all {self.kind.kind} objects{where}"


Read: TypeAlias = Get | Many


class Lookup(Protocol):
    """Answers reads from known objects. No I/O; the same read has the same answer throughout a decision."""

    def get(self, read: Get, /) -> Manifest | Resource | Absent:
        """Return the object, as a ``Resource`` where it was read before, or why there is none."""
        ...

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        """Return the objects, in any order, or why they cannot be listed."""
        ...


@attrs.frozen
class Answers:
    """The answers that the service has fetched for one decision; other reads are ``UNREAD``."""

    objects: Mapping[Get, Manifest | Absent] = attrs.field(factory=dict)
    lists: Mapping[Many, tuple[Manifest, ...] | Absent] = attrs.field(factory=dict)
    size: int = 0
    """The size of the objects, in bytes of JSON."""

    def get(self, read: Get, /) -> Manifest | Absent:
        """Return the fetched answer to ``read``."""
        return self.objects.get(read, Absent(Why.UNREAD))

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        """Return the fetched answer to ``read``."""
        return self.lists.get(read, Absent(Why.UNREAD))

    def with_object(self, read: Get, answer: Manifest | Absent, size: int = 0) -> Self:
        """Return the answers with one more, which has ``size`` bytes."""
        return attrs.evolve(self, objects={**self.objects, read: answer}, size=self.size + size)

    def with_list(self, read: Many, answer: Iterable[Manifest] | Absent) -> Self:
        """Return the answers with one more."""
        return attrs.evolve(self, lists={**self.lists, read: answer if isinstance(answer, Absent) else tuple(answer)})


# An exception and no result: a grouper of another package reads in the midst of its rules, and would have to pass on a
# missing read at every place.
class Unread(Exception):  # noqa: N818 - not an error: it carries the one read that a decision still needs
    """Raised through a grouper when the lookup lacks an object; ``group_pod`` turns it into ``Needs``."""

    def __init__(self, read: Read) -> None:
        super().__init__(str(read))
        self.read = read


@attrs.frozen
class Reader:
    """The lookup for groupers: an unread object ends the attempt instead of being an answer.

    A failed read, other than for absence or permissions, also ends the attempt: a decision as if the object
    did not exist would write a wrong group, which the next attempt would write again.
    """

    lookup: Lookup

    def get(self, read: Get) -> Resource | Absent:
        """Return the object, or why there is none: absent or forbidden.

        Raises: InputError when the read failed or the object is malformed.
        """
        answer = self.lookup.get(read)
        if isinstance(answer, Absent):
            return self._settled(read, answer)
        return answer if isinstance(answer, Resource) else Resource.of(answer, read.kind)

    def need(self, read: Get) -> Resource:
        """Return an object that must exist.

        Raises: InputError when it does not.
        """
        found = self.get(read)
        if isinstance(found, Absent):
            raise InputError(f"{read}: {found}")
        return found

    def many(self, read: Many) -> tuple[Resource, ...] | Absent:
        """Return the objects by name, so that no decision depends on the order of a list.

        Raises: InputError when the read failed or an object is malformed.
        """
        answer = self.lookup.many(read)
        if isinstance(answer, Absent):
            return self._settled(read, answer)
        found = (Resource.of(manifest, read.kind) for manifest in answer)
        return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))

    def _settled(self, read: Read, answer: Absent) -> Absent:
        if answer.why is Why.UNREAD:
            raise Unread(read)
        if answer.why is Why.FAILED:
            raise InputError(f"{read}: {answer}")
        return answer
