"""What a plugin reads of objects: its own custom resources, and labels and annotations of pods and groups.

A plugin names kinds of objects in ``reads`` of its class, since the scheduler watches them before any session opens:

    CAPS = Objects(api_version="power.example.com/v1", kind="RackPowerCap", plural="rackpowercaps", read=watts_of)

    @attrs.frozen
    class RackPower:
        reads: ClassVar = (CAPS,)

        def open(self, session: SessionView) -> Sequence[Extension]:
            caps = session.values(CAPS)  # by name: what watts_of made of each object

``read`` is a pure function of one object, asked once for each version of it. The scheduler must be allowed to get, list
and watch the kind; ``kai plugins`` says so. In simulations the objects stand among the others.

Of pods and groups a plugin reads numbers, which arrive as columns:

    WATTS = Column(read=lambda labels, annotations: float(annotations["power.example.com/watts"]), otherwise=300)
    watts = session.pod_column(WATTS)  # float64[P]; for groups ``group_column``

Selectors of labels and of nodes, as JSON has them.

Labels as columns: which rows a selector picks, without looking at each row.

A table answers for one kind of row (the nodes of a session, the shapes of its pods). Each key becomes a column of small
integers the first time it is asked for; a requirement is then a comparison of integers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import nan
from typing import Any, TypeAlias

import attrs
import numpy as np

from kai.model.axis import Bools, Int64s, locked
from kai.model.claim import RawObject
from kai.model.constraints import NodeTerm, Requirement, Selector


def selector_of(written: Mapping[str, Any] | None) -> Selector | None:
    """Return a label selector, None for an absent one (which selects nothing)."""
    if written is None:
        return None
    found = [Requirement(key, "In", (value,)) for key, value in written.get("matchLabels", {}).items()]
    found += [
        Requirement(each["key"], each["operator"], tuple(sorted(each.get("values", ()))))
        for each in written.get("matchExpressions", ())
    ]
    return Selector(tuple(sorted(found, key=lambda each: (each.key, each.operator, each.values))))


def node_terms_of(written: Mapping[str, Any] | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector, one of which must hold; None when there is no selector."""
    if written is None:
        return None
    return tuple(
        NodeTerm(_requirements(term.get("matchExpressions", ())), _requirements(term.get("matchFields", ())))
        for term in written.get("nodeSelectorTerms", ())
    )


def _requirements(written: Any) -> tuple[Requirement, ...]:  # noqa: ANN401 - a list of JSON
    return tuple(Requirement(each["key"], each["operator"], tuple(each.get("values", ()))) for each in written)


LabelColumn: TypeAlias = tuple[Int64s, Mapping[str, int]]
"""Numbers of values by row, and the number of each value."""


class LabelTable:
    """The labels of some rows."""

    def __init__(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Keep ``rows``; nothing is read before it is asked for."""
        self._rows = rows
        self._columns: dict[str, LabelColumn] = {}

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset().union(*self._rows)

    @cached_property
    def _nowhere(self) -> LabelColumn:
        """The column of all keys that no row has: users may name as many as they like."""
        return locked(np.zeros(len(self._rows), np.int64)), {}

    def codes(self, key: str) -> Int64s:
        """Return int64[n]: equal numbers for equal values of ``key``, in their order; 0 for rows without it."""
        return self._column(key)[0]

    def _column(self, key: str) -> LabelColumn:
        found = self._columns.get(key)
        if found is None and key not in self._keys:
            return self._nowhere
        if found is None:
            values = [row.get(key) for row in self._rows]
            numbers = {value: code for code, value in enumerate(sorted({v for v in values if v is not None}), start=1)}
            codes = np.array([0 if value is None else numbers[value] for value in values], np.int64)
            # It is kept for as long as the labels are the same, and shown to plugins.
            found = self._columns[key] = (locked(codes), numbers)
        return found

    def matches(self, requirement: Requirement) -> Bools:
        """Return bool[n]: the rows that satisfy one expression."""
        codes, numbers = self._column(requirement.key)
        match requirement.operator:
            case "In":
                return _among(codes, numbers, requirement.values)
            case "NotIn":
                return ~_among(codes, numbers, requirement.values)
            case "Exists":
                return codes > 0
            case "DoesNotExist":
                return ~(codes > 0)
            case _:
                answers = [False, *(requirement.matches({requirement.key: value}) for value in numbers)]
                mask: Bools = np.array(answers, np.bool_)[codes]
                return mask

    def satisfies(self, requirements: Iterable[Requirement]) -> Bools:
        """Return bool[n]: the rows that satisfy every expression; all rows if there is none."""
        mask: Bools | None = None
        for requirement in requirements:
            found = self.matches(requirement)
            mask = found if mask is None else mask & found
        return np.ones(len(self._rows), np.bool_) if mask is None else mask

    def selects(self, selector: Selector | None) -> Bools:
        """Return bool[n]: the rows that ``selector`` picks; an absent one picks none."""
        return np.zeros(len(self._rows), np.bool_) if selector is None else self.satisfies(selector.requirements)


def _among(codes: Int64s, numbers: Mapping[str, int], values: Sequence[str]) -> Bools:
    wanted = [numbers[value] for value in values if value in numbers]
    if len(wanted) == 1:
        mask: Bools = codes == wanted[0]
        return mask
    chosen = np.zeros(len(numbers) + 1, np.bool_)  # a look-up: `isin` takes several times as long
    chosen[wanted] = True
    return chosen[codes]


@attrs.frozen(kw_only=True)
class Objects:
    """A kind of objects, and what a plugin makes of each."""

    api_version: str
    kind: str
    plural: str
    read: Callable[[RawObject], object]
    """A value that is never changed. ValueError says what is wrong with the object; its value is ``Unreadable``.

    KeyError and TypeError, of a field that is missing or of another type, do the same: an object is not the plugin's.
    """
    namespaced: bool = False

    @property
    def right(self) -> str:
        """The resource that the scheduler must be allowed to get, list and watch: plural and group."""
        group, slash, _ = self.api_version.partition("/")
        return f"{self.plural}.{group}" if slash else self.plural

    def value_of(self, raw: RawObject) -> object:
        """Return the value of one object."""
        try:
            return self.read(raw)
        except ValueError as error:
            return Unreadable(message=f"{self.kind.lower()} {raw.key}: {error}")
        except (KeyError, TypeError) as error:
            return Unreadable(message=f"{self.kind.lower()} {raw.key}: {type(error).__name__}: {error}")


@attrs.frozen(kw_only=True)
class Column:
    """A number that a plugin reads of each pod, or of each group."""

    read: Callable[[Mapping[str, str], Mapping[str, str]], float]
    """Makes the number of labels and annotations, once for each version of an object."""
    otherwise: float = nan
    """Of objects for which ``read`` raises KeyError or ValueError: they have no such annotation, or no number in it."""

    def of(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> float:
        """Return the number of one object."""
        try:
            return self.read(labels, annotations)
        except (KeyError, ValueError):
            return self.otherwise


@attrs.frozen
class Unreadable:
    """The value of an object that cannot be read, and why. The plugin decides what follows from it."""

    message: str


__all__ = ["LabelColumn", "Objects", "RawObject", "Unreadable"]
