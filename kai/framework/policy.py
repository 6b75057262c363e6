"""Many plugins, one policy: folds hooks and terms into what kernels evaluate and what Python must ask.

Answers that depend on a shape alone become rows of ``Vectors`` and are asked for once; shapes that only such answers
concern are *plain*: kernels place their pods without calling back.
"""

from collections.abc import Callable, Sequence
from typing import cast

import attrs
import numpy as np

from kai.errors import PluginError
from kai.framework.distinct_rows import DistinctRows
from kai.framework.hooks import Dependence, Hooks, Nest
from kai.framework.terms import (
    Availability,
    CpuOnlyNodes,
    Density,
    DeviceOrder,
    ElasticOrder,
    FairShares,
    PriorityOrder,
    SharedDevices,
    SubGroupFill,
)
from kai.framework.verdict import ACCEPTED, Verdict
from kai.kernels.columns import Facts
from kai.kernels.fit import Rules, Vectors
from kai.model.rows import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRow, NodeRows, PodRow, PodRows, Scores


@attrs.frozen
class Named:
    """A plugin's hooks with its name."""

    name: str
    hooks: Hooks


def fold_rules(hooks: Sequence[Hooks], elastic_key: int) -> Rules:
    """Return the sum of all score terms, and which checks are on."""
    weights = dict.fromkeys(
        (
            "binpack_cpu",
            "binpack_gpu",
            "spread_cpu",
            "spread_gpu",
            "cpu_only",
            "availability",
            "sharing",
            "pack_slots",
            "spread_slots",
        ),
        0.0,
    )
    fair = False
    for term in (term for hook in hooks for term in hook.terms):
        match term:
            case Density():
                weights["binpack_cpu"] += term.cpu_binpack
                weights["binpack_gpu"] += term.gpu_binpack
                weights["spread_cpu"] += term.cpu_spread
                weights["spread_gpu"] += term.gpu_spread
            case CpuOnlyNodes():
                weights["cpu_only"] += term.weight
            case Availability():
                weights["availability"] += term.weight
            case SharedDevices():
                weights["sharing"] += term.weight
            case DeviceOrder():
                weights["pack_slots"] += term.pack
                weights["spread_slots"] += term.spread
            case FairShares():
                fair = True
            case _:
                pass
    return Rules(limits=fair, fair_order=fair, elastic_key=elastic_key, **weights)


