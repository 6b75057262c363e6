"""Which domains a sub-group may be placed in, in which order.

    common domain of the candidate nodes -> what each domain below it can hold
    -> those that can hold the pods, finest level first, tightest first

The engine tries the parts one after the other and goes back over them, for every level of the tree of sub-groups, so
constraints nest.

Source: the peer's plugins/topology.
"""

import math

import attrs
import numpy as np

from kai.framework.hooks import Hooks, Partition
from kai.framework.verdict import Code, Verdict
from kai.framework.view import SessionView
from kai.kernels.topology import pods_per_node
from kai.model.axis import GPU, PODS
from kai.model.constraints import TopologyConstraint
from kai.model.rows import Bools, Float64s, GroupRow, Int64s, NodeRows, PodRows, SubGroupRow
from kai.model.status import ACTIVE_ALLOCATED
from kai.plugins.topology.tree import DomainTree

UNIT = 100_000
"""Score of one tenth of the preferred domains."""
NO_ROOM = 1000.0
"""The ratio of something to nothing."""


@attrs.frozen(kw_only=True)
class Topology:
    """Honour required and preferred topology levels of groups and sub-groups.

    ``stop_at_required``: do not look for room below the required level when all candidate nodes happen to share a
    narrower domain. The peer does look there and then finds the required domain empty; False decides as it does.
    """

    stop_at_required: bool = False

    def open(self, session: SessionView) -> Hooks:
        """Return the partition; trees are made when a constraint first asks for them."""
        trees: dict[str, DomainTree] = {}

        def partition(group: GroupRow, subgroup: SubGroupRow, pods: PodRows, nodes: NodeRows) -> Partition | None:
            facts = session.snapshot.groups[group]
            at = int(subgroup) - int(session.facts.groups.first_subgroup[group])
            constraint = facts.subgroups[at].constraint
            if constraint is None or not constraint.topology or not len(pods):
                return None
            topology = session.snapshot.topologies.get(constraint.topology)
            if topology is None:
                return Partition(
                    verdict=Verdict.refused(Code.TOPOLOGY, topology=constraint.topology, missing="topology")
                )
            if constraint.topology not in trees:
                trees[constraint.topology] = DomainTree.of(session, topology.levels)
            search = _DomainSearch(
                session, trees[constraint.topology], constraint, pods, nodes, stop_at_required=self.stop_at_required
            )
            partition = search.run(group, subgroup)
            if partition.verdict:
                return partition
            reason = partition.verdict.reasons[0]
            told = {"group": facts.key, "subgroup": facts.subgroups[at].name, "topology": constraint.topology}
            return attrs.evolve(partition, verdict=Verdict.refused(reason.code, **{**told, **reason.facts}))

        constrained = _constrained(session)
        return Hooks(partition_nodes=partition, partitions=constrained)


def _constrained(session: SessionView) -> Bools:
    """Return bool[G]: some sub-group of the group names a topology."""
    groups = session.snapshot.groups
    # Groups without sub-groups of their own share trees, so most of them are looked at once.
    distinct = {id(group.subgroups): group.subgroups for group in groups}
    trees = {key: any(subgroup.constraint for subgroup in tree) for key, tree in distinct.items()}
    return np.array([trees[id(group.subgroups)] for group in groups], np.bool_)


