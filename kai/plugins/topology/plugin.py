"""The domains in which a sub-group may be placed, in order of preference.

    common domain of the candidate nodes -> capacity of each domain below it
    -> domains that can hold the pods, finest level first, tightest first

The engine tries these parts one after the other, with backtracking, for every level of the tree of sub-groups, so
constraints nest.

Source: the peer's plugins/topology.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Domains,
    DomainTree,
    Extension,
    Float64s,
    GroupRow,
    Int64s,
    NodeRows,
    Partition,
    PodRows,
    SessionView,
    SubGroupRow,
    Together,
    TopologyConstraint,
    Verdict,
)
from kai.framework.kernel import GPU, PODS, domain_room
from kai.plugins.topology.tree import (
    ANY_DOMAIN,
    DOMAIN_TOO_SMALL,
    STEP,
    TOPOLOGIES,
    Branch,
    Levels,
    SmallDomain,
    TopologyTree,
    pods_per_node,
)

KINDS = 64
"""Kinds of pods that are kept count of."""


class _Asked:
    """What groups and sub-groups ask of topologies."""

    def __init__(self, session: SessionView) -> None:
        self._session = session
        self._topologies = session.values(TOPOLOGIES)

    def known(self, constraint: TopologyConstraint | None) -> tuple[Levels | None, TopologyConstraint | None]:
        """Return the topology of a constraint, None if there is none; and the constraint with node labels."""
        if constraint is None or not constraint.topology:
            return None, None
        found = self._topologies.get(constraint.topology)
        return (found, found.resolved(constraint)) if isinstance(found, Levels) else (None, constraint)

    def constraint(self, group: GroupRow, subgroup: SubGroupRow) -> TopologyConstraint | None:
        """Return the constraint of a sub-group as it is written."""
        at = int(subgroup) - int(self._session.facts.groups.first_subgroup[group])
        return self._session.snapshot.groups[group].subgroups[at].constraint


@attrs.frozen(kw_only=True)
class Topology:
    """Honour required and preferred topology levels of groups and sub-groups.

    ``stop_at_required``: do not look for room below the required level when all candidate nodes happen to share a
    narrower domain. The peer does look there and then finds the required domain empty; False decides as it does.
    """

    stop_at_required: bool = False
    reads: ClassVar = (TOPOLOGIES,)

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the partition; a tree is made when a constraint first needs it."""
        fitting, asked_of = _Fitting(), _Asked(session)

        def partition(group: GroupRow, subgroup: SubGroupRow, pods: PodRows, nodes: NodeRows) -> Partition | None:
            facts = session.snapshot.groups[group]
            at = int(subgroup) - int(session.facts.groups.first_subgroup[group])
            topology, constraint = asked_of.known(facts.subgroups[at].constraint)
            # Without pods to place now there is nothing to keep together.
            if constraint is None or not len(pods):
                return None
            if topology is None:
                return Partition(
                    verdict=Verdict.refused(DOMAIN_TOO_SMALL, topology=constraint.topology, missing="topology")
                )
            tree = TopologyTree.of(session, topology)
            search = _DomainSearch(session, tree, constraint, pods, nodes, fitting, stop=self.stop_at_required)
            partition = search.run()
            if partition.verdict:
                return partition
            reason = partition.verdict.reasons[0]
            details = {
                "group": facts.key,
                "subgroup": facts.subgroups[at].name,
                "topology": constraint.topology,
                "required": any(part.constraint is not None and part.constraint.required for part in facts.subgroups),
            }
            return attrs.evolve(partition, verdict=Verdict.refused(reason.code, **{**details, **reason.facts}))

        def tree(group: GroupRow) -> DomainTree | None:
            constraints = [each.constraint for each in session.snapshot.groups[group].subgroups if each.constraint]
            # Several constraints nest, which a kernel that tries one domain cannot follow.
            topology, constraint = asked_of.known(constraints[0]) if len(constraints) == 1 else (None, None)
            if topology is None or constraint is None:
                return None
            spanned, required, preferred = TopologyTree.of(session, topology), constraint.required, constraint.preferred
            return spanned.domain_tree(
                spanned.depth_of(required) if required else 0,
                spanned.depth_of(preferred) if preferred else 0,
                stop=self.stop_at_required,
            )

        def together(group: GroupRow, subgroup: SubGroupRow) -> Together | None:
            _, asked = asked_of.known(asked_of.constraint(group, subgroup))
            if asked is None:
                return None
            signature = f"{asked.topology}:{asked.required}:{asked.preferred}"
            return Together(signature=signature, tree=asked.topology, level=asked.required)

        def rules_out(group: GroupRow, subgroup: SubGroupRow, pods: PodRows, nodes: NodeRows) -> bool:
            topology, constraint = asked_of.known(asked_of.constraint(group, subgroup))
            if constraint is None or not len(pods):
                return False
            if topology is None:
                return True
            tree = TopologyTree.of(session, topology)
            search = _DomainSearch(session, tree, constraint, pods, nodes, fitting, stop=self.stop_at_required)
            return search.finds_none()

        groups = session.constrained_groups
        return (Domains(partition, groups=groups, tree=tree, together=together, rules_out=rules_out),)


