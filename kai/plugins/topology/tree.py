"""The domains of one topology as a tree in columns, from objects that list node labels, and texts that name domains.

A node belongs to the tree if it has the labels of all levels. Domains of a level are numbered by the path of label
values from the top, so that numbers grow with names.

A refusal has one text for conditions on pod groups, and one plain line.

Source: the peer's topology plugin; conditions equal its texts to the character.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import attrs
import numpy as np

from kai.framework import (
    DEFAULT_SUBGROUP,
    Bools,
    Detail,
    DomainTree,
    NodeRows,
    Objects,
    RawObject,
    SessionView,
    TopologyConstraint,
    Words,
    mig_slices,
)
from kai.framework.kernel import Columns, Facts, Int64s, kernel, pods_on_node


@attrs.frozen(kw_only=True)
class Levels:
    """One topology object. ``labels`` are node label keys; ``aliases`` leads from other names of levels to them."""

    name: str
    labels: tuple[str, ...]
    aliases: Mapping[str, str] = attrs.field(factory=dict)

    def resolved(self, constraint: TopologyConstraint) -> TopologyConstraint:
        """Return ``constraint`` with node labels for levels; names that are no alias stay as they are."""
        required, preferred = constraint.required, constraint.preferred
        return attrs.evolve(
            constraint,
            required=self.aliases.get(required, required),
            preferred=self.aliases.get(preferred, preferred),
        )


def _read(raw: RawObject) -> Levels:
    levels = raw.spec.get("levels", ())
    return Levels(
        name=raw.name,
        labels=tuple(level["nodeLabel"] for level in levels),
        aliases={level["alias"]: level["nodeLabel"] for level in levels if level.get("alias")},
    )


TOPOLOGIES = Objects(api_version="kai.scheduler/v1alpha1", kind="Topology", plural="topologies", read=_read)


STEP = 100_000.0
"""Score of one tenth of the preferred domains."""


@attrs.frozen(kw_only=True, eq=False)
class Depth:
    """The domains of one depth below some domain, numbered from 0 in the order of their names."""

    count: int
    of_node: Int64s
    """[n] domain of each node of the branch."""
    parent: Int64s
    """[count] position of each domain's parent one depth up."""
    first: Int64s
    """[count] position of one node of each domain."""


@attrs.frozen(kw_only=True, eq=False)
class Branch:
    """A domain and everything below it. ``depths`` begin with the domain itself."""

    rows: Int64s
    """Nodes of the domain, ascending."""
    depths: dict[int, Depth]
    domains: Int64s
    """[D, n] domain of each node at each depth, numbered on from depth to depth."""
    parents: Int64s
    """[C] the domain above each one by these numbers, -1 for the first."""
    start: list[int]
    """[D + 1] where the numbers of each depth begin."""
    _members: dict[int, list[NodeRows]] = attrs.field(factory=dict)

    def members(self, depth: int) -> list[NodeRows]:
        """Return the nodes of each domain of a depth; made once."""
        known = self._members.get(depth)
        if known is None:
            of_node = self.depths[depth].of_node
            ends = np.cumsum(np.bincount(of_node, minlength=self.depths[depth].count))
            known = self._members[depth] = np.split(self.rows[np.argsort(of_node, kind="stable")], ends[:-1])
        return known


