"""Whether labels satisfy a requirement, and whether a toleration covers a taint: each rule once, for every side.

The scheduler, the binder and the reader of disruption budgets must agree here. Where they did not, the scheduler would
never place what the binder would admit, or send for ever what the binder refuses.

Source: Kubernetes' component-helpers (node affinity), core/v1's Toleration.ToleratesTaint, apimachinery's
labels.Requirement.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kai.numerals import signed


class RequirementLike(Protocol):
    """One expression of a selector: ``key operator values``."""

    @property
    def key(self) -> str:
        """The label, or the field."""

    @property
    def operator(self) -> str:
        """In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    @property
    def values(self) -> tuple[str, ...]:
        """What the label is compared with."""


class TaintLike(Protocol):
    """What a node or a device repels pods with."""

    @property
    def key(self) -> str:
        """The name of the taint."""

    @property
    def value(self) -> str:
        """Its value."""

    @property
    def effect(self) -> str:
        """NoSchedule, PreferNoSchedule or NoExecute."""


class TolerationLike(TaintLike, Protocol):
    """What a pod puts up with. Empty ``key`` and ``effect`` stand for any."""

    @property
    def operator(self) -> str:
        """Equal (or nothing), Exists, Gt or Lt."""


def holds(requirement: RequirementLike, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` satisfy ``requirement``. NotIn and DoesNotExist hold for a label that is absent."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return compares(value, requirement.operator, requirement.values)


def compares(value: str | None, operator: str, values: Sequence[str]) -> bool:
    """Return whether ``value`` is greater (Gt) or less (Lt) than the only one of ``values``, both being integers."""
    if operator not in {"Gt", "Lt"} or value is None or len(values) != 1:
        return False
    have, bound = signed(value), signed(values[0])
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def tolerates(toleration: TolerationLike, taint: TaintLike) -> bool:
    """Return whether ``toleration`` covers ``taint``. An operator that is unknown covers nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return compares(taint.value, toleration.operator, (toleration.value,))
