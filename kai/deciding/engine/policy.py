"""The policy: extensions and terms of all plugins, folded into what kernels evaluate and what Python must ask.

The engine asks once for answers that depend on a shape alone, and stores them as rows of ``Vectors``. A shape with only
such answers is *plain*: kernels place its pods without calling back.

``DistinctRows`` stores those rows. It keeps each distinct row once, because many shapes share few masks.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kai.deciding.engine.opened import OpenedPlugin, weight_factors
from kai.deciding.engine.rules import fold_rules
from kai.facts.kernels.columns import Facts
from kai.facts.kernels.fit import Vectors
from kai.facts.model.axis import (
    PODS,
    Bools,
    Float64s,
    GroupRow,
    GroupRows,
    Int64s,
    NodeRow,
    NodeRows,
    PodRow,
    PodRows,
    Scores,
    SubGroupRow,
)
from kai.framework.hooks import (
    Dependence,
    Domains,
    DomainTree,
    GroupOrder,
    NodeFilter,
    NodeScore,
    Placement,
    Together,
    Transitions,
    Victims,
)
from kai.framework.terms import ElasticOrder, FairShares, PriorityOrder, SubGroupFill
from kai.framework.verdict import ACCEPTED, Verdict

T = TypeVar("T", bound=np.generic)


class DistinctRows(Generic[T]):
    """Rows of one length, each stored once; row 0 exists from the beginning.

    ``table`` doubles its capacity as it grows and is then another array. It may have unused rows at its end. A row
    never moves or changes.
    """

    def __init__(self, first: NDArray[T]) -> None:
        """Begin with one row."""
        self.table: NDArray[T] = first[np.newaxis].copy()
        self._count = 1
        self._rows: dict[int, list[int]] = {hash(first.tobytes()): [0]}

    def row_of(self, values: NDArray[T]) -> int:
        """Return the row that equals ``values`` bit by bit, a new one if none does. Cost: O(length)."""
        # Bytes and not values: NaN has to equal NaN, and -0.0 may not stand for 0.0.
        content = values.tobytes()
        same_hash = self._rows.setdefault(hash(content), [])
        for row in same_hash:
            if self.table[row].tobytes() == content:
                return row
        row = self._count
        if row == len(self.table):
            larger = np.zeros((2 * row, self.table.shape[1]), self.table.dtype)
            larger[:row] = self.table
            self.table = larger
        self.table[row] = values
        self._count += 1
        same_hash.append(row)
        return row


class Policy:
    """The folded extensions of all plugins of a session."""

    def __init__(self, plugins: Sequence[OpenedPlugin], facts: Facts) -> None:
        """Fold the extensions; no plugin is asked yet."""
        self.plugins = tuple(plugins)
        self._facts = facts
        shapes = facts.shapes.kind.shape[0]
        nodes = facts.nodes.ready.shape[0]
        self.prepared = np.zeros(shapes, np.bool_)
        """bool[K]: shapes whose static answers are in ``vectors``."""
        self._static = [plugin for plugin in plugins if _is_static(plugin)]
        self._dynamic = [plugin for plugin in plugins if _is_dynamic(plugin)]
        self.dynamic = np.zeros(shapes, np.bool_)
        """bool[K]: shapes whose pods need Python for each placement."""
        for plugin in self._dynamic:
            self.dynamic |= np.ones(shapes, np.bool_) if plugin.concerns is None else plugin.concerns
        self._asking: dict[int, list[OpenedPlugin]] = {}
        self._first: dict[int, Float64s] = {}
        self.scored, self.single = self._by_answers(shapes)
        """bool[K] each: ``scored`` shapes need one plugin, and only for a mask and scores; for ``single`` shapes among
        them, the answers are the same for any pod that is alone in its group."""
        self.batching = self._batching(shapes)
        """int64[K]: which of ``plugins`` places pods of the shape in batches, -1: none."""
        self._masks = DistinctRows(np.ones(nodes, np.bool_))
        self._scores = DistinctRows(np.zeros(nodes, np.float64))
        self.vectors = Vectors(masks=self._masks.table, scores=self._scores.table)
        self.judges_pods = any(plugin.pod_filter is not None for plugin in plugins)
        """Whether a plugin refuses pods independent of the node."""
        terms = [term for plugin in plugins for term in plugin.terms]
        self.sub_group_fill = any(isinstance(term, SubGroupFill) for term in terms)
        self.fair_shares = next((term for term in terms if isinstance(term, FairShares)), None)
        self.weight_factors = weight_factors(terms)
        """float64[Q, 3]: what plugins multiply the weights of queues by; None: nothing."""
        filters = [(plugin, plugin.node_filter) for plugin in plugins if plugin.node_filter is not None]
        self._signing = [(plugin, each.signatures) for plugin, each in filters if each.signatures is not None]
        self._single = [each.single for _, each in filters if each.single is not None]
        self._key_makers = self._group_key_makers()
        elastic = [at for at, maker in enumerate(self._key_makers) if isinstance(maker, ElasticOrder)]
        self.rules, self.waiting_rules, self.free_rules = fold_rules(plugins, elastic[0] if elastic else -1)
        """The rules, those for nodes on which a pod has to wait, and those without limits of queues."""

    def _by_answers(self, shapes: int) -> tuple[Bools, Bools]:
        """Return bool[K] twice: shapes for which one plugin only filters and rates nodes; of them, by group."""
        askers = np.zeros(shapes, np.int64)
        others = np.zeros(shapes, np.bool_)
        wider = np.zeros(shapes, np.bool_)
        for plugin in self._dynamic:
            concerned = slice(None) if plugin.concerns is None else plugin.concerns
            askers[concerned] += 1
            if plugin.pod_filter is not None or plugin.node_wait is not None or _changes_placements(plugin):
                others[concerned] = True
            answers = (plugin.node_filter, plugin.node_score)
            if any(each is not None and each.depends is Dependence.SESSION for each in answers):
                wider[concerned] = True
        # Exactly one: its array goes to the kernel as it is. Those of two would have to be joined again for each pod.
        scored = (askers == 1) & ~others
        return scored, scored & ~wider

    def _batching(self, shapes: int) -> Int64s:
        """Return int64[K]: the plugin that places pods of the shape in batches, -1 if there is none or it may not."""
        batching = np.full(shapes, -1, np.int64)
        for at, plugin in enumerate(self.plugins):
            if plugin.placement is not None and plugin.placement.batch is not None:
                batching[plugin.placement.batch.ask >= 0] = at
        batches = {at: self.plugins[at].placement for at in np.unique(batching[batching >= 0]).tolist()}
        for plugin in self._dynamic:
            # Another plugin would have to be asked about each pod. A rating may change with each placement as well,
            # unless the batch says until when it does not.
            its_own = [at for at in batches if self.plugins[at].name == plugin.name]
            if by_placement(plugin.node_score):
                its_own = [at for at in its_own if _rates_batches(batches[at])]
            asked = np.ones(shapes, np.bool_) if plugin.concerns is None else plugin.concerns
            batching[asked & ~np.isin(batching, its_own)] = -1
        return batching

    @cached_property
    def foreseen(self) -> tuple[OpenedPlugin, Transitions, Int64s] | None:
        """A plugin with tables of what nodes take once pods are gone, and int64[K]: what pods of each shape ask it for.

        -1: another plugin is asked about such pods as well. None: no plugin has tables.
        """
        for plugin in self.plugins:
            placement = plugin.placement
            if placement is None or placement.transitions is None:
                continue
            others = (plugin.pod_filter, plugin.node_wait, placement.credit, placement.lasting_effects)
            if any(each is not None for each in others):
                continue
            asks = placement.transitions.asks().copy()
            for other in self._dynamic:
                if other is not plugin:
                    asks[slice(None) if other.concerns is None else other.concerns] = -1
            return plugin, placement.transitions, asks
        return None

    def _group_key_makers(self) -> list[PriorityOrder | ElasticOrder | GroupOrder]:
        makers: list[PriorityOrder | ElasticOrder | GroupOrder] = []
        for plugin in self.plugins:
            makers += [term for term in plugin.terms if isinstance(term, PriorityOrder | ElasticOrder)]
            if plugin.group_order is not None:
                makers.append(plugin.group_order)
        return makers

    @cached_property
    def victims(self) -> tuple[Victims, ...]:
        """The plugins' extensions about victims, in their order."""
        return tuple(plugin.victims for plugin in self.plugins if plugin.victims is not None)

    @property
    def splitting(self) -> Iterator[Domains]:
        """Yield the plugins' ways to split nodes, in their order."""
        return (plugin.domains for plugin in self.plugins if plugin.domains is not None)

    def together(self, group: GroupRow, subgroup: SubGroupRow) -> list[Together]:
        """Return where plugins want the pods of a sub-group together, in their order."""
        asked = (
            each.together(group, subgroup)
            for each in self.splitting
            if each.together is not None and (each.groups is None or each.groups[group])
        )
        return [each for each in asked if each is not None]

    def rules_out(self, group: GroupRow, subgroup: SubGroupRow, pods: PodRows, nodes: NodeRows) -> bool:
        """Return whether a plugin is certain that the pods of a sub-group find no place among ``nodes``."""
        return any(
            each.rules_out is not None
            and (each.groups is None or bool(each.groups[group]))
            and each.rules_out(group, subgroup, pods, nodes)
            for each in self.splitting
        )

    def signature(self, shape: int) -> str:
        """Return what plugins add to the constraint signatures of pods of ``shape``."""
        return "".join(texts[shape] for plugin, texts in self._signing if plugin.is_asked(shape))

    def is_single(self, shape: int) -> bool:
        """Return whether some plugin forbids two pods of ``shape`` on one node."""
        return any(mask[shape] for mask in self._single)

    def asking(self, shape: int) -> list[OpenedPlugin]:
        """Return the plugins to ask at each placement of a pod of ``shape``."""
        known = self._asking.get(shape)
        if known is None:
            known = self._asking[shape] = [plugin for plugin in self._dynamic if plugin.is_asked(shape)]
        return known

    def must_wait(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: on which of ``nodes`` a plugin makes ``pod`` wait for a resource that it tracks."""
        waits = np.zeros(len(nodes), np.bool_)
        for plugin in self.asking(int(self._facts.pods.shape[pod])):
            if plugin.node_wait is not None:
                waits |= plugin.node_wait.must_wait(pod, nodes)
        return waits

    def prepare(self, shape: int, pod: PodRow, nodes: NodeRows) -> None:
        """Put the static answers for ``shape`` into ``vectors``; ``pod`` is any pod of it, ``nodes`` are all nodes.

        Cost: one call per plugin and shape in a session, and O(N).
        """
        if self.prepared[shape]:
            return
        self.prepared[shape] = True
        mask = self._have_kinds(shape)
        score = np.zeros(len(nodes), np.float64)
        for plugin in self._static:
            if not plugin.is_asked(shape):
                continue
            if by_shape(plugin.node_filter):
                mask &= mask_of(plugin, pod, nodes)
            if by_shape(plugin.node_score):
                score += scores_of(plugin, pod, nodes)
        self._facts.shapes.mask[shape] = self._masks.row_of(mask)
        self._facts.shapes.score[shape] = self._scores.row_of(score)
        self._adopt_rows()

    def _have_kinds(self, shape: int) -> Bools:
        """Return bool[N]: nodes that have, or had while no pod was there, all scalar resources that ``shape`` requests.

        The check of free amounts refuses the others too. But searches for victims know GPUs alone by amount: with this
        mask, they leave out victims on nodes that never have the kind of device that the pod requests.
        """
        request, nodes = self._facts.shapes.request[shape], self._facts.nodes
        asked = PODS + 1 + np.flatnonzero(request[PODS + 1 :] > 0)
        if not len(asked):
            return np.ones(len(nodes.ready), np.bool_)
        total = nodes.allocatable[:, asked]
        enough: Bools = ((total >= request[asked]) | (nodes.claimable[asked] & (total == 0))).all(axis=1)
        return enough

    def answers(self, pod: PodRow, shape: int, nodes: NodeRows) -> Float64s:
        """Return float64[n]: the scores of ``nodes`` from the plugin of a ``scored`` shape, NaN where it refuses.

        Its answers for the shape alone are in the vectors. The result may be the plugin's own array.
        """
        (plugin,) = self.asking(shape)
        if by_placement(plugin.node_score):
            out = scores_of(plugin, pod, nodes)
            if plugin.node_filter is None and out.flags.carray:
                return out
            out = out.copy()
        else:
            out = np.zeros(len(nodes), np.float64)
        if by_placement(plugin.node_filter):
            out[~mask_of(plugin, pod, nodes)] = np.nan
        return out

    def first_answers(self, pod: PodRow, shape: int, nodes: NodeRows) -> Float64s:
        """Return ``answers`` for ``pod``, whose group has no pod placed yet; memoized for a ``single`` shape."""
        known = self._first.get(shape)
        if known is None:
            # Kept for the session, while a plugin may fill the same array for its next answer.
            known = self._first[shape] = self.answers(pod, shape, nodes).copy()
        return known

    def prepare_single(self, shape: int, pod: PodRow, nodes: NodeRows) -> tuple[int, int]:
        """Return the rows of ``vectors`` for pods of a ``single`` shape that are alone in their groups.

        ``pod`` is one of them, ``nodes`` are all nodes. (-1, -1): the sum of static scores and these answers would be
        rounded, so it must be computed in the same order as elsewhere, where the other scores are added.
        """
        self.prepare(shape, pod, nodes)
        # It may be the plugin's own array, and it is changed below.
        answers = self.answers(pod, shape, nodes).copy()
        refused = np.isnan(answers)
        mask = self.vectors.masks[self._facts.shapes.mask[shape]] & ~refused
        score = self.vectors.scores[self._facts.shapes.score[shape]]
        answers[refused] = 0.0
        if np.ptp(score) and np.ptp(answers):
            return -1, -1
        rows = self._masks.row_of(mask), self._scores.row_of(score + answers)
        self._adopt_rows()
        return rows

    def _adopt_rows(self) -> None:
        # A row that is added within the capacity is seen through the old `vectors`; only a table that grew is another
        # array.
        if self._masks.table is not self.vectors.masks or self._scores.table is not self.vectors.scores:
            self.vectors = Vectors(masks=self._masks.table, scores=self._scores.table)

    def prepare_all(self, pods: PodRows, nodes: NodeRows) -> None:
        """Prepare the shapes of ``pods``."""
        shapes = self._facts.pods.shape[pods]
        for at in np.flatnonzero(~self.prepared[shapes]):
            self.prepare(int(shapes[at]), PodRow(int(pods[at])), nodes)

    @property
    def orders_groups(self) -> bool:
        """Whether a plugin determines the order of groups."""
        return any(isinstance(maker, GroupOrder) for maker in self._key_makers)

    def group_keys(self, groups: GroupRows, priority: Int64s | Float64s) -> Float64s:
        """Return float64[n, k]: the keys that order ``groups``, smaller first; the caller fills the unique last one.

        The column of elastic groups stays 0, because it changes as pods are placed.
        """
        columns: list[Float64s | float] = []
        for maker in self._key_makers:
            match maker:
                case PriorityOrder():
                    # Smaller keys come first, and higher priorities shall.
                    np.negative(priority, out=(ranked := np.empty(len(groups), np.float64)))
                    columns.append(ranked)
                case ElasticOrder():
                    columns.append(0.0)
                case GroupOrder():
                    columns += list(_table(maker.keys(groups)).T)
        out = np.empty((len(groups), len(columns) + 1), np.float64)
        for at, column in enumerate(columns):
            out[:, at] = column
        return out

    def key_names(self, groups: GroupRows) -> tuple[str, ...]:
        """Return the names of the columns of ``group_keys``: their plugins, numbered where one has several."""
        names: list[str] = []
        for plugin in self.plugins:
            names += [plugin.name for term in plugin.terms if isinstance(term, PriorityOrder | ElasticOrder)]
            if plugin.group_order is not None:
                count = _table(plugin.group_order.keys(groups)).shape[1]
                names += [plugin.name] if count == 1 else [f"{plugin.name}.{at}" for at in range(count)]
        return tuple(names)

    @property
    def orders_pods(self) -> bool:
        """Whether a plugin determines the order of pods."""
        return any(plugin.pod_order is not None for plugin in self.plugins)

    def pod_keys(self, pods: PodRows) -> Float64s | None:
        """Return float64[n, k]: keys that order pods, smaller first; None if no plugin orders pods."""
        columns = [_table(plugin.pod_order.keys(pods)) for plugin in self.plugins if plugin.pod_order is not None]
        return np.hstack(columns) if columns else None

    def leaves_alone(self, groups: GroupRows) -> Bools:
        """Return bool[n]: which of ``groups`` have no plugin that splits nodes for them."""
        return self._alone[groups]

    @cached_property
    def _alone(self) -> Bools:
        """bool[G]: groups for which no plugin splits nodes."""
        alone = np.ones(len(self._facts.groups.queue), np.bool_)
        for domains in self.splitting:
            alone &= np.zeros(len(alone), np.bool_) if domains.groups is None else ~domains.groups
        return alone

    def leaves_one_alone(self, group: int) -> bool:
        """Return whether no plugin splits nodes for ``group``."""
        return bool(self._alone[group])

    def tree_of_domains(self, groups: GroupRows) -> tuple[Callable[[GroupRow], DomainTree | None] | None, GroupRows]:
        """Return the groups for which only one plugin splits nodes, and that plugin's tree function or None."""
        splitting = list(self.splitting)
        trees = [each for each in splitting if each.tree is not None]
        # Trees of two plugins would have to be crossed, which is left to the plain path.
        if len(trees) != 1:
            return None, groups[:0]
        alone = np.ones(len(groups), np.bool_)
        for each in splitting:
            mine = np.ones(len(groups), np.bool_) if each.groups is None else each.groups[groups]
            alone &= mine if each is trees[0] else ~mine
        return trees[0].tree, groups[alone]

    def admit_pod(self, pod: PodRow, shape: int) -> Verdict:
        """Return the joined refusals of all plugins to place ``pod`` anywhere.

        Raises: PluginError when a plugin raised or returned something that is no verdict.
        """
        out = ACCEPTED
        for plugin in self.plugins:
            if plugin.pod_filter is not None and plugin.is_asked(shape):
                # All refusals and not the first, so that a user can mend them together.
                out = out.plus(plugin.pod_filter.admit(pod))
        return out


def by_shape(extension: NodeFilter | NodeScore | None) -> bool:
    """Return whether a plugin's answer depends on the shape alone, so that the policy's vectors hold it."""
    return extension is not None and extension.depends is Dependence.SHAPE


def by_placement(extension: NodeFilter | NodeScore | None) -> bool:
    """Return whether a plugin filters or rates nodes anew for each placement."""
    return extension is not None and extension.depends is not Dependence.SHAPE


def _rates_batches(placement: Placement | None) -> bool:
    """Return whether a plugin says until when its ratings hold for the pods that it places in batches."""
    return placement is not None and placement.batch is not None and placement.batch.rate is not None


def _is_static(plugin: OpenedPlugin) -> bool:
    return by_shape(plugin.node_filter) or by_shape(plugin.node_score)


def _is_dynamic(plugin: OpenedPlugin) -> bool:
    return (
        by_placement(plugin.node_filter)
        or by_placement(plugin.node_score)
        or plugin.pod_filter is not None
        or plugin.node_wait is not None
        or _changes_placements(plugin)
    )


def _changes_placements(plugin: OpenedPlugin) -> bool:
    """Return whether a placement changes more than the engine's own books."""
    each = plugin.placement
    return each is not None and any((each.choose, each.recorded, each.effects, each.lasting_effects, each.credit))


def _table(keys: Float64s) -> Float64s:
    """Return a plugin's keys as a table with a row for each item."""
    table = np.asarray(keys, np.float64)
    return table[:, None] if table.ndim == 1 else table


def mask_of(plugin: OpenedPlugin, pod: PodRow, nodes: NodeRows) -> Bools:
    """Return the plugin's mask for ``nodes``; all True if it has no filter.

    Raises: PluginError when it raised or returned something that is not bool[n].
    """
    return np.ones(len(nodes), np.bool_) if plugin.node_filter is None else plugin.node_filter.filter(pod, nodes)


def texts_of(plugin: OpenedPlugin, pod: PodRow, refused: NodeRows) -> Sequence[str]:
    """Return the plugin's text for each of the ``refused`` nodes.

    Raises: PluginError when it raised or returned something that is no text for each.
    """
    explain = None if plugin.node_filter is None else plugin.node_filter.explain
    return [refusal_of(plugin)] * len(refused) if explain is None else explain(pod, refused)


def refusal_of(plugin: OpenedPlugin) -> str:
    """Return the text for a node that a plugin refuses without a text of its own."""
    return f"node(s) were refused by plugin {plugin.name}"


def scores_of(plugin: OpenedPlugin, pod: PodRow, nodes: NodeRows) -> Scores:
    """Return the plugin's scores for ``nodes``; zeros if it rates none.

    Raises: PluginError when it raised or returned something that is not float64[n], or an infinite score.
    """
    return np.zeros(len(nodes), np.float64) if plugin.node_score is None else plugin.node_score.score(pod, nodes)


__all__ = ["NodeRow", "Policy", "by_placement", "by_shape", "mask_of", "refusal_of", "scores_of", "texts_of"]
