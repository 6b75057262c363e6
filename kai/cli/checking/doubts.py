"""Semantic errors in valid scenarios, reported in the terms of the scenario's own form.

The short form has ``groups.train.minimum`` where objects have ``minMember``; a message with the wrong term would send
its reader to a field that does not exist.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from kai.answers.cases.case import Case, low_limits
from kai.api import names
from kai.api.kinds import key_of
from kai.api.scheduling.pod_group import PodGroup, SubGroup
from kai.basics.parsing import mapping_of
from kai.basics.trees import is_below_itself
from kai.intake.groups import fault_of_tree
from kai.lab.scenarios.shorthand import is_short


@attrs.frozen(kw_only=True)
class _Form:
    """The names of the fields of queues and groups in one form."""

    queue: str
    group: str
    parent: str
    limit: str
    queue_of_group: str
    minimum_of_group: str
    minimum: str
    subgroup: str
    parts: str
    minimum_of_parts: str
    part_of_parts: str


_SHORT: Final = _Form(
    queue="queues.{name}",
    group="groups.{name}",
    parent=".parent",
    limit=".limit",
    queue_of_group=".queue",
    minimum_of_group=".minimum",
    minimum=".minimum",
    subgroup=".subgroups.{name}",
    parts=".subgroups",
    minimum_of_parts=".minimum",
    part_of_parts=".minimum_subgroups",
)
_OBJECTS: Final = _Form(
    queue="queue {name}",
    group="podgroup {namespace}/{name}",
    parent=": spec.parentQueue",
    limit=": spec.resources",
    queue_of_group=": spec.queue",
    minimum_of_group=": spec.minMember",
    minimum=".minMember",
    subgroup=": spec.subGroups[{at}]",
    parts=": spec.subGroups",
    minimum_of_parts=": spec.minSubGroup",
    part_of_parts=".minSubGroup",
)


def doubts(case: Case, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the queues and the groups of a scenario; ``document`` is its source."""
    # Objects may stand beside queues and groups in the short form, under cluster.objects.
    short_queues, short_groups = (_keys(document, key) if is_short(document) else () for key in ("queues", "groups"))
    yield from _of_queues(case, short_queues)
    parents = {queue.metadata.name: queue.spec.parent_queue for queue in case.objects.queues}
    pods: Counter[tuple[str, str, str]] = Counter()
    for pod in case.objects.pods:
        owner = pod.metadata.annotations.get(names.POD_GROUP, "")
        pods[pod.metadata.namespace, owner, pod.metadata.labels.get(names.SUBGROUP, "")] += 1
    for group in case.objects.pod_groups:
        form = _SHORT if group.metadata.name in short_groups else _OBJECTS
        place = form.group.format(name=group.metadata.name, namespace=group.metadata.namespace)
        of_queue = place + form.queue_of_group
        if group.spec.queue not in parents:
            yield f"{of_queue}: queue {group.spec.queue} does not exist"
        elif group.spec.queue in parents.values():
            yield f"{of_queue}: queue {group.spec.queue} has children; only a leaf queue can run jobs"
        if form is not _SHORT or group.metadata.name not in mapping_of(document, "expect"):
            yield from _of_gang(group, place, form, pods)  # with an expectation, an odd gang is deliberate


def _keys(document: Mapping[str, Any], key: str) -> Collection[str]:
    return mapping_of(document, key).keys()


def _of_queues(case: Case, short: Collection[str]) -> Iterator[str]:
    parents = {queue.metadata.name: queue.spec.parent_queue for queue in case.objects.queues}
    for name, parent in parents.items():
        form = _SHORT if name in short else _OBJECTS
        field = form.queue.format(name=name) + form.parent
        if parent and parent not in parents:
            yield f"{field}: queue {parent} does not exist"
        if is_below_itself(name, parents):
            yield f"{field}: queue {name} is its own ancestor"
    for name, text in low_limits(case.objects):
        form = _SHORT if name in short else _OBJECTS
        yield f"{form.queue.format(name=name)}{form.limit}: {text}"


def _of_gang(group: PodGroup, place: str, form: _Form, pods: Mapping[tuple[str, str, str], int]) -> Iterator[str]:
    """Yield groups, and parts of them, that require more pods or parts than they have."""
    key = key_of(group)
    parts = group.spec.sub_groups
    least = group.spec.min_member
    if not parts:
        there = pods.get((*key, ""), 0)
        if least is not None and least > there > 0:
            yield f"{place}{form.minimum_of_group}: found {least}, expected at most {there}, the number of its pods"
        return
    yield from _of_tree(group, place, form)
    if not any(pods.get((*key, part.name)) for part in parts):
        return  # none of its pods is there yet
    inner = {part.parent for part in parts}
    for at, part in enumerate(parts):
        there = pods.get((*key, part.name), 0)
        if part.name not in inner and part.min_member is not None and part.min_member > there:
            field = f"{place}{form.subgroup.format(name=part.name, at=at)}{form.minimum}"
            yield f"{field}: found {part.min_member}, expected at most {there}, the number of its pods"


def _of_tree(group: PodGroup, place: str, form: _Form) -> Iterator[str]:
    """Yield faults of the tree of parts, and parts that require more children than they have."""
    parts: tuple[SubGroup, ...] = group.spec.sub_groups
    fault = fault_of_tree(group.spec)
    if fault.startswith("spec.subGroups: ") and "found parent" not in fault:
        yield f"{place}{form.parts}: {fault.rpartition(': ')[2]}"
        return
    known = {part.name for part in parts}
    children = Counter(part.parent or "" for part in parts)
    for at, part in enumerate(parts):
        field = place + form.subgroup.format(name=part.name, at=at)
        if part.parent and part.parent not in known:
            yield f"{field}.parent: found {part.parent}, expected the name of a sub-group"
        asked = part.min_sub_group
        if asked is not None and part.name in children and asked > children[part.name]:
            there = children[part.name]
            yield f"{field}{form.part_of_parts}: found {asked}, expected at most {there}, the number of its sub-groups"
    asked = group.spec.min_sub_group
    if asked is not None and asked > children[""] > 0:
        field = place + form.minimum_of_parts
        yield f"{field}: found {asked}, expected at most {children['']}, the number of its sub-groups"
