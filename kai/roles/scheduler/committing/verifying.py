"""Verifies a statement before it is carried out: does the newest store still agree with the snapshot behind it?

A statement is carried out whole or not at all. A rejected statement is decided anew in the next cycle.

`LatestBudgets` holds the disruption budgets of the store; `kai.intake.disruption_budgets` applies them to pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kai.api.kinds import key_of
from kai.api.kubernetes.meta import PodDisruptionBudget
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.framework.decisions import Bind, Decision, Evict
from kai.intake.bind_requests import has_failed
from kai.intake.disruption_budgets import Budgets
from kai.intake.nodes import is_wanted
from kai.roles.scheduler.effects import Reader
from kai.roles.scheduler.settings import EvictBy, SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.facts.state.snapshot import Snapshot
    from kai.roles.scheduler.effects import Reader


@attrs.define
class LatestBudgets:
    """The disruption budgets of a store, indexed again only when one changes, not for each evicted pod."""

    _listing: tuple[PodDisruptionBudget, ...] = ()
    _sorted: Budgets = attrs.field(factory=lambda: Budgets(()))

    def of(self, reader: Reader) -> Budgets:
        """Return all budgets in ``reader``."""
        listing = reader.all(PodDisruptionBudget)
        if listing is not self._listing:
            self._listing, self._sorted = listing, Budgets(listing)
        return self._sorted


def verify(
    reader: Reader,
    settings: SchedulerSettings,
    snapshot: Snapshot,
    decisions: Iterable[Decision],
    budgets: LatestBudgets,
) -> tuple[Pod, ...] | str:
    """Return the present pods of a statement, or a text that says why it must not be carried out.

    Holds: decisions name rows; a row matches only an object with its name and its UID.
    """
    pods: list[Pod] = []
    victims: list[Pod] = []
    for decision in decisions:
        pod = pod_of(reader, snapshot, decision.pod)
        if pod is None:
            return f"pod {snapshot.pods[decision.pod].key}: is gone"
        match decision:
            case Bind():
                found = _against_bind(reader, settings, pod, snapshot.nodes[decision.node].name)
            case Evict():
                found = _against_eviction(reader, settings, pod)
                if pod.metadata.deletion_timestamp is None:
                    victims.append(pod)
            case _:
                found = _against_promise(pod)
        if found:
            return f"pod {snapshot.pods[decision.pod].key}: {found}"
        pods.append(pod)
    if victims and settings.evict_by is not EvictBy.DELETE:
        return budgets.of(reader).obstacle(victims)[0] or tuple(pods)
    return tuple(pods)


def pod_of(reader: Reader, snapshot: Snapshot, row: int) -> Pod | None:
    """Return the present pod of a row; None if it is gone, or a new pod has its name."""
    facts = snapshot.pods[row]
    pod = reader.get(Pod, facts.name, facts.namespace)
    return pod if pod is not None and pod.metadata.uid == facts.uid else None


def _against_bind(reader: Reader, settings: SchedulerSettings, pod: Pod, node_name: str) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if pod.spec.node_name:
        return f"is bound to node {pod.spec.node_name} already"
    if pod.status.phase not in {"", "Pending"}:
        return f"is {pod.status.phase}"
    if pod.spec.scheduling_gates:
        return "has scheduling gates"
    node = reader.get(Node, node_name)
    if node is None or node.metadata.deletion_timestamp is not None:
        return f"node {node_name} is gone"
    if node.spec.unschedulable:
        return f"node {node_name} is cordoned"
    if not is_wanted(node, settings.intake):
        return f"node {node_name} belongs to another scheduler now"
    return _existing_order(reader, pod)


def _existing_order(reader: Reader, pod: Pod) -> str:
    request = reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace)
    if request is None or has_failed(request):
        return ""
    owners = {owner.uid for owner in request.metadata.owner_references}
    if owners and pod.metadata.uid not in owners:
        return ""  # it belongs to a deleted pod of the same name: garbage collection or `BindOperation` removes it
    if reader.get(Node, request.spec.selected_node) is None:
        return ""
    return f"is being bound to node {request.spec.selected_node} already"


def _against_eviction(reader: Reader, settings: SchedulerSettings, pod: Pod) -> str:
    # An eviction cannot be taken back. A bind needs no such check, because the binder checks it again.
    if reader.age() > settings.stale_store_seconds:
        return "may not be evicted on old knowledge: a watch is silent"
    if pod.status.phase in ENDED:
        return "has ended by itself"
    if reader.is_assumed(BindRequest, key_of(pod)):
        return "may not be evicted while its bind is being written"
    return ""


def is_being_bound(reader: Reader, pod: Pod) -> bool:
    """Return whether the bind of a pod is ordered, and the binder has neither done nor failed it."""
    request = reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace)
    if pod.spec.node_name or request is None or has_failed(request):
        return False
    return is_for(request, pod.metadata.uid)


def _against_promise(pod: Pod) -> str:
    return "has ended by itself" if pod.status.phase in ENDED else ""
