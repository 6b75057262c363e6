"""What users read about objects that were set aside, beside what the cycle says of all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, UnschedulableReason
from kai.intake.aside import Suspect, suspect_of_pod
from kai.scheduler.explanations import GroupAccount, Overall, PodAccount, Waiting
from kai.scheduler.suspects import Blame, Record

SET_ASIDE: Final = "SetAside"
_FEW: Final = 20
"""So many groups may fail alike without a word on what they have in common."""


@attrs.frozen(kw_only=True)
class Common:
    """One error that more than half of the groups that wait are set aside for."""

    blame: Blame
    """Of one of them."""
    where: str
    groups: int
    waiting: int


def common_error(overall: Overall, records: Mapping[Suspect, Record]) -> Common | None:
    """Return what most groups that wait are set aside for; None if that is not so, or if they are few.

    Errors are the same if their kinds and places are: what they say may name the group.
    Cost: a look at what is set aside; if that is much, at each account as well.
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
    """Return the accounts with those of what is set aside.

    What is only on trial has no account, and what its condition says is not over.
    Cost: nothing if nothing is left out; else a look at each pod and each group.
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
    told = tuple(accounts.values())
    return attrs.evolve(overall, groups=told, settled=overall.settled - mine, waiting=dict(tally))


def message(suspect: Suspect, record: Record) -> str:
    """Return why something is set aside, and what ends that."""
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