@attrs.frozen(kw_only=True, eq=False)
class TopologyTree:
    """Domains by level. Depth 0 is the root, depth d the d-th level from the top; codes of nodes outside are -1."""

    levels: tuple[str, ...]
    member: Bools
    """[N] the node has all labels."""
    codes: Int64s
    """[L + 1, N] domain of each node at each depth."""
    names: tuple[tuple[str, ...], ...]
    """Names of the domains at each depth: values joined by dots."""
    _branches: dict[tuple[int, int], Branch] = attrs.field(factory=dict)
    _domain_trees: dict[tuple[int, int, bool], DomainTree | None] = attrs.field(factory=dict)

    @classmethod
    def of(cls, session: SessionView, topology: Levels) -> "TopologyTree":
        """Return the tree that a topology spans over the nodes of ``session``, kept while both are the same objects."""
        inputs = (session.snapshot.nodes, topology)
        return session.once(f"tree of {topology.name}", inputs, lambda: cls._made(session, topology.labels))

    @classmethod
    def _made(cls, session: SessionView, levels: Sequence[str]) -> "TopologyTree":
        """Return the tree that ``levels`` span over the nodes of ``session``. Cost: O(N L)."""
        labels = [session.label_codes(level) for level in levels]
        member = (
            np.logical_and.reduce([each > 0 for each in labels]) if labels else np.ones(len(session.nodes), np.bool_)
        )
        rows = np.flatnonzero(member)
        codes = np.full((len(levels) + 1, len(member)), -1, np.int64)
        codes[0, rows] = 0
        names: list[tuple[str, ...]] = [("",)]
        for depth, level in enumerate(levels, start=1):
            # Labels are numbered by value: pairs of parent and label are in the order of their paths.
            pairs = codes[depth - 1, rows] * (labels[depth - 1].max(initial=0) + 1) + labels[depth - 1][rows]
            _, first, codes[depth, rows] = np.unique(pairs, return_index=True, return_inverse=True)
            ends = [session.snapshot.nodes[row].labels[level] for row in rows[first].tolist()]
            above = [names[-1][code] for code in codes[depth - 1, rows[first]].tolist()]
            names.append(tuple(f"{path}.{end}" if depth > 1 else end for path, end in zip(above, ends, strict=True)))
        return cls(levels=tuple(levels), member=member, codes=codes, names=tuple(names))

    def depth_of(self, level: str) -> int:
        """Return the depth of a level, -1 if the topology has no such level."""
        return self.levels.index(level) + 1 if level in self.levels else -1

    def common_depth(self, nodes: Int64s, stop: int) -> int:
        """Return the depth of the lowest domain that holds all ``nodes``, at most ``stop``.

        -1: look as deep as there are levels.
        """
        depth = 0
        if not len(nodes):
            return depth
        for below in range(1, len(self.levels) + 1):
            codes = self.codes[below, nodes]
            if (codes != codes[0]).any():
                break
            depth = below
            if below == stop:
                break
        return depth

    def branch(self, depth: int, code: int) -> Branch:
        """Return the domain ``code`` of ``depth`` with all below it; made once."""
        known = self._branches.get((depth, code))
        if known is None:
            rows = np.flatnonzero(self.codes[depth] == code).astype(np.int64)
            depths: dict[int, Depth] = {}
            for below in range(depth, len(self.levels) + 1):
                domains, first, of_node = np.unique(self.codes[below, rows], return_index=True, return_inverse=True)
                parent = depths[below - 1].of_node[first] if depths else np.zeros(1, np.int64)
                depths[below] = Depth(count=len(domains), of_node=of_node, parent=parent, first=first)
            start = [0, *accumulate(each.count for each in depths.values())]
            table = [each.of_node + at for each, at in zip(depths.values(), start, strict=False)]
            above = [each.parent + at for each, at in zip(list(depths.values())[1:], start, strict=False)]
            known = self._branches[depth, code] = Branch(
                rows=rows,
                depths=depths,
                domains=np.array(table, np.int64),
                parents=np.concatenate([np.full(1, -1), *above]).astype(np.int64),
                start=start,
            )
        return known

    def domain_tree(self, required: int, preferred: int, *, stop: bool) -> DomainTree | None:
        """Return the domains for groups that may use all nodes, by the depths of their constraint (0: not given).

        None if a level is unknown, or if all nodes are in one domain below the levels; ``stop``: a required
        level is not looked below. Made once.
        """
        key = (required, preferred, stop)
        if key not in self._domain_trees:
            self._domain_trees[key] = self._domain_tree(required, preferred, stop=stop)
        return self._domain_trees[key]

    def _domain_tree(self, required: int, preferred: int, *, stop: bool) -> DomainTree | None:
        rows, finest = np.flatnonzero(self.member).astype(np.int64), max(required, preferred)
        if not len(rows) or min(required, preferred) < 0 or not finest:
            return None
        deepest = preferred or (required if stop else 0)
        top = self.common_depth(rows, deepest if deepest > 0 else -1)
        if top > finest:
            return None
        branch = self.branch(top, int(self.codes[top, rows[0]]))
        start = branch.start[: finest - top + 2]
        return DomainTree(
            rows=branch.rows,
            domains=branch.domains[finest - top],
            parents=branch.parents[: start[-1]],
            start=start,
            coarsest=max(required - top, 0),
            ordered=(preferred or required) - top,
            preferred=preferred - top if preferred else -1,
            step=STEP,
            required=required > 0,
        )


