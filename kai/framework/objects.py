"""What plugins read of Kubernetes objects: custom resources, and labels and annotations of pods and groups.

A plugin lists kinds of objects in ``reads`` of its class, because the scheduler watches them before any session opens:

    CAPS = Objects(api_version="power.example.com/v1", kind="RackPowerCap", plural="rackpowercaps", read=watts_of)

    @attrs.frozen
    class RackPower:
        reads: ClassVar = (CAPS,)

        def open(self, session: SessionView) -> Sequence[Extension]:
            caps = session.values(CAPS)  # by name: the result of watts_of for each object

``read`` is a pure function of one object, called once for each version of it. The scheduler needs the RBAC right to
get, list and watch the kind; ``kai plugins`` lists it. In simulations the objects are part of the input.

Numbers of pods and groups arrive as columns:

    WATTS = Column(read=lambda labels, annotations: float(annotations["power.example.com/watts"]), otherwise=300)
    watts = session.pod_column(WATTS)  # float64[P]; for groups ``group_column``

``selector_of`` and ``node_terms_of`` parse selectors of labels and of nodes from JSON.

A ``LabelTable`` finds the rows that a selector picks without a look at each row. It serves one kind of row (the nodes
of a session, the shapes of its pods). Each key becomes a column of small integers on first use; a requirement is then a
comparison of integers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import nan
from typing import Any, TypeAlias

import attrs
import numpy as np

from kai.facts.model.axis import Bools, Int64s, locked
from kai.facts.model.claim import RawObject
from kai.facts.model.constraints import NodeTerm, Requirement, Selector


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
    """Return the alternative terms of a node selector; None when there is no selector."""
    if written is None:
        return None
    return tuple(
        NodeTerm(_requirements(term.get("matchExpressions", ())), _requirements(term.get("matchFields", ())))
        for term in written.get("nodeSelectorTerms", ())
    )


def _requirements(written: Any) -> tuple[Requirement, ...]:  # noqa: ANN401 - a list of JSON
    return tuple(Requirement(each["key"], each["operator"], tuple(each.get("values", ()))) for each in written)


LabelColumn: TypeAlias = tuple[Int64s, Mapping[str, int]]
"""The number of each row's value, and the number of each distinct value."""


class LabelTable:
    """The labels of some rows."""

    def __init__(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Keep ``rows``; columns are made on demand."""
        self._rows = rows
        self._columns: dict[str, LabelColumn] = {}

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset().union(*self._rows)

    @cached_property
    def _nowhere(self) -> LabelColumn:
        """The shared column of all keys that no row has: users may name any number of such keys."""
        return locked(np.zeros(len(self._rows), np.int64)), {}

    def codes(self, key: str) -> Int64s:
        """Return int64[n]: equal numbers for equal values of ``key``, in their order; 0 for rows without it."""
        return self._column(key)[0]

    def _column(self, key: str) -> LabelColumn:
        found = self._columns.get(key)
        if found is None and key not in self._keys:
            return self._nowhere
        if found is None:
            # Codes follow the order of values, not of rows: a node that is added or listed elsewhere may change no tie
            # between domains.
            values = [row.get(key) for row in self._rows]
            numbers = {value: code for code, value in enumerate(sorted({v for v in values if v is not None}), start=1)}
            codes = np.array([0 if value is None else numbers[value] for value in values], np.int64)
            # Memoized as long as the labels are the same, and visible to plugins, hence read-only.
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
                # Gt, Lt and the like are asked once for each distinct value. Code 0 comes first, the absent label: a
                # comparison with it holds for no row.
                answers = [False, *(requirement.matches({requirement.key: value}) for value in numbers)]
                mask: Bools = np.array(answers, np.bool_)[codes]
                return mask

    def satisfies(self, requirements: Iterable[Requirement]) -> Bools:
        """Return bool[n]: the rows that satisfy every expression; all rows if there is none."""
        mask: Bools | None = None
        for requirement in requirements:
            found = self.matches(requirement)
            mask = found if mask is None else mask & found
        # No copy of the first mask is needed before: `matches` makes a new array each time, and `&` does not write to
        # it.
        return np.ones(len(self._rows), np.bool_) if mask is None else mask

    def selects(self, selector: Selector | None) -> Bools:
        """Return bool[n]: the rows that ``selector`` picks; an absent one picks none."""
        return np.zeros(len(self._rows), np.bool_) if selector is None else self.satisfies(selector.requirements)


def _among(codes: Int64s, numbers: Mapping[str, int], values: Sequence[str]) -> Bools:
    wanted = [numbers[value] for value in values if value in numbers]
    if len(wanted) == 1:
        mask: Bools = codes == wanted[0]
        return mask
    chosen = np.zeros(len(numbers) + 1, np.bool_)  # a look-up table: `isin` takes several times as long
    chosen[wanted] = True
    return chosen[codes]


@attrs.frozen(kw_only=True)
class Objects:
    """A kind of objects, and the function that reads them."""

    api_version: str
    kind: str
    plural: str
    read: Callable[[RawObject], object]
    """Returns a value that is never changed. On ValueError, whose text says what is wrong, the value is ``Unreadable``.

    KeyError and TypeError, from a missing field or a wrong type, have the same effect: users write the objects.
    """
    namespaced: bool = False

    @property
    def right(self) -> str:
        """The resource that the scheduler needs the right to get, list and watch: plural and group."""
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
    """A number that a plugin reads from each pod, or from each group."""

    read: Callable[[Mapping[str, str], Mapping[str, str]], float]
    """Computes the number from labels and annotations, once for each version of an object."""
    otherwise: float = nan
    """The number of objects for which ``read`` raises KeyError or ValueError: no annotation, or no number."""

    def of(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> float:
        """Return the number of one object."""
        try:
            return self.read(labels, annotations)
        # A TypeError goes through: labels and annotations are always texts, so it is a mistake of the plugin and not of
        # the user who wrote them.
        except (KeyError, ValueError):
            return self.otherwise


@attrs.frozen
class Unreadable:
    """The value of an object that cannot be read, and why. The plugin decides what follows from it."""

    message: str


__all__ = ["LabelColumn", "Objects", "RawObject", "Unreadable"]
