"""How many nodes refuse a pod, and for what: what a kernel counts, with the words of plugins."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.engine.objections import OVER, Objections, excesses, shortage, shortages
from kai.engine.opened import OpenedPlugin
from kai.engine.policy import mask_of, refusal_of, scores_of, texts_of
from kai.framework.verdict import Histogram, NodeReason, NodeRefusal
from kai.kernels import fit, place
from kai.model.rows import Bools, Int64s, NodeRow, NodeRows, PodRow

if TYPE_CHECKING:
    from kai.engine.session import Session

_IN_OTHER_WORDS: Final = frozenset({fit.ACCEPTED, fit.REFUSED_NOT_READY, *OVER})
"""Codes that are no reasons by themselves."""


def histogram(session: "Session", pod: int, nodes: NodeRows) -> Histogram:
    """Return how many of ``nodes`` refuse ``pod`` for what, as things stand; each on its own too, if that is asked for.

    Cost: a pass over ``nodes``; one for each of them where the parameters ask for details.
    """
    counts = _objections(session, pod, nodes)
    ordered = sorted(((count, reason) for reason, count in counts.items()), key=lambda item: (-item[0], item[1]))
    found = Histogram(counts=tuple(ordered), nodes=len(nodes))
    return _one_by_one(session, found, pod, nodes) if session.parameters.detailed_fit_errors else found


def _one_by_one(session: "Session", found: Histogram, pod: int, nodes: NodeRows) -> Histogram:
    group = int(session.facts.pods.group[pod])
    together = group >= 0 and int((session.facts.pods.group == group).sum()) > 1
    refusals = (_refusal(session, pod, node) for node in nodes.tolist())
    return attrs.evolve(found, by_node=tuple(each for each in refusals if each.reasons), together=together)


def _refusal(session: "Session", pod: int, node: int) -> NodeRefusal:
    shape = int(session.facts.pods.shape[pod])
    found = sorted(_objections(session, pod, np.array([node], np.int64)))
    reasons = tuple((reason, shortage(session, shape, node, reason)) for reason in found)
    return NodeRefusal(node=session.snapshot.nodes[node].name, reasons=reasons)


def _objections(session: "Session", pod: int, nodes: NodeRows) -> Mapping[NodeReason, int]:
    facts, policy = session.facts, session.policy
    shape, group = int(facts.pods.shape[pod]), int(facts.pods.group[pod])
    policy.prepare(shape, PodRow(pod), session.all_nodes)
    session.grant_credit(pod, nodes)
    codes = np.empty(len(nodes), np.int64)
    counts = np.empty(fit.CODES + len(session.snapshot.axis) + 1, np.int64)
    place.refusals(facts, session.columns, policy.rules, policy.vectors, shape, group, nodes, codes, counts)
    by_code = counts.tolist()
    over = any(by_code[code] for code in OVER)
    if over or nodes is not session.all_nodes or policy.dynamic[shape] or facts.shapes.credit[shape]:
        return _counted(session, pod, nodes, codes, by_code)
    # Groups of many queues wait for the same: nodes that refuse for the same reasons say it in the same words.
    known, touches, found = session.objections, int(session.columns.touches[0]), codes.tobytes()
    if known is None or (known.shape, known.touches, known.codes) != (shape, touches, found):
        counted = _counted(session, pod, nodes, codes, by_code)
        known = session.objections = Objections(shape, touches, found, counted)
    return known.counts


def _counted(
    session: "Session", pod: int, nodes: NodeRows, codes: Int64s, by_code: Sequence[int]
) -> Counter[NodeReason]:
    """Return how many of ``nodes`` object to what.

    ``codes`` [n] are the first objections of kernels, ``by_code`` how many there are of each, and of shortages.
    """
    facts = session.facts
    shape, group = int(facts.pods.shape[pod]), int(facts.pods.group[pod])
    masked, counts = by_code[fit.REFUSED_MASK], Counter[NodeReason]()
    if masked or by_code[fit.ACCEPTED]:
        counts.update(_words(session, pod, nodes, codes).values())
        counts.update(_taken_out(session, pod, nodes, codes))
        masked = int(np.count_nonzero(codes == fit.REFUSED_MASK))
    if by_code[fit.REFUSED_NOT_READY]:
        counts.update(_unready(session, node) for node in nodes[codes == fit.REFUSED_NOT_READY].tolist())
    counts.update(shortages(session, by_code[fit.CODES :]))
    if any(by_code[code] for code in OVER):
        counts.update(excesses(session, shape, group, nodes, codes))
    for code, count in enumerate(by_code[: fit.CODES]):
        found = masked if code == fit.REFUSED_MASK else count
        if found and code not in _IN_OTHER_WORDS:
            counts[NodeReason(code=code)] += found
    return counts


def _unready(session: "Session", node: int) -> NodeReason:
    facts = session.snapshot.nodes[node]
    if facts.unschedulable or facts.deleting:
        subject = "unschedulable" if facts.unschedulable else "deleting"
    else:
        subject = facts.failing_conditions[0]
    return NodeReason(code=fit.REFUSED_NOT_READY, subject=subject)


def _words(session: "Session", pod: int, nodes: NodeRows, codes: Int64s) -> dict[int, NodeReason]:
    """Return, by position, the words of plugins for nodes that only a plugin refused; marks those in ``codes``."""
    shape = int(session.facts.pods.shape[pod])
    out: dict[int, NodeReason] = {}
    for plugin in session.policy.plugins:
        if plugin.node_filter is None or not plugin.is_asked(shape):
            continue
        open_to_it = np.array(
            [at for at in np.flatnonzero((codes == fit.ACCEPTED) | (codes == fit.REFUSED_MASK)) if at not in out],
            np.int64,
        )
        if not len(open_to_it):
            continue
        refused = open_to_it[~mask_of(plugin, PodRow(pod), nodes[open_to_it])]
        if not len(refused):
            continue
        for at, text in zip(refused, texts_of(plugin, PodRow(pod), nodes[refused]), strict=True):
            out[int(at)] = NodeReason(code=fit.REFUSED_HOOK, text=text)
            codes[at] = fit.REFUSED_HOOK
    return out


def _taken_out(session: "Session", pod: int, nodes: NodeRows, codes: Int64s) -> Counter[NodeReason]:
    """Return how many nodes with room plugins take out that no filter refuses: scored with NaN, or without a detail.

    Cost: what the try that failed took to ask the same.
    """
    counts, left = Counter[NodeReason](), nodes[codes == fit.ACCEPTED]
    shape = int(session.facts.pods.shape[pod])
    for plugin in session.policy.plugins:
        if not len(left):
            break
        if not plugin.is_asked(shape):
            continue
        scored = f"node(s) were scored with NaN by plugin {plugin.name}"
        for text, taken_out in ((scored, _scored_out), (refusal_of(plugin), _without_detail)):
            out = taken_out(plugin, PodRow(pod), left)
            if out.any():
                counts[NodeReason(code=fit.REFUSED_HOOK, text=text)] += int(out.sum())
                left = left[~out]
    return counts


def _scored_out(plugin: OpenedPlugin, pod: PodRow, nodes: NodeRows) -> Bools:
    out: Bools = np.isnan(scores_of(plugin, pod, nodes))
    return out


def _without_detail(plugin: OpenedPlugin, pod: PodRow, nodes: NodeRows) -> Bools:
    choose = None if plugin.placement is None else plugin.placement.choose
    if choose is None:
        return np.zeros(len(nodes), np.bool_)
    return np.array([choose(pod, NodeRow(node)) is None for node in nodes.tolist()], np.bool_)