class _DomainSearch:
    """The domains for one sub-group at one moment."""

    def __init__(
        self,
        session: SessionView,
        tree: DomainTree,
        constraint: TopologyConstraint,
        pods: PodRows,
        nodes: NodeRows,
        *,
        stop_at_required: bool,
    ) -> None:
        self._session = session
        self._tree = tree
        self._constraint = constraint
        self._pods = pods
        self._valid = nodes[tree.member[nodes]]
        self._required = tree.depth_of(constraint.required) if constraint.required else 0
        self._preferred = tree.depth_of(constraint.preferred) if constraint.preferred else 0
        stop = self._preferred or (self._required if stop_at_required else 0)
        self._top = tree.common_depth(self._valid, stop if stop > 0 else -1)
        self._requests = session.facts.shapes.request[session.facts.pods.shape[pods]]

    def run(self, group: GroupRow, subgroup: SubGroupRow) -> Partition:
        """Return the parts in order, the scores of preferred domains, or why there is no part."""
        tree = self._tree
        if not tree.member.any():
            return self._refused("the cluster")
        inside = self._inside()
        rows = np.flatnonzero(inside).astype(np.int64)
        fits, ratio = self._fit_by_depth(rows)
        if not fits[self._top][0]:
            name = tree.names[self._top][int(tree.codes[self._top, rows[0]])] if self._top else ""
            return self._refused(name or "the cluster")
        if -1 in (self._required, self._preferred):
            return Partition(verdict=Verdict.refused(Code.TOPOLOGY, missing="level", level=self._constraint.required))
        order = self._tree_order(rows, ratio)
        scores = self._preferred_scores(rows, order) if self._preferred else None
        allowed = self._allowed(group, subgroup, rows)
        valid = np.zeros(len(tree.member), np.bool_)
        valid[self._valid] = True
        parts = []
        for depth in self._relevant_depths():
            codes = tree.codes[depth, rows]
            domains = np.unique(codes)
            for at in order[depth]:
                if fits[depth][at] and (allowed is None or allowed[depth][at]):
                    mine = rows[codes == domains[at]]
                    parts.append(mine[valid[mine]])
        if not parts:
            return attrs.evolve(self._refused("any domain"), scores=scores)
        return Partition(parts=parts, scores=scores)

    def _refused(self, where: str) -> Partition:
        requirement = self._constraint.required or self._constraint.preferred
        return Partition(
            verdict=Verdict.refused(Code.TOPOLOGY, requirement=requirement, where=where, pods=len(self._pods))
        )

    def _inside(self) -> Bools:
        """Return bool[N]: the nodes of the common domain, candidates or not."""
        tree = self._tree
        if not self._top or not len(self._valid):
            return tree.member
        inside: Bools = tree.codes[self._top] == tree.codes[self._top, self._valid[0]]
        return inside

    def _fit_by_depth(self, rows: Int64s) -> tuple[dict[int, Bools], dict[int, Float64s]]:
        """Return, for each depth from the common domain down, which domains can hold the pods, and how tightly."""
        columns = self._session.columns
        free = (columns.idle[rows] + columns.releasing[rows]).astype(np.float64)
        total = self._requests.sum(axis=0)
        counts = self._pods_per_node(rows) if self._homogeneous() else None
        fits: dict[int, Bools] = {}
        ratios: dict[int, Float64s] = {}
        for depth in range(self._top, len(self._tree.levels) + 1):
            domains, inverse = np.unique(self._tree.codes[depth, rows], return_inverse=True)
            sums = np.zeros((len(domains), free.shape[1]), np.float64)
            np.add.at(sums, inverse, free)
            ratio = np.zeros(len(domains), np.float64)
            for resource in np.flatnonzero(total > 0):
                if resource != PODS:
                    enough = sums[:, resource] > 0
                    share = np.full(len(domains), NO_ROOM)
                    np.divide(total[resource], sums[:, resource], out=share, where=enough)
                    ratio = np.maximum(ratio, share)
            ratios[depth] = ratio
            fits[depth] = (
                ratio <= 1
                if counts is None
                else np.bincount(inverse, weights=counts, minlength=len(domains)) >= len(self._pods)
            )
        return fits, ratios

    def _homogeneous(self) -> bool:
        """Say whether the pods are alike enough to be counted.

        All or none want GPUs, and each further resource is wanted by all or none.
        """
        wanted = self._requests > 0
        if wanted[:, GPU].any() != wanted[:, GPU].all():
            return False
        further = wanted[:, PODS + 1 :]
        return bool((further.any(axis=0) == further.all(axis=0)).all())

    def _pods_per_node(self, rows: Int64s) -> Int64s:
        out = np.zeros(len(rows), np.int64)
        pods_per_node(
            self._session.facts, self._session.columns, self._requests.max(axis=0), len(self._pods), rows, out
        )
        return out

    def _tree_order(self, rows: Int64s, ratio: dict[int, Float64s]) -> dict[int, Int64s]:
        """Return, for each depth, the positions of its domains left to right.

        Tightest first down to the preferred (or required) level, then by name.
        """
        stop = self._preferred or self._required
        order = {self._top: np.zeros(1, np.int64)}
        rank = {self._top: np.zeros(1, np.int64)}
        for depth in range(self._top + 1, len(self._tree.levels) + 1):
            above = self._tree.codes[depth - 1, rows]
            domains, first = np.unique(self._tree.codes[depth, rows], return_index=True)
            parents = np.searchsorted(np.unique(above), above[first])
            tightness = -ratio[depth] if depth <= stop else np.zeros(len(domains))
            order[depth] = np.lexsort((domains, tightness, rank[depth - 1][parents])).astype(np.int64)
            rank[depth] = np.empty(len(domains), np.int64)
            rank[depth][order[depth]] = np.arange(len(domains))
        return order

    def _preferred_scores(self, rows: Int64s, order: dict[int, Int64s]) -> Float64s:
        """Return float64[N]: ten steps over the preferred domains in tree order, the roomiest highest.

        Nodes elsewhere are out.
        """
        scores = np.full(len(self._tree.member), np.nan, np.float64)
        codes = self._tree.codes[self._preferred, rows]
        domains = np.unique(codes)
        for place, at in enumerate(order.get(self._preferred, np.zeros(0, np.int64))):
            scores[rows[codes == domains[at]]] = math.floor((place + 1) / len(domains) * 10) * UNIT
        return scores

    def _allowed(self, group: GroupRow, subgroup: SubGroupRow, rows: Int64s) -> dict[int, Bools] | None:
        """Return which domains lie in a required one that already holds a pod of the sub-group.

        None if there is no such pod or requirement.
        """
        if not self._required:
            return None
        session, tree = self._session, self._tree
        involved = np.unique(session.facts.pods.leaf[self._pods])
        groups = session.facts.groups
        active = [
            int(session.columns.node[pod])
            for leaf in involved
            for pod in groups.pods[groups.pod_start[leaf] : groups.pod_start[leaf + 1]]
            if (ACTIVE_ALLOCATED >> session.columns.status[pod]) & 1
        ]
        del group, subgroup
        if not active:
            return None
        held = {int(tree.codes[self._required, node]) for node in active if node >= 0 and tree.member[node]}
        out = {}
        for depth in range(self._top, len(tree.levels) + 1):
            domains, first = np.unique(tree.codes[depth, rows], return_index=True)
            required = tree.codes[self._required, rows[first]]
            out[depth] = np.array([depth >= self._required and int(code) in held for code in required], np.bool_)
            del domains
        return out

    def _relevant_depths(self) -> list[int]:
        """Return the depths to look at, finest first.

        From the finer of preferred and required up to the required one, or to the root.
        """
        finest = max(self._preferred, self._required)
        if not finest:
            return []
        last = self._required or 0
        return [depth for depth in range(finest, last - 1, -1) if depth >= self._top]
