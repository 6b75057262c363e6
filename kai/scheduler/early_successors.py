"""What users read about pods that came in the stead of moved ones, before all have come that start with them.

A cycle does not see them: stand-ins stand for them, so their group looks as if it ran, and nothing would say why they
have no node (`kai.scheduler.feedback.moved_pods`). No condition says it either: a condition that a pod is unschedulable
makes cluster autoscalers add a node, and these pods have their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup, least_members
from kai.explain.code_texts import not_ready
from kai.explain.phrases import listed
from kai.model.podgroup import DEFAULT_SUBGROUP
from kai.scheduler.explanations import NOT_READY, GroupAccount, Overall, PodAccount
from kai.scheduler.feedback.moved_pods import group_of, is_stand_in


def with_early(overall: Overall, objects: ClusterObjects, early: Iterable[Pod]) -> Overall:
    """Return the accounts with those of the groups of ``early``, which ``objects`` does not have.

    Cost: nothing if there are none; else a look at each pod and each group.
    """
    mine: dict[tuple[str, str], list[Pod]] = {}
    for pod in early:
        mine.setdefault(group_of(pod), []).append(pod)
    if not mine:
        return overall
    members: dict[tuple[str, str], list[Pod]] = {key: [] for key in mine}
    for pod in objects.pods:
        key = group_of(pod)
        if key in mine and pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED:
            members[key].append(pod)
    accounts = {(each.namespace, each.name): each for each in overall.groups}
    for group in objects.pod_groups:
        key = key_of(group)
        if key in mine:
            accounts[key] = _account(accounts.get(key), group, mine[key], members[key])
    waiting = Counter(overall.waiting)
    waiting[NOT_READY] += sum(map(len, mine.values()))
    told = tuple(accounts.values())
    return attrs.evolve(overall, groups=told, settled=overall.settled - mine.keys(), waiting=dict(waiting))


def _account(known: GroupAccount | None, group: PodGroup, early: list[Pod], members: list[Pod]) -> GroupAccount:
    """Return the account of a group: what a group is told that lacks pods, and that their places are kept."""
    metadata = group.metadata
    stand_ins = [pod for pod in members if is_stand_in(pod.metadata.name)]
    there = len(members) - len(stand_ins) + len(early)
    missing = ((DEFAULT_SUBGROUP, least_members(group.spec), there, 0),)
    nodes = sorted({pod.spec.node_name for pod in stand_ins})
    kept = f" Pods of it were moved; their places on {listed(nodes)} are kept for two minutes at most." if nodes else ""
    text = f"{not_ready({'missing': missing})}.{kept}"
    told = tuple(
        PodAccount(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            message=text,
            on_pod=False,
        )
        for pod in early
    )
    base = known or GroupAccount(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid, stamps={})
    return attrs.evolve(base, not_ready=text, pods=(*base.pods, *told))
