"""Disruption budgets: which of them cover a pod, and whether they let a set of victims go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kai.api.kinds import key_of, title
from kai.api.kubernetes.core import PodDisruptionBudget
from kai.api.kubernetes.meta import LabelSelector
from kai.api.kubernetes.pod import Pod
from kai.model.matching import holds


def covering(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> tuple[PodDisruptionBudget, ...]:
    """Return the budgets that cover a pod."""
    return tuple(
        budget
        for budget in budgets
        if budget.metadata.namespace == pod.metadata.namespace
        and budget.spec.selector is not None
        and selects(budget.spec.selector, pod.metadata.labels)
    )


def exhausted(victims: Iterable[Pod], budgets: Iterable[PodDisruptionBudget]) -> str:
    """Return in words which budget does not let all of the victims go; "" if they may.

    Source: the API server evicts pods that are not running yet whatever the budgets say.
    """
    budget, pods = _first_exhausted(victims, budgets)
    if budget is None:
        return ""
    return f"{title(budget)} allows {budget.status.disruptions_allowed} disruptions, {len(pods)} are needed"


def spared(victims: Iterable[Pod], budgets: Iterable[PodDisruptionBudget]) -> tuple[Pod, ...]:
    """Return those of the victims that the first exhausted budget covers; none if all may go."""
    return _first_exhausted(victims, budgets)[1]


def _first_exhausted(
    victims: Iterable[Pod], budgets: Iterable[PodDisruptionBudget]
) -> tuple[PodDisruptionBudget | None, tuple[Pod, ...]]:
    known = tuple(budgets)
    wanted: dict[tuple[str, str], list[Pod]] = {}
    for pod in victims:
        if pod.status.phase != "Pending":
            for each in covering(pod, known):
                wanted.setdefault(key_of(each), []).append(pod)
    for budget in known:
        pods = wanted.get(key_of(budget), [])
        if len(pods) > max(0, budget.status.disruptions_allowed):
            return budget, tuple(pods)
    return None, ()


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects an object with these labels."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(each, labels) for each in selector.match_expressions)
