"""How many nodes refuse a pod, and for what: what a kernel counts, with the words of plugins."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.engine.objections import OVER, Objections, Spare, excesses, shortage, shortages, spare_of
from kai.engine.policy import mask_of
from kai.framework.verdict import Histogram, NodeReason, NodeRefusal
from kai.kernels import fit, place
from kai.model.rows import Int64s, NodeRows, PodRow

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
    place.refusals(facts, session.columns, policy.rules, policy.vectors, shape, group, nodes, codes)
    over = any((codes == code).any() for code in OVER)
    if over or nodes is not session.all_nodes or policy.dynamic[shape] or facts.shapes.credit[shape]:
        return _counted(session, pod, nodes, codes)
    # Groups of many queues wait for the same: nodes that refuse for the same reasons say it in the same words.
    known, touches, found = session.objections, int(session.columns.touches[0]), codes.tobytes()
    if known is None or (known.shape, known.touches, known.codes) != (shape, touches, found):
        known = session.objections = Objections(shape, touches, found, _counted(session, pod, nodes, codes))
    return known.counts


def _counted(session: "Session", pod: int, nodes: NodeRows, codes: Int64s) -> Counter[NodeReason]:
    """Return how many of ``nodes`` object to what; ``codes`` [n] are the first objections of kernels."""
    facts = session.facts
    shape, group = int(facts.pods.shape[pod]), int(facts.pods.group[pod])
    words = _words(session, pod, nodes, codes)
    counts = Counter(words.values())
    if words:
        untold = np.ones(len(nodes), np.bool_)
        untold[list(words)] = False
        nodes, codes = nodes[untold], codes[untold]
    by_code = np.bincount(codes, minlength=fit.SHORT_OF)
    if by_code[fit.REFUSED_NOT_READY]:
        counts.update(_unready(session, node) for node in nodes[codes == fit.REFUSED_NOT_READY].tolist())
    if len(by_code) > fit.SHORT_OF:
        short = codes >= fit.SHORT_OF
        counts.update(shortages(session, _spare(session), shape, nodes[short], codes[short]))
    if any(by_code[code] for code in OVER):
        counts.update(excesses(session, shape, group, nodes, codes))
    for code in np.flatnonzero(by_code[: fit.SHORT_OF]).tolist():
        if code not in _IN_OTHER_WORDS:
            counts[NodeReason(code=code)] += int(by_code[code])
    return counts


def _spare(session: "Session") -> Spare:
    """Return what pods leave of each node, put together again if something changed."""
    if session.spare is None or session.spare.touches != session.columns.touches[0]:
        session.spare = spare_of(session)
    return session.spare


def _unready(session: "Session", node: int) -> NodeReason:
    facts = session.snapshot.nodes[node]
    subject = "unschedulable" if facts.unschedulable else facts.failing_conditions[0]
    return NodeReason(code=fit.REFUSED_NOT_READY, subject=subject)


def _words(session: "Session", pod: int, nodes: NodeRows, codes: Int64s) -> dict[int, NodeReason]:
    """Return, by position, the words of plugins for nodes that only a plugin refused; marks those in ``codes``."""
    shape = int(session.facts.pods.shape[pod])
    out: dict[int, NodeReason] = {}
    if not ((codes == fit.ACCEPTED) | (codes == fit.REFUSED_MASK)).any():
        return out
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
        explain = plugin.node_filter.explain
        texts = explain(PodRow(pod), nodes[refused]) if explain else [f"refused by {plugin.name}"] * len(refused)
        for at, text in zip(refused, texts, strict=True):
            out[int(at)] = NodeReason(code=fit.REFUSED_HOOK, text=text)
            codes[at] = fit.REFUSED_HOOK
    return out