MOST_NAMED = 100
"""Domains that a refusal lists at most."""


@attrs.define
class _Fitting:
    """How many pods of a kind fit on each node, kept from gang to gang; only nodes that changed are counted again."""

    _known: dict[tuple[bytes, int], tuple[Int64s, int]] = attrs.field(factory=dict)

    def on_nodes(self, session: SessionView, request: Int64s, most: int) -> Int64s:
        """Return int64[N]: pods of ``request`` [R] that each node could hold; ``most`` if they ask for nothing."""
        columns, kind = session.columns, (request.tobytes(), most)
        now, ring = int(columns.touches[0]), len(columns.touched)
        counts, seen = self._known.get(kind, (np.zeros(len(session.nodes), np.int64), -1))
        changed = session.nodes.copy()  # a kernel takes no array that cannot be written
        # The engine notes touched nodes in a ring: once it went all the way round, the first ones are overwritten. From
        # as many entries as nodes on, counting all costs no more.
        if seen >= 0 and now - seen < min(ring, len(changed)):
            changed = columns.touched[np.arange(seen, now) % ring]
        out = np.empty(len(changed), np.int64)
        pods_per_node(session.facts, columns, request, most, changed, out)
        counts[changed] = out
        # Kinds come from users' requests, so their number has no bound of its own.
        if len(self._known) >= KINDS:
            self._known.clear()
        self._known[kind] = counts, now
        return counts


