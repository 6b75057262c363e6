"""Disruption budgets: which of them cover a pod, and whether they allow the eviction of a set of victims.

The API server decides on each eviction. The result computed here saves a request that it would refuse, and the wait for
the reply; without an API server, it stands in for the reply. Any user may write budgets. Where the budgets of a
namespace are larger than any real need, none is evaluated, and the API server decides about its pods.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.kinds import key_of, title
from kai.api.kubernetes.meta import LabelSelector, PodDisruptionBudget, PodDisruptionBudgetStatus
from kai.api.kubernetes.pod import Pod, condition_of
from kai.facts.model.constraints import holds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST: Final = 4096
"""The most selectors, labels, expressions and values of a namespace's budgets that are evaluated for each pod."""
_SCALED: Final = frozenset(("ReplicationController", "ReplicaSet", "Deployment", "StatefulSet"))
"""Kinds of owners with a replica count; the disruption controller cannot count the pods of other owners."""
_FINISHED: Final = frozenset(("Succeeded", "Failed"))

BudgetKey = tuple[str, str]
"""Namespace and name."""


class Budgets:
    """Budgets by namespace, to be matched with pods.

    Cost: O(budgets) once; for each pod a look at those of its namespace.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        """Index the budgets by namespace."""
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        self._sizes: Counter[str] = Counter()
        for each in budgets:
            self._by_namespace.setdefault(each.metadata.namespace, []).append(each)
            self._sizes[each.metadata.namespace] += _size(each.spec.selector)

    def covering(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that cover a pod; none where there are too many to evaluate."""
        if self._are_too_many(pod):
            return ()
        labels = pod.metadata.labels
        there = self._by_namespace.get(pod.metadata.namespace, ())
        # A budget without a selector covers no pod, one with an empty selector each pod of its namespace.
        return tuple(each for each in there if each.spec.selector is not None and selects(each.spec.selector, labels))

    def may_cover(self, pod: Pod) -> bool:
        """Return whether a budget covers a pod, or may, where there are too many to evaluate."""
        return self._are_too_many(pod) or bool(self.covering(pod))

    def _are_too_many(self, pod: Pod) -> bool:
        return self._sizes[pod.metadata.namespace] > MOST

    def wanted(self, victims: Iterable[Pod]) -> Mapping[BudgetKey, tuple[PodDisruptionBudget, list[Pod]]]:
        """Return the budgets that evicting all victims would draw on, each with the victims that it counts.

        Source: the API server evicts pods that do not run whatever the budgets are, and pods that are not ready if the
            budget allows it always, or if at least the desired number of pods is healthy.
        """
        found: dict[BudgetKey, tuple[PodDisruptionBudget, list[Pod]]] = {}
        for pod in victims:
            for each in self.covering(pod) if _is_running(pod) else ():
                if is_ready(pod) or not _lets_unhealthy_go(each):
                    found.setdefault(key_of(each), (each, []))[1].append(pod)
        return found

    def obstacle(
        self, victims: Sequence[Pod], taken: Mapping[BudgetKey, int] | None = None
    ) -> tuple[str, tuple[Pod, ...]]:
        """Return why not all victims may go, in words, and the victims that the budgets protect; "" if all may go.

        ``taken``: disruptions that are used up already.

        Source: the API server answers with an error where two budgets cover a pod.
        """
        for pod in victims:
            found = self.covering(pod) if _is_running(pod) else ()
            if len(found) > 1:
                names = " and ".join(title(each) for each in found[:2])
                return f"{title(pod)} is covered by {names}: the API server evicts no pod of two", (pod,)
        for key, (budget, pods) in sorted(self.wanted(victims).items(), key=lambda each: each[0]):
            allowed = max(0, (budget.status.disruptions_allowed or 0) - (taken or {}).get(key, 0))
            if len(pods) > allowed:
                return f"{title(budget)} allows {allowed} disruptions, {len(pods)} are needed", tuple(pods)
        return "", ()


def _is_running(pod: Pod) -> bool:
    # The eviction API looks at no budget for other pods.
    return pod.status.phase not in _FINISHED | {"Pending"} and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    """Return whether a running pod is ready; without a Ready condition it is."""
    found = condition_of(pod, "Ready")
    return pod.status.phase == "Running" if found is None else found.status == "True"


def _lets_unhealthy_go(budget: PodDisruptionBudget) -> bool:
    status = budget.status
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return 0 < status.desired_healthy <= status.current_healthy


# --------------------------------------------------------------------- the status that the disruption controller sets


def judged(
    budgets: Sequence[PodDisruptionBudget], pods: Sequence[Pod], *, anew: bool
) -> tuple[PodDisruptionBudget, ...]:
    """Return ``budgets`` with the status that the disruption controller would compute for ``pods``.

    Only budgets without a status get one; ``anew``: all. Cost: a look at each pod for each such budget.

    Source: Kubernetes' disruption controller.
    """
    if not budgets:
        return ()
    by_namespace: dict[str, list[Pod]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.metadata.namespace, []).append(pod)
    return tuple(
        attrs.evolve(each, status=_status(each, by_namespace.get(each.metadata.namespace, ())))
        if anew or each.status.disruptions_allowed is None
        else each
        for each in budgets
    )


def _status(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> PodDisruptionBudgetStatus:
    spec = budget.spec
    mine = [pod for pod in pods if spec.selector is not None and selects(spec.selector, pod.metadata.labels)]
    healthy = sum(pod.metadata.deletion_timestamp is None and is_ready(pod) for pod in mine)
    expected, desired = _expected(mine), 0
    if spec.max_unavailable is not None and expected is not None:
        desired = max(0, expected - _scaled(spec.max_unavailable, expected))
    elif isinstance(spec.min_available, int):
        # With a plain number the controller asks no owner: the pods are all that it counts.
        expected, desired = len(mine), spec.min_available
    elif spec.min_available is not None and expected is not None:
        desired = _scaled(spec.min_available, expected)
    else:
        expected = 0
    allowed = max(0, healthy - desired) if expected else 0
    return PodDisruptionBudgetStatus(disruptions_allowed=allowed, current_healthy=healthy, desired_healthy=desired)


def _expected(pods: Sequence[Pod]) -> int | None:
    """Return the number of pods that the owners of ``pods`` want; None where an owner has no replica count.

    An owner is assumed to want as many as it has here. Pods without an owner count nothing.
    """
    count = 0
    for pod in pods:
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        if owner is not None and owner.kind not in _SCALED:
            return None
        count += owner is not None and pod.status.phase not in _FINISHED
    return count


def _scaled(amount: int | str, expected: int) -> int:
    """Return a number, or a percentage of ``expected``, rounded up; 0 for any other text."""
    if isinstance(amount, int):
        return amount
    digits = amount.removesuffix("%")
    return -(-int(digits) * expected // 100) if amount.endswith("%") and digits.isdecimal() else 0


def _size(selector: LabelSelector | None) -> int:
    if selector is None:
        return 1
    return 1 + len(selector.match_labels) + sum(1 + len(each.values) for each in selector.match_expressions)


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches an object with these labels."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(each, labels) for each in selector.match_expressions)
