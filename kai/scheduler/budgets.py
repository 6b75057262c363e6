"""Disruption budgets: which of them cover a pod, and whether they let a set of victims go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kai.api.core import PodDisruptionBudget
from kai.api.kinds import title
from kai.api.meta import LabelSelector
from kai.api.pod import Pod
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
    known = tuple(budgets)
    wanted: Counter[tuple[str, str]] = Counter()
    for pod in victims:
        if pod.status.phase != "Pending":
            wanted.update((each.metadata.namespace, each.metadata.name) for each in covering(pod, known))
    for budget in known:
        count = wanted[budget.metadata.namespace, budget.metadata.name]
        if count > max(0, budget.status.disruptions_allowed):
            return f"{title(budget)} allows {budget.status.disruptions_allowed} disruptions, {count} are needed"
    return ""


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Say whether a selector selects an object with these labels."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(each, labels) for each in selector.match_expressions)