class _DomainSearch:
    """The domains for one sub-group at one moment."""

    def __init__(
        self,
        session: SessionView,
        tree: TopologyTree,
        constraint: TopologyConstraint,
        pods: PodRows,
        nodes: NodeRows,
        fitting: _Fitting,
        *,
        stop: bool,
    ) -> None:
        self._session = session
        self._tree = tree
        self._constraint = constraint
        self._pods = pods
        self._valid = nodes[tree.member[nodes]]
        self._required = tree.depth_of(constraint.required) if constraint.required else 0
        self._preferred = tree.depth_of(constraint.preferred) if constraint.preferred else 0
        self._fitting = fitting
        # Source: the peer looks down to the preferred level, and without one as far as all nodes agree.
        deepest = self._preferred or (self._required if stop else 0)
        self._top = tree.common_depth(self._valid, deepest if deepest > 0 else -1)
        self._requests = session.facts.shapes.request[session.facts.pods.shape[pods]]

    def run(self) -> Partition:
        """Return the parts in order, the scores of preferred domains, or why there is no part."""
        tree = self._tree
        if not tree.member.any():
            return self._refused("the cluster")
        code = int(tree.codes[self._top, self._valid[0]]) if len(self._valid) else 0
        branch = tree.branch(self._top, code)
        fits, ratio = self._fit_by_depth(branch)
        if not fits[self._top][0]:
            return self._refused(tree.names[self._top][code] or "the cluster")
        if -1 in (self._required, self._preferred):
            placement = "required" if self._required == -1 else "preferred"
            level = getattr(self._constraint, placement)
            return Partition(
                verdict=Verdict.refused(DOMAIN_TOO_SMALL, missing="level", level=level, placement=placement)
            )
        order = self._tree_order(branch, ratio)
        scores = self._preferred_scores(branch, order) if self._preferred else None
        allowed = self._allowed(branch)
        parts = []
        for depth in self._relevant_depths():
            usable = fits[depth] if allowed is None else fits[depth] & allowed[depth]
            members = branch.members(depth)
            parts += [members[at] for at in order[depth][usable[order[depth]]]]
        if len(self._valid) < len(branch.rows):
            valid = np.zeros(len(tree.member), np.bool_)
            valid[self._valid] = True
            parts = [part[valid[part]] for part in parts]
        if not parts and self._asks_for_nothing_above():
            parts = [self._valid]
        if not parts:
            return attrs.evolve(self._refused(ANY_DOMAIN, self._too_small(branch, fits, allowed)), scores=scores)
        return Partition(parts=parts, scores=scores)

    def finds_none(self) -> bool:
        """Return whether `run` gives no part with a node, for these nodes or fewer, whatever is free on them.

        All nodes may share a narrower domain than the required one (see ``Topology.stop_at_required``). Fewer nodes
        share one that is as narrow or more.
        """
        if not len(self._valid) or -1 in (self._required, self._preferred):
            return True
        return not self._relevant_depths() and not self._may_fit_above()

    def _may_fit_above(self) -> bool:
        """Return whether the pods ask for nothing but their places, and need a wider domain than the common one."""
        return 0 < self._required < self._top and not np.delete(self._requests, PODS, axis=1).any()

    def _asks_for_nothing_above(self) -> bool:
        """Return whether the pods fit into a required domain that is wider than the common one.

        Nothing is counted there, so it looks empty: only pods fit that ask for nothing but their places.
        """
        if not self._may_fit_above():
            return False
        held = self._held()
        return held is None or bool((self._tree.codes[self._required, self._valid[0]] == held).any())

    def _refused(self, where: str, small: tuple[SmallDomain, ...] = ()) -> Partition:
        requirement = self._constraint.required or self._constraint.preferred
        facts = {"requirement": requirement, "where": where, "pods": len(self._pods), "small": small}
        return Partition(verdict=Verdict.refused(DOMAIN_TOO_SMALL, **facts))

    def _too_small(
        self, branch: Branch, fits: dict[int, Bools], allowed: dict[int, Bools] | None
    ) -> tuple[SmallDomain, ...]:
        """Return the topmost candidate domains with what they lack, by name, up to a bound.

        If the group must stay with its placed pods, only domains with pods of the group are listed.
        """
        depths = self._relevant_depths()
        if not depths:
            return ()
        depth, members = depths[-1], branch.members(depths[-1])
        listed = ~fits[depth] if allowed is None else ~fits[depth] & allowed[depth]
        codes = self._tree.codes[depth, branch.rows[branch.depths[depth].first]]
        counted = self._homogeneous()
        return tuple(
            SmallDomain(
                name=self._tree.names[depth][codes[at]] or "the cluster",
                held=int(self._pods_per_node(members[at]).sum()) if counted else -1,
                short=() if counted else self._short_of(members[at]),
            )
            for at in np.flatnonzero(listed)[:MOST_NAMED].tolist()
        )

    def _short_of(self, rows: Int64s) -> tuple[str, ...]:
        columns = self._session.columns
        free = (columns.idle[rows] + columns.releasing[rows]).sum(axis=0)
        short = np.flatnonzero(self._requests.sum(axis=0) > free)
        return tuple(self._session.snapshot.axis.names[resource] for resource in short)

    def _fit_by_depth(self, branch: Branch) -> tuple[dict[int, Bools], dict[int, Float64s]]:
        """Return, for each depth from the common domain down to the finest, which can hold the pods, how tightly."""
        total = self._requests.sum(axis=0)
        total[PODS] = 0
        counted = self._homogeneous()
        # Domains below the finest requested level become no parts.
        bounds = branch.start[: max(self._preferred, self._required, self._top) - self._top + 2]
        ratio = np.empty(bounds[-1], np.float64)
        held = np.empty(bounds[-1], np.int64)
        fitting = self._pods_per_node(branch.rows) if counted else np.zeros(len(branch.rows), np.int64)
        domains = branch.domains[len(bounds) - 2]
        parents = branch.parents[: bounds[-1]]
        domain_room(self._session.columns, branch.rows, domains, parents, total, fitting, ratio, held)
        fit = held >= len(self._pods) if counted else ratio <= 1
        ranges = {depth: slice(*each) for depth, each in zip(branch.depths, pairwise(bounds), strict=False)}
        return {depth: fit[at] for depth, at in ranges.items()}, {depth: ratio[at] for depth, at in ranges.items()}

    def _homogeneous(self) -> bool:
        """Return whether the pods are alike enough to be counted.

        They are if all or none want GPUs, and all or none want each further resource.
        """
        wanted = self._requests > 0
        if wanted[:, GPU].any() != wanted[:, GPU].all():
            return False
        further = wanted[:, PODS + 1 :]
        return bool((further.any(axis=0) == further.all(axis=0)).all())

    def _pods_per_node(self, rows: Int64s) -> Int64s:
        return self._fitting.on_nodes(self._session, self._requests.max(axis=0), len(self._pods))[rows]

    def _tree_order(self, branch: Branch, ratio: dict[int, Float64s]) -> dict[int, Int64s]:
        """Return, for each depth, the positions of its domains left to right.

        Tightest first down to the preferred (or required) level, then by name; no deeper than parts are made of.
        """
        stop = self._preferred or self._required
        order = {self._top: np.zeros(1, np.int64)}
        rank = np.zeros(1, np.int64)
        for depth in range(self._top + 1, max(self._preferred, self._required) + 1):
            domains = branch.depths[depth]
            tightness = -ratio[depth] if depth <= stop else np.zeros(domains.count)
            # Domains are numbered by name, and the sort is stable.
            order[depth] = np.lexsort((tightness, rank[domains.parent])).astype(np.int64)
            rank = np.empty(domains.count, np.int64)
            rank[order[depth]] = np.arange(domains.count)
        return order

    def _preferred_scores(self, branch: Branch, order: dict[int, Int64s]) -> Float64s:
        """Return float64[N]: ten steps over the preferred domains in tree order, the roomiest highest.

        Nodes elsewhere are out.
        """
        scores = np.full(len(self._tree.member), np.nan, np.float64)
        domains = branch.depths.get(self._preferred)
        if domains is not None:
            steps = np.empty(domains.count, np.float64)
            for place, at in enumerate(order[self._preferred]):
                steps[at] = math.floor((place + 1) / domains.count * 10) * STEP
            scores[branch.rows] = steps[domains.of_node]
        return scores

    def _allowed(self, branch: Branch) -> dict[int, Bools] | None:
        """Return which domains lie in a required one that already holds a pod of these leaves.

        Return None if there is no such pod or no requirement.
        """
        held = self._held() if self._required else None
        if held is None:
            return None
        out = {}
        for depth in self._relevant_depths():
            domains = branch.depths[depth]
            required = self._tree.codes[self._required, branch.rows[domains.first]]
            out[depth] = np.isin(required, held)
        return out

    def _held(self) -> Int64s | None:
        """Return the required domains that hold pods of the leaves at hand, None if no node does."""
        session, tree, groups = self._session, self._tree, self._session.facts.groups
        leaves = np.unique(session.facts.pods.leaf[self._pods])
        mine = np.concatenate([groups.pods[groups.pod_start[leaf] : groups.pod_start[leaf + 1]] for leaf in leaves])
        placed = session.placed(mine)
        if not len(placed):
            return None
        nodes = session.columns.node[placed]
        # A pod may be placed on a node that is not in the snapshot.
        nodes = nodes[nodes >= 0]
        return np.unique(tree.codes[self._required, nodes[tree.member[nodes]]])

    def _relevant_depths(self) -> list[int]:
        """Return the depths to look at, finest first.

        They run from the finer of preferred and required up to the required one, or to the root.
        """
        finest = max(self._preferred, self._required)
        if not finest:
            return []
        last = self._required or 0
        return [depth for depth in range(finest, last - 1, -1) if depth >= self._top]