@kernel
def pods_per_node(facts: Facts, columns: Columns, request: Int64s, most: int, nodes: Int64s, out: Int64s) -> None:
    """Fill ``out`` [n] with how many pods of ``request`` [R] each of ``nodes`` [n] could hold.

    ``most`` if they ask for nothing but a pod's place.
    """
    for at in range(nodes.shape[0]):
        out[at] = pods_on_node(facts, columns, request, most, nodes[at])


Known = Mapping[str, object]

ANY_DOMAIN = "any domain"
"""``where`` of a refusal: the common domain is large enough, but no domain of the requested level is."""
NO_DOMAIN = "Not enough resources for the workload"
_NAMES = {"cpu": "CPU cores", "memory": "memory", "gpu": "GPUs", "gpu-memory": "GPU memory"}


@attrs.frozen(kw_only=True)
class SmallDomain:
    """A domain that is too small: for how many of the pods it has room, or what it is short of where pods differ."""

    name: str
    held: int = -1
    """-1: the pods were not counted."""
    short: tuple[str, ...] = ()


def _text(facts: Known) -> str:
    """Return the refusal of a group; its details say what single domains lack."""
    topology = facts.get("topology", "")
    subgroup = str(facts.get("subgroup", ""))
    named = subgroup if subgroup != DEFAULT_SUBGROUP else ""
    if facts.get("missing") == "topology":
        return f"Requested topology {topology} does not exist"
    if facts.get("missing") == "level":
        return (
            f"topology constraint error: {f'sub-group {named}' if named else 'workload'} specified "
            f"'{facts.get('level', '')}' as the {facts.get('placement', 'required')} topology constraint level, "
            f"but the topology tree '{topology}' does not contain a level with this name"
        )
    whom = f"job <{facts.get('group', '')}>" + (f", subgroup {named}" if named else "")
    text = f"topology {topology}, requirement {facts.get('requirement', '')} couldn't be satisfied for {whom}"
    if facts.get("where", ANY_DOMAIN) == ANY_DOMAIN:
        return text
    return f"{text}: not enough resources in {facts['where']} to allocate the job"


def _plain(facts: Known) -> str:
    if "missing" in facts:
        return _text(facts)
    level = str(facts.get("requirement", "")).rpartition("/")[2] or "domain"
    wish, is_one = "must" if facts.get("required") else "should", facts.get("pods") == 1
    if facts.get("where", ANY_DOMAIN) == ANY_DOMAIN:
        whom = "a pod of it" if is_one else f"its {facts.get('pods', '')} pods together"
        return f"no {level} has room for {whom}"
    if is_one:
        return f"{facts['where']} has no room for a pod of it, which {wish} be in a {level}"
    return f"{facts['where']} has no room for its {facts.get('pods', '')} pods, which {wish} share a {level}"


def _details(facts: Known) -> Sequence[Detail]:
    """Return what each candidate domain lacks."""
    small = facts.get("small", ())
    domains = small if isinstance(small, tuple) else ()
    return [Detail(each.name, tuple(_lines(each, facts)), NO_DOMAIN) for each in domains]


def _lines(domain: SmallDomain, facts: Known) -> Iterator[str]:
    if domain.held >= 0:
        yield f"node-group {domain.name} can allocate only {domain.held} of {facts.get('pods', 0)} required pods"
    for resource in domain.short:
        if mig_slices(resource) != (0, 0) or "/mig-" in resource:
            yield f"node-group(s) didn't have enough of mig profile: {resource}"
        else:
            yield f"node-group(s) didn't have enough resources: {_NAMES.get(resource, resource)}"


DOMAIN_TOO_SMALL = Words(
    code="DomainTooSmall", text=_text, plain=_plain, plain_code="TopologyHasNoRoom", details=_details
)
"""No domain has room for the pods of a sub-group, or there is no such topology or level."""
