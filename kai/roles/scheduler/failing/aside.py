"""Accounts for users that the report of a cycle lacks: of objects set aside, and of early successors of moved pods.

`with_aside` adds accounts of objects that are left out because cycles failed at them.

`with_early` adds accounts of pods that replace moved ones while the rest of their gang is missing. A cycle does not see
these pods: stand-ins take their places, so their group seems to run, and no message would say why they have no node
(`kai.roles.scheduler.feedback.moved_pods`). They get an event but no condition: a condition that says that a pod is
unschedulable makes cluster autoscalers add a node, and these pods have their places.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.kinds import key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.pod_group import PodGroup, UnschedulableReason, least_members
from kai.deciding.explain.code_texts import not_ready
from kai.deciding.explain.phrases import listed
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.intake.aside import Suspect, suspect_of_pod
from kai.roles.scheduler.failing.suspects import Blame, Record
from kai.roles.scheduler.feedback.moved_pods import group_of, is_stand_in
from kai.roles.scheduler.publishing.explanations import NOT_READY, GroupAccount, Overall, PodAccount, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kai.api.cluster_objects import ClusterObjects

SET_ASIDE: Final = "SetAside"
_FEW: Final = 20
"""How many groups may fail alike before the common error is reported."""


@attrs.frozen(kw_only=True)
class Common:
    """One error that set aside more than half of the waiting groups."""

    blame: Blame
    """The error as one of the groups met it."""
    where: str
    groups: int
    waiting: int


def common_error(overall: Overall, records: Mapping[Suspect, Record]) -> Common | None:
    """Return the error that set aside most waiting groups; None if there is none, or if only a few groups failed.

    Errors are equal if their types and places are, because their messages may name the group.
    Cost: O(objects set aside); if these are many, O(accounts) as well.
    """
    blames = [record.blame for suspect, record in records.items() if suspect.kind == "PodGroup"]
    if len(blames) <= _FEW:
        return None
    ((place, count),) = Counter((each.kind, _where(each)) for each in blames).most_common(1)
    waiting = sum(each.condition is not None and not each.waits_for_turn for each in overall.groups)
    if count <= _FEW or 2 * count <= waiting:
        return None
    blame = next(each for each in blames if (each.kind, _where(each)) == place)
    return Common(blame=blame, where=place[1], groups=count, waiting=waiting)


def _where(blame: Blame) -> str:
    return blame.message.rpartition(" (at ")[2].rstrip(")")


def with_aside(
    overall: Overall, objects: ClusterObjects, records: Mapping[Suspect, Record], left_out: frozenset[Suspect]
) -> Overall:
    """Return the accounts, with those of objects that are set aside.

    Objects on trial get no account, and their conditions stay.
    Cost: nothing if nothing is left out; else O(pods + groups).
    """
    if not left_out:
        return overall
    groups = {key_of(each): each for each in objects.pod_groups}
    mine = {(each.namespace, each.name) for each in left_out if each.kind == "PodGroup"}
    accounts = {(each.namespace, each.name): each for each in overall.groups if (each.namespace, each.name) not in mine}
    waiting = _waiting(objects.pods, groups, records)
    tally = Counter(overall.waiting)
    if count := sum(map(len, waiting.values())):
        tally[SET_ASIDE] += count
    for suspect, record in records.items():
        text = message(suspect, record)
        pods = tuple(_pod(pod, text) for pod in waiting.get(suspect, ()))
        if suspect.kind == "PodGroup" and (suspect.namespace, suspect.name) in groups:
            metadata = groups[suspect.namespace, suspect.name].metadata
            reasons = (UnschedulableReason(reason=SET_ASIDE, message=text),)
            accounts[suspect.namespace, suspect.name] = GroupAccount(
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                stamps={},
                unschedulable=text,
                condition=Waiting(message=text, reasons=reasons),
                pods=pods,
            )
    settled = overall.settled - mine
    return attrs.evolve(overall, groups=tuple(accounts.values()), settled=settled, waiting=dict(tally))


def message(suspect: Suspect, record: Record) -> str:
    """Return why an object is set aside, and what ends that."""
    return (
        f"{SET_ASIDE}: scheduling failed at this {suspect.kind} ({record.blame.kind}: {record.blame.message}), so it is"
        " left out and the others go on. Change or delete it; it is tried again when it or one of its pods changes, and"
        " every few minutes. The log of the scheduler names the place"
    )


def _waiting(
    pods: Iterable[Pod], groups: Mapping[tuple[str, str], PodGroup], records: Mapping[Suspect, Record]
) -> dict[Suspect, list[Pod]]:
    found: dict[Suspect, list[Pod]] = {}
    for pod in pods:
        suspect = suspect_of_pod(pod, groups)
        if suspect in records and not pod.spec.node_name:
            found.setdefault(suspect, []).append(pod)
    return found


def _pod(pod: Pod, text: str) -> PodAccount:
    metadata = pod.metadata
    return PodAccount(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid, message=text)


def with_early(overall: Overall, objects: ClusterObjects, early: Iterable[Pod]) -> Overall:
    """Return the accounts, with those of the groups of ``early``, which ``objects`` lacks.

    Cost: nothing if there are none; else O(pods + groups).
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
    settled = overall.settled - mine.keys()
    return attrs.evolve(overall, groups=tuple(accounts.values()), settled=settled, waiting=dict(waiting))


def _account(known: GroupAccount | None, group: PodGroup, early: list[Pod], members: list[Pod]) -> GroupAccount:
    """Return the account of a group: that it lacks pods, and that the places of its moved pods are kept."""
    metadata = group.metadata
    stand_ins = [pod for pod in members if is_stand_in(pod.metadata.name)]
    there = len(members) - len(stand_ins) + len(early)
    missing = ((DEFAULT_SUBGROUP, least_members(group.spec), there, 0),)
    nodes = sorted({pod.spec.node_name for pod in stand_ins})
    kept = f" Pods of it were moved; their places on {listed(nodes)} are kept for two minutes at most." if nodes else ""
    text = f"{not_ready({'missing': missing})}.{kept}"
    unready = tuple(
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
    return attrs.evolve(base, not_ready=text, pods=(*base.pods, *unready))