class Policy:
    """What all plugins of a session say together."""

    def __init__(self, plugins: Sequence[Named], facts: Facts) -> None:
        """Fold the hooks; nothing is asked yet."""
        self.plugins = tuple(plugins)
        hooks = [plugin.hooks for plugin in plugins]
        self._facts = facts
        shapes = facts.shapes.kind.shape[0]
        nodes = facts.nodes.ready.shape[0]
        self.prepared = np.zeros(shapes, np.bool_)
        """Bools [K]: shapes whose static answers are in ``vectors``."""
        self._static = [p for p in plugins if self._is_static(p.hooks)]
        self._dynamic = [p for p in plugins if self._is_dynamic(p.hooks)]
        self.dynamic = np.zeros(shapes, np.bool_)
        """Bools [K]: shapes whose pods need Python for each placement."""
        for plugin in self._dynamic:
            concerns = plugin.hooks.concerns
            self.dynamic |= np.ones(shapes, np.bool_) if concerns is None else concerns
        self._asking: dict[int, list[Named]] = {}
        self._having: dict[str, list[Hooks]] = {}
        self._first: dict[int, Float64s] = {}
        self.scored, self.lonely = self._by_answers(shapes)
        """Bools [K]: shapes for which one plugin is asked, for a mask and scores and nothing else; those of them for
        which its answers are the same for the only pod of any group."""
        self._masks = DistinctRows(np.ones(nodes, np.bool_))
        self._scores = DistinctRows(np.zeros(nodes, np.float64))
        self.vectors = Vectors(masks=self._masks.table, scores=self._scores.table)
        self.judges_pods = any(hook.admit_pod is not None for hook in hooks)
        """Whether some plugin refuses pods whatever the node."""
        self.sub_group_fill = any(isinstance(term, SubGroupFill) for hook in hooks for term in hook.terms)
        self.fair_shares = next((term for hook in hooks for term in hook.terms if isinstance(term, FairShares)), None)
        self._key_makers = self._group_key_makers()
        elastic = [at for at, maker in enumerate(self._key_makers) if isinstance(maker, ElasticOrder)]
        self.rules = fold_rules(hooks, elastic[0] if elastic else -1)
        self.waiting_rules = self.rules.replace(availability=0.0)
        """The rules for nodes on which a pod must wait."""

    @staticmethod
    def _is_static(hooks: Hooks) -> bool:
        return (hooks.filter_nodes is not None and hooks.filter_depends is Dependence.SHAPE) or (
            hooks.score_nodes is not None and hooks.score_depends is Dependence.SHAPE
        )

    @staticmethod
    def _is_dynamic(hooks: Hooks) -> bool:
        return (
            (hooks.filter_nodes is not None and hooks.filter_depends is not Dependence.SHAPE)
            or (hooks.score_nodes is not None and hooks.score_depends is not Dependence.SHAPE)
            or any((hooks.admit_pod, hooks.must_wait, hooks.choose, hooks.effects, hooks.lasting_effects))
        )

    def _by_answers(self, shapes: int) -> tuple[Bools, Bools]:
        """Return bool[K] twice: which shapes one plugin only filters and rates nodes for; where it looks at groups."""
        askers = np.zeros(shapes, np.int64)
        others = np.zeros(shapes, np.bool_)
        wider = np.zeros(shapes, np.bool_)
        for hooks in (plugin.hooks for plugin in self.plugins):
            concerned = slice(None) if hooks.concerns is None else hooks.concerns
            if self._is_dynamic(hooks):
                askers[concerned] += 1
            more = (
                hooks.admit_pod,
                hooks.must_wait,
                hooks.choose,
                hooks.recorded,
                hooks.effects,
                hooks.lasting_effects,
            )
            if any(more) or hooks.credit_nodes is not None:
                others[concerned] = True
            answers = ((hooks.filter_nodes, hooks.filter_depends), (hooks.score_nodes, hooks.score_depends))
            if any(hook and depends not in (Dependence.SHAPE, Dependence.GROUP) for hook, depends in answers):
                wider[concerned] = True
        scored = (askers == 1) & ~others
        return scored, scored & ~wider

    def _group_key_makers(self) -> list[PriorityOrder | ElasticOrder | Callable[[GroupRows], Float64s]]:
        makers: list[PriorityOrder | ElasticOrder | Callable[[GroupRows], Float64s]] = []
        for plugin in self.plugins:
            makers += [term for term in plugin.hooks.terms if isinstance(term, PriorityOrder | ElasticOrder)]
            if plugin.hooks.group_keys is not None:
                makers.append(plugin.hooks.group_keys)
        return makers

    def having(self, hook: str) -> list[Hooks]:
        """Return the hooks of the plugins that have one of this name, in their order."""
        known = self._having.get(hook)
        if known is None:
            known = self._having[hook] = [p.hooks for p in self.plugins if getattr(p.hooks, hook) is not None]
        return known

    def asking(self, shape: int) -> list[Named]:
        """Return the plugins that must be asked for each placement of a pod of ``shape``."""
        known = self._asking.get(shape)
        if known is None:
            known = self._asking[shape] = [
                p for p in self._dynamic if p.hooks.concerns is None or p.hooks.concerns[shape]
            ]
        return known

    def must_wait(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Return bool[n]: on which of ``nodes`` some plugin lets ``pod`` wait for what it keeps books of."""
        waits = np.zeros(len(nodes), np.bool_)
        for plugin in self.asking(int(self._facts.pods.shape[pod])):
            if plugin.hooks.must_wait is not None:
                waits |= _checked_bools(plugin, "must_wait", plugin.hooks.must_wait, pod, nodes)
        return waits

    def prepare(self, shape: int, pod: PodRow, nodes: NodeRows) -> None:
        """Make sure the static answers for ``shape`` are in ``vectors``; ``pod`` is any pod of it, ``nodes`` all nodes.

        Cost: one call per plugin and shape in a session, and O(N).
        """
        if self.prepared[shape]:
            return
        self.prepared[shape] = True
        mask = np.ones(len(nodes), np.bool_)
        score = np.zeros(len(nodes), np.float64)
        for plugin in self._static:
            hooks = plugin.hooks
            if hooks.concerns is not None and not hooks.concerns[shape]:
                continue
            if hooks.filter_nodes is not None and hooks.filter_depends is Dependence.SHAPE:
                mask &= checked_mask(plugin, pod, nodes)
            if hooks.score_nodes is not None and hooks.score_depends is Dependence.SHAPE:
                score += checked_scores(plugin, pod, nodes)
        self._facts.shapes.mask[shape] = self._masks.row_of(mask)
        self._facts.shapes.score[shape] = self._scores.row_of(score)
        self._adopt_rows()

    def answers(self, pod: PodRow, shape: int, nodes: NodeRows) -> Float64s:
        """Return float64[n]: what the plugin of a ``scored`` shape adds to scores of ``nodes``, NaN where it refuses.

        What it answers for the shape alone is in the vectors. The answer may be the plugin's own array.
        """
        (plugin,) = self.asking(shape)
        hooks = plugin.hooks
        if hooks.score_nodes is not None and hooks.score_depends is not Dependence.SHAPE:
            out = checked_scores(plugin, pod, nodes)
            if hooks.filter_nodes is None and out.flags.carray:
                return out
            out = out.copy()
        else:
            out = np.zeros(len(nodes), np.float64)
        if hooks.filter_nodes is not None and hooks.filter_depends is not Dependence.SHAPE:
            out[~checked_mask(plugin, pod, nodes)] = np.nan
        return out

    def first_answers(self, pod: PodRow, shape: int, nodes: NodeRows) -> Float64s:
        """Return ``answers`` for ``pod``, whose group is nowhere yet; made once for a ``lonely`` shape."""
        known = self._first.get(shape)
        if known is None:
            known = self._first[shape] = self.answers(pod, shape, nodes).copy()
        return known

    def prepare_lonely(self, shape: int, pod: PodRow, nodes: NodeRows) -> tuple[int, int]:
        """Return the rows of ``vectors`` for pods of a ``lonely`` shape that are the only ones of their groups.

        ``pod`` is one of them, ``nodes`` are all nodes. (-1, -1): the sum of static scores and of these answers is not
        exact, so that it must be made where the others are added.
        """
        self.prepare(shape, pod, nodes)
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
        if self._masks.table is not self.vectors.masks or self._scores.table is not self.vectors.scores:
            self.vectors = Vectors(masks=self._masks.table, scores=self._scores.table)

    def prepare_all(self, pods: PodRows, nodes: NodeRows) -> None:
        """Prepare the shapes of ``pods``."""
        shapes = self._facts.pods.shape[pods]
        for at in np.flatnonzero(~self.prepared[shapes]):
            self.prepare(int(shapes[at]), PodRow(int(pods[at])), nodes)

    def group_keys(self, groups: GroupRows, priority: Int64s, elastic: Float64s) -> Float64s:
        """Return float64[n, k]: the keys that order ``groups``, smaller first; the caller adds the unique last one."""
        columns: list[Float64s] = []
        for maker in self._key_makers:
            match maker:
                case PriorityOrder():
                    columns.append(-priority.astype(np.float64)[:, None])
                case ElasticOrder():
                    columns.append(elastic[:, None])
                case _:
                    columns.append(_keys(maker(groups), len(groups), "group_keys"))
        return np.hstack(columns) if columns else np.zeros((len(groups), 0), np.float64)

    def pod_keys(self, pods: PodRows) -> Float64s | None:
        """Return float64[n, k] that order pods, smaller first, or None when no plugin has an opinion."""
        columns = [
            _keys(p.hooks.pod_keys(pods), len(pods), "pod_keys") for p in self.plugins if p.hooks.pod_keys is not None
        ]
        return np.hstack(columns) if columns else None

    def leaves_alone(self, groups: GroupRows) -> Bools:
        """Return bool[n]: which of ``groups`` no plugin judges as a whole or splits nodes for."""
        alone = np.ones(len(groups), np.bool_)
        for hooks in (plugin.hooks for plugin in self.plugins):
            if hooks.admit_group is not None or hooks.before_group is not None:
                alone[:] = False
            if hooks.partition_nodes is not None:
                alone &= np.zeros(len(groups), np.bool_) if hooks.partitions is None else ~hooks.partitions[groups]
        return alone

    def nesting(self, groups: GroupRows) -> tuple[Callable[[GroupRow], Nest | None] | None, GroupRows]:
        """Return those of ``groups`` that only one plugin splits nodes for, and how it says by what; None: nobody can.

        Nobody judges them as a whole.
        """
        hooks = [plugin.hooks for plugin in self.plugins]
        splitting = [each for each in hooks if each.partition_nodes is not None]
        nests = [each for each in splitting if each.nest is not None]
        if len(nests) != 1 or any(each.admit_group is not None or each.before_group is not None for each in hooks):
            return None, groups[:0]
        alone = np.ones(len(groups), np.bool_)
        for each in splitting:
            mine = np.ones(len(groups), np.bool_) if each.partitions is None else each.partitions[groups]
            alone &= mine if each is nests[0] else ~mine
        return nests[0].nest, groups[alone]

    def admit_group(self, group: GroupRow, pods: PodRows) -> Verdict:
        """Return the first refusal of placing ``pods`` of ``group``."""
        for plugin in self.plugins:
            if plugin.hooks.admit_group is not None:
                verdict = plugin.hooks.admit_group(group, pods)
                if not verdict:
                    return verdict
        return ACCEPTED

    def admit_pod(self, pod: PodRow, shape: int) -> Verdict:
        """Return all refusals of placing ``pod`` anywhere, joined."""
        out = ACCEPTED
        for plugin in self.plugins:
            hooks = plugin.hooks
            if hooks.admit_pod is not None and (hooks.concerns is None or hooks.concerns[shape]):
                out = out.plus(hooks.admit_pod(pod))
        return out


def _keys(answer: object, count: int, hook: str) -> Float64s:
    """Return a plugin's keys as a table with a row for each of ``count`` things.

    Raises: PluginError when there are not as many.
    """
    keys = np.asarray(answer, np.float64)
    if keys.ndim not in (1, 2) or len(keys) != count:
        found = f"float64{list(keys.shape)}"
        raise PluginError(f"returned {found}, expected float64[{count}, k]", plugin="of the profile", hook=hook)
    return keys[:, None] if keys.ndim == 1 else keys


def checked_mask(plugin: Named, pod: PodRow, nodes: NodeRows) -> Bools:
    """Return the plugin's mask for ``nodes``; everything, if it has no filter.

    Raises: PluginError when it raised or returned something that is not bool[n].
    """
    if plugin.hooks.filter_nodes is None:
        return np.ones(len(nodes), np.bool_)
    return _checked_bools(plugin, "filter_nodes", plugin.hooks.filter_nodes, pod, nodes)


def _checked_bools(
    plugin: Named, hook: str, call: Callable[[PodRow, NodeRows], object], pod: PodRow, nodes: NodeRows
) -> Bools:
    answer = _asked(plugin, hook, call, pod, nodes)
    _check(plugin, hook, answer, np.bool_, nodes)
    return cast("Bools", answer)


def checked_scores(plugin: Named, pod: PodRow, nodes: NodeRows) -> Scores:
    """Return the plugin's scores for ``nodes``; zeros, if it has no opinion.

    Raises: PluginError when it raised or returned something that is not float64[n].
    """
    if plugin.hooks.score_nodes is None:
        return np.zeros(len(nodes), np.float64)
    answer = _asked(plugin, "score_nodes", plugin.hooks.score_nodes, pod, nodes)
    _check(plugin, "score_nodes", answer, np.float64, nodes)
    return cast("Scores", answer)


def _asked(
    plugin: Named, hook: str, call: Callable[[PodRow, NodeRows], object], pod: PodRow, nodes: NodeRows
) -> object:
    try:
        return call(pod, nodes)
    except Exception as error:
        raise PluginError(f"raised {type(error).__name__}: {error}", plugin=plugin.name, hook=hook) from error


def _check(plugin: Named, hook: str, answer: object, dtype: type[np.generic], nodes: NodeRows) -> None:
    if not isinstance(answer, np.ndarray) or answer.dtype != dtype or answer.shape != nodes.shape:
        wanted = f"{dtype.__name__.rstrip('_')}[{len(nodes)}]"
        raise PluginError(f"returned {_described(answer)}, expected {wanted}", plugin=plugin.name, hook=hook)


def _described(value: object) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


__all__ = ["Named", "NodeRow", "Policy", "checked_mask", "checked_scores", "fold_rules"]
