"""Pod groups: priority, times, and the tree of sub-groups."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from kai.api import names, values
from kai.api.conventions.caps import REFUSED
from kai.api.conventions.runtime_limits import bound, has_end, limits_runs, queue_chain
from kai.api.kubernetes.meta import ObjectMeta, PriorityClass
from kai.api.scheduling import pod_group as api
from kai.api.scheduling.queue import Queue, QueueSpec
from kai.api.values import BadValue
from kai.basics import parsing
from kai.facts.model.axis import NONE
from kai.facts.model.constraints import TopologyConstraint
from kai.facts.model.groups import DEFAULT_SUBGROUP, PodGroup, RunBound, SubGroup
from kai.framework.verdict import Code
from kai.intake.membership import Accounts, GroupKey, GroupKeys, Leaves, Packing
from kai.intake.queues import Permissions, Refusal
from kai.intake.settings import IntakeSettings

ROOT = ""
_NO_BACKOFF = -1
RunTimes: TypeAlias = Mapping[str, tuple[Queue, ...]]
"""Queues with a limit of run times, each with its ancestors, by the name of the queue."""
_NO_RUN_TIMES: Final[RunTimes] = MappingProxyType({})


@attrs.frozen
class GroupSurroundings:
    """The objects to which pod groups refer by name; with equal surroundings an object makes equal groups."""

    queue_rows: Mapping[str, int]
    priorities: Mapping[str, int]
    default_priority: int
    permissions: Permissions = attrs.field(factory=Permissions)
    runtimes: RunTimes = _NO_RUN_TIMES


def run_times(queues: Iterable[Queue]) -> RunTimes:
    """Return the run times of queues that have a limit or a default, or are below one, with those of its ancestors.

    Only what limits is compared, as statuses of queues change all the time. Cost: a look at each queue.
    """
    found = {each.metadata.name: each for each in queues}
    if all(each.spec.max_runtime is None and each.spec.default_runtime is None for each in found.values()):
        return _NO_RUN_TIMES
    limits = {name: _only_limits(each) for name, each in found.items()}
    chains = {name: queue_chain(name, limits.get) for name in limits}
    return {name: chain for name, chain in chains.items() if any(map(limits_runs, chain))}


def _only_limits(queue: Queue) -> Queue:
    spec = queue.spec
    return Queue(
        metadata=ObjectMeta(name=queue.metadata.name),
        spec=QueueSpec(
            parent_queue=spec.parent_queue, max_runtime=spec.max_runtime, default_runtime=spec.default_runtime
        ),
    )


def priorities(sources: Iterable[PriorityClass]) -> tuple[dict[str, int], int]:
    """Return priorities by class name, and the priority of groups without a class.

    Of several global defaults the first by name counts.
    """
    ordered = sorted(sources, key=lambda source: source.metadata.name)
    default = next((source.value for source in ordered if source.global_default), names.DEFAULT_POD_GROUP_PRIORITY)
    return {source.metadata.name: source.value for source in ordered}, default


def is_wanted(source: api.PodGroup, settings: IntakeSettings) -> bool:
    """Return whether the group is part of the snapshot: in this node pool, and not given up by it last.

    Source: the peer's backoff by scheduling condition.
    """
    labels = source.metadata.labels
    if not settings.owns(labels):
        return False
    backoff = source.spec.scheduling_backoff
    if backoff is None or backoff == _NO_BACKOFF or not source.status.scheduling_conditions:
        return True
    # Conditions are in no order: the highest number is that of the last transition.
    newest = max(source.status.scheduling_conditions, key=lambda each: parsing.signed(each.transition_id) or 0)
    return newest.node_pool != (settings.pool(labels) or names.DEFAULT_NODE_POOL)


PACKING: Final = Packing(5)
"""Packs the columns of ``kai.intake.table.GroupColumns``, in that order."""


@attrs.frozen(kw_only=True, eq=False, weakref_slot=False)
class GroupRecord:
    """The record of one pod group object."""

    source: api.PodGroup
    order: tuple[str, str]
    """Name and namespace: the sort key of rows."""
    group: PodGroup | None
    """None for a group that is not part of the snapshot."""
    row: bytes
    """The numbers of its columns, packed by ``PACKING``."""


class GroupReader:
    """Reads pod groups in given surroundings; equal trees become one object."""

    def __init__(
        self,
        settings: IntakeSettings,
        around: GroupSurroundings,
        group_keys: GroupKeys,
        accounts: Accounts,
        leaves: Leaves,
    ) -> None:
        self.around = around
        self._settings = settings
        self._group_keys = group_keys
        self._accounts = accounts
        self._leaves = leaves
        self._trees: dict[_TreeKey, _Tree] = {}

    def read(self, source: api.PodGroup) -> GroupRecord:
        """Return the record of a group."""
        order = (source.metadata.name, source.metadata.namespace)
        if not is_wanted(source, self._settings):
            return GroupRecord(source=source, order=order, group=None, row=self._row(source, order, NONE))
        key = _tree_key(source.spec)
        # One object for equal trees: columns tell trees apart by identity (`kai.facts.state.kept.Trees`).
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = _tree(source.spec)
        group = self._group(source, tree)
        row = self._row(source, order, self._leaves.tree(tree.leaves), held=bool(group.held))
        return GroupRecord(source=source, order=order, group=group, row=row)

    def read_missing(self, source: api.PodGroup, order: tuple[str, str], held: str) -> GroupRecord:
        """Return the record of a deleted group that pods are still charged to; ``held`` is the reason to hold it."""
        group, key = self.read(source).group, (source.metadata.name, source.metadata.namespace)
        if group is None:
            return GroupRecord(source=source, order=order, group=None, row=self._row(source, key, NONE, stands_in=True))
        row = self._row(source, key, self._leaves.tree(_ONE_LEAF), held=True, stands_in=True)
        group = attrs.evolve(group, held=held, held_code=Code.HELD)
        return GroupRecord(source=source, order=order, group=group, row=row)

    def read_as(self, source: api.PodGroup, queue: str, pool: str) -> GroupRecord:
        """Return the record of a group as if it named another queue and node pool."""
        label, labels = self._settings.node_pool_label, dict(source.metadata.labels)
        labels.pop(label, None)
        if pool:
            labels[label] = pool
        metadata, spec = attrs.evolve(source.metadata, labels=labels), attrs.evolve(source.spec, queue=queue)
        return self.read(attrs.evolve(source, metadata=metadata, spec=spec))

    def _row(
        self, source: api.PodGroup, key: GroupKey, leaves: int, *, held: bool = False, stands_in: bool = False
    ) -> bytes:
        """Return the packed numbers of a group; a group without ``leaves`` is outside the snapshot.

        Where the sort key of a record is its group key, both are one tuple.
        """
        account = self._accounts.of(source.spec.queue, self._settings.pool(source.metadata.labels))
        return PACKING.pack(self._group_keys.of(key), account, leaves, held, stands_in)

    def _group(self, source: api.PodGroup, tree: "_Tree") -> PodGroup:
        metadata, spec, around = source.metadata, source.spec, self.around
        annotations = metadata.annotations
        priority = around.priorities.get(spec.priority_class_name, around.default_priority)
        preemptible = _is_preemptible(spec.preemptibility, priority)
        code, held = _held(tree, source) or around.permissions.refusal(source, preemptible=preemptible)
        return PodGroup(
            name=metadata.name,
            namespace=metadata.namespace,
            # A group that only this process has is not written yet, and has no UID.
            uid=metadata.uid or metadata.name,
            queue=spec.queue,
            queue_row=around.queue_rows.get(spec.queue, -1),
            priority=priority,
            preemptible=preemptible,
            created=metadata.creation_timestamp or 0.0,
            subgroups=tree.subgroups,
            last_start=_instant(annotations.get(names.LAST_START)),
            last_eviction=_instant(annotations.get(names.LAST_EVICTION)),
            stale_since=_instant(annotations.get(names.STALE_SINCE)),
            partial_since=_instant(annotations.get(names.PARTIAL_SINCE)),
            staleness_grace=spec.staleness_grace_period,
            preemption_delay=spec.preemption_delay,
            node_pool=self._settings.pool(metadata.labels),
            mark_unschedulable=spec.mark_unschedulable is not False,
            scheduling_backoff=spec.scheduling_backoff,
            labels=metadata.labels,
            annotations=annotations,
            tree_error=tree.error,
            held=held,
            held_code=code,
            bound=self._bound(source),
            user=annotations.get(names.NOTED_USER, ""),
        )

    def _bound(self, source: api.PodGroup) -> RunBound | None:
        """Return what limits the run of a group. A group in a queue that is not read waits, so no limit concerns it."""
        queues = self.around.runtimes.get(source.spec.queue, ())
        status = source.status
        limited = has_end(source, queues) or names.EXPECTED_RUNTIME in source.metadata.annotations
        if not limited and status.running_since is None:
            return None
        found = bound(source, queues)
        consumed = status.consumed_runtime or 0.0
        end, wish = found.end(0.0, consumed), found.wish
        if end is None and wish is None and status.running_since is None:
            return None
        return RunBound(
            left=inf if end is None else end.at,
            since=status.running_since,
            yields=wish,
        )


def _held(tree: "_Tree", source: api.PodGroup) -> Refusal | None:
    held = tree.held or source.metadata.annotations.get(REFUSED, "")
    if held:
        return Code.HELD, held
    # A group that used up its time stays held, since its owner may make its pods anew.
    for each in source.status.conditions:
        if each.type == names.TIME_LIMIT and each.status == "True":
            return Code.TIME_LIMIT, each.message or "the group has run for as long as it may"
    return None


def _is_preemptible(stated: str, priority: int) -> bool:
    if stated:
        return stated == names.PREEMPTIBLE
    return priority < names.NON_PREEMPTIBLE_PRIORITY


def _instant(text: str | None) -> float | None:
    """Return the time in an annotation; an unreadable one counts as absent, as in the peer."""
    if not text:
        return None
    try:
        return values.instant(text)
    except BadValue:
        return None


_TreeKey: TypeAlias = tuple[int | None, int | None, api.TopologyConstraint | None, tuple[api.SubGroup, ...]]


@attrs.frozen
class _Tree:
    subgroups: tuple[SubGroup, ...]
    error: str = ""
    held: str = ""
    leaves: Mapping[str, int] = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        positions = {each.name: position for position, each in enumerate(self.subgroups) if each.leaf}
        object.__setattr__(self, "leaves", OneLeaf() if self.held else positions)


class OneLeaf(Mapping[str, int]):
    """The leaves of a group whose tree is too large to evaluate: its only leaf, under every name.

    Pods that have a place stay accounted for, and can be reclaimed, whatever sub-group they name.
    """

    def __getitem__(self, name: str) -> int:
        """Return the position of the leaf below the root."""
        return 1

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        yield DEFAULT_SUBGROUP


_ONE_LEAF: Final = OneLeaf()


def _tree_key(spec: api.PodGroupSpec) -> _TreeKey:
    """Return the key of a tree; a constraint without a topology has no effect and compares faster as None."""
    constraint = spec.topology_constraint
    return (spec.min_member, spec.min_sub_group, constraint if constraint.topology else None, spec.sub_groups)


def _tree(spec: api.PodGroupSpec) -> _Tree:
    """Return the sub-groups, root first and parents before children, siblings by name.

    A tree that is larger or deeper than the api allows is not evaluated: no pod of the group is tried.

    Source: the peer logs an unusable tree and continues with a flat group of minimum 1, without the root's constraint.
    """
    if not spec.sub_groups:
        least = spec.minimum
        return _Tree(_flat(spec.min_sub_group, _constraint(spec.topology_constraint), least))
    root = SubGroup(name=ROOT, parent=-1, leaf=False, minimum=None)
    one = (root, _leaf(DEFAULT_SUBGROUP, 0, 1, None))
    # Size before form: the checks that follow look at each sub-group.
    if len(spec.sub_groups) > api.MOST_SUB_GROUPS:
        held = f"spec.subGroups: found {len(spec.sub_groups)} sub-groups, expected at most {api.MOST_SUB_GROUPS}"
        return _Tree(one, held=held)
    error = _tree_error(spec.sub_groups)
    if error:
        return _Tree(one, error)
    depth = _depth(spec.sub_groups)
    if depth > api.DEEPEST_SUB_GROUP:
        held = f"spec.subGroups: found sub-groups nested {depth} deep, expected at most {api.DEEPEST_SUB_GROUP}"
        return _Tree(one, held=held)
    children: dict[str, list[api.SubGroup]] = {}
    # By name, so that lists in another order make the same tree.
    for source in sorted(spec.sub_groups, key=lambda each: each.name):
        children.setdefault(_parent(source), []).append(source)
    top = _constraint(spec.topology_constraint)
    out = [SubGroup(name=ROOT, parent=-1, leaf=False, minimum=spec.min_sub_group, constraint=top)]
    waiting = [(source, 0) for source in children[ROOT]]
    for source, parent in waiting:  # the list grows during the walk: breadth first
        name, constraint = source.name, _constraint(source.topology_constraint)
        below = children.get(name)
        if below is None:
            out.append(_leaf(name, parent, source.min_member or 0, constraint))
            continue
        waiting += [(child, len(out)) for child in below]
        least_children = source.min_sub_group
        out.append(SubGroup(name=name, parent=parent, leaf=False, minimum=least_children, constraint=constraint))
    return _Tree(tuple(out))


@lru_cache(maxsize=4096)
def _flat(children: int | None, constraint: TopologyConstraint | None, least: int) -> tuple[SubGroup, ...]:
    """Return the tree of a group without sub-groups; equal trees are one object, which saves their readers work."""
    root = SubGroup(name=ROOT, parent=-1, leaf=False, minimum=children, constraint=constraint)
    return root, _leaf(DEFAULT_SUBGROUP, 0, least, None)


def _leaf(name: str, parent: int, minimum: int, constraint: TopologyConstraint | None) -> SubGroup:
    return SubGroup(name=name, parent=parent, leaf=True, minimum=minimum, constraint=constraint)


def _parent(source: api.SubGroup) -> str:
    return (source.parent or ROOT).lower()


def fault_of_tree(spec: api.PodGroupSpec) -> str:
    """Return why the declared sub-groups of a group are not scheduled as they are; "" if they are."""
    tree = _tree(spec)
    return tree.error or tree.held or _too_many_asked(spec)


def _too_many_asked(spec: api.PodGroupSpec) -> str:
    """Return where more sub-groups must start together than are declared; "" if nowhere."""
    children = Counter(_parent(each) for each in spec.sub_groups)
    asked = [(ROOT, "spec.minSubGroup", spec.min_sub_group)]
    asked += [
        (each.name, f"spec.subGroups[{at}].minSubGroup", each.min_sub_group)
        for at, each in enumerate(spec.sub_groups)
        if each.name in children  # the minimum of a leaf counts pods
    ]
    for name, field, least in asked:
        if least is not None and least > children[name]:
            return f"{field}: found {least}, expected at most {children[name]}, the number of its sub-groups"
    return ""


def _tree_error(sources: Sequence[api.SubGroup]) -> str:
    """Return the fault in the declared sub-groups; "" if there is none."""
    parents: dict[str, str] = {}
    for source in sources:
        if source.name in parents:
            return f'spec.subGroups: found "{source.name}" twice, expected distinct names'
        parents[source.name] = _parent(source)
    for name, parent in parents.items():
        if parent and parent not in parents:
            return f'spec.subGroups: found parent "{parent}" of "{name}", expected the name of a sub-group'
    # Names that lead to the root are kept, so that all paths together cost one look at each name.
    sound = {ROOT}
    for name in parents:
        path: dict[str, None] = {}
        at = name
        while at not in sound:
            if at in path:
                return f'spec.subGroups: found "{at}" among its own parents, expected a tree'
            path[at] = None
            at = parents[at]
        sound.update(path)
    return ""


def _depth(sources: Sequence[api.SubGroup]) -> int:
    """Return the depth to which sub-groups, which form a tree, are nested. Cost: a look at each."""
    children: dict[str, list[str]] = {}
    for source in sources:
        children.setdefault(_parent(source), []).append(source.name)
    depth, level = 0, children.get(ROOT, [])
    while level:
        depth += 1
        level = [child for name in level for child in children.get(name, ())]
    return depth


def _constraint(source: api.TopologyConstraint | None) -> TopologyConstraint | None:
    """Return a constraint as declared; None for one without a topology, which constrains nothing."""
    if source is None or not source.topology:
        return None
    return TopologyConstraint(source.topology, source.required_topology_level, source.preferred_topology_level)
