"""Verdicts for refusals: which queue is full, and why no node takes a pod.

``histogram`` counts how many nodes refuse a pod and for what. A kernel counts; plugins give the words.

``FullQueues`` refuses many groups at a time whose queues are full. The kernel of the fast path keeps one refusal for
each class of groups, so gangs of two sizes that alternate make it return to Python for each group. After a few such
returns, all groups are compared with the bounds of their queues as columns, and those next in order are taken off the
heap together. Nothing is placed between them, so each gets the reason that it would have got alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.opened import OpenedPlugin
from kai.deciding.engine.policy import mask_of, refusal_of, scores_of, texts_of
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.records import OVER, Objections, excess, excesses, shortage, shortages
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import FULL_QUEUES
from kai.facts.kernels import fit, place
from kai.facts.kernels.fit import over_capacity
from kai.facts.kernels.groups import describe_waiting
from kai.facts.kernels.order import pop_open
from kai.facts.model.axis import Bools, Float64s, GroupRows, Int64s, NodeRow, NodeRows, PodRow, PodRows
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.framework.verdict import ACCEPTED, Code, Fact, Histogram, NodeReason, NodeRefusal, Reason, Verdict

_IN_OTHER_WORDS: Final = frozenset({fit.ACCEPTED, fit.REFUSED_NOT_READY, *OVER})
"""Codes that are no reasons by themselves."""


def histogram(session: "Session", pod: int, nodes: NodeRows) -> Histogram:
    """Return how many of ``nodes`` refuse ``pod`` and for what, in the present state, with details if requested.

    Cost: a pass over ``nodes``; one for each of them where the parameters ask for details.
    """
    counts = _objections(session, pod, nodes)
    # Equal counts in a fixed order: a condition whose text changes is written to the cluster again.
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
    known, touches = session.objections, int(session.columns.touches[0])
    is_alone = nodes is not session.all_nodes or policy.dynamic[shape] or facts.shapes.credit[shape]
    if known is not None and known.is_of_shape and not is_alone and (known.shape, known.touches) == (shape, touches):
        return known.counts
    session.grant_credit(pod, nodes)
    codes = np.empty(len(nodes), np.int64)
    counts = np.empty(fit.CODES + len(session.snapshot.axis) + 1, np.int64)
    place.refusals(facts, session.columns, policy.rules, policy.vectors, shape, group, nodes, codes, counts)
    by_code = counts.tolist()
    over = any(by_code[code] for code in OVER)
    if over or is_alone:
        return _counted(session, pod, nodes, codes, by_code)
    # Groups of many queues wait for the same resources: the same refusal codes give the same texts, so reuse them.
    found = codes.tobytes()
    if known is None or (known.shape, known.touches, known.codes) != (shape, touches, found):
        counted = _counted(session, pod, nodes, codes, by_code)
        known = session.objections = Objections(shape, touches, found, bool((codes >= fit.SHORT_OF).all()), counted)
    return known.counts


def _counted(
    session: "Session", pod: int, nodes: NodeRows, codes: Int64s, by_code: Sequence[int]
) -> Counter[NodeReason]:
    """Count the objections of ``nodes``.

    ``codes`` [n] are the first objections of kernels; ``by_code`` counts them by code, and counts the shortages.
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
    """Return, by position, the plugins' texts for nodes that only a plugin refused; mark those nodes in ``codes``."""
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
            # Marked, so that no other plugin is asked about it: a node counts for one objection.
            codes[at] = fit.REFUSED_HOOK
    return out


def _taken_out(session: "Session", pod: int, nodes: NodeRows, codes: Int64s) -> Counter[NodeReason]:
    """Count the nodes with room that plugins exclude without a filter: scored NaN, or without a detail.

    Cost: that of the failed try, which asked the same.
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


def capacity_verdict(session: Session, portion: Portion, pods: PodRows, *, fixed_only: bool = False) -> Verdict:
    """Return whether the queues above ``portion`` may take ``pods``.

    ``fixed_only`` checks only quota, which non-preemptible pods may not exceed.
    """
    group = portion.group
    # Bounds of queues count only where a plugin divides fair shares.
    if not session.policy.rules.limits or session.facts.groups.queue[group] < 0:
        return ACCEPTED
    cpu, memory, gpu = session.limit_amounts[session.facts.pods.shape[pods]].sum(axis=0)
    code = fit.over_capacity(session.facts, session.columns, group, float(cpu), float(memory), float(gpu), fixed_only)
    return ACCEPTED if code == fit.ACCEPTED else excess(session, group, np.array([cpu, memory, gpu]), code)


def record_no_node(session: Session, portion: Portion, leaf: int, pod: int, placed: int, nodes: NodeRows) -> Reason:
    """Record why ``pod`` found no node: it is the first such pod of ``leaf``, after ``placed`` others found one."""
    facts = _pod_facts(session, portion, leaf, pod, placed)
    admitted = session.policy.admit_pod(PodRow(pod), int(session.facts.pods.shape[pod]))
    if admitted:
        facts["histogram"] = histogram(session, pod, nodes)
    else:
        facts["refusals"] = admitted.reasons
    return _record(session, portion.group, pod, facts)


def _pod_facts(session: Session, portion: Portion, leaf: int, pod: int, placed: int) -> dict[str, Fact]:
    leaves, minimum = portion.leaves, portion.minimum(leaf)
    name = session.snapshot.groups[portion.group].subgroups[leaf - portion.root].name
    return {
        "placed": placed,
        "running": portion.occupying(leaf) - placed,
        "minimum": minimum,
        "subgroup": name,
        "gang": any(portion.minimum(row) > 1 for row in leaves),
        "single_leaf": len(leaves) == 1 and name == DEFAULT_SUBGROUP,
        "extra": len(leaves) > 1 and portion.is_gang_satisfied(),
        "satisfied": portion.occupying(leaf) >= minimum,
        "pod": session.snapshot.pods[pod].key,
        "pod_row": pod,
    }


def _record(session: Session, group: int, pod: int, facts: dict[str, Fact]) -> Reason:
    reason = Reason(code=Code.NO_NODE, facts=facts)
    session.refuse(group, Verdict((reason,)))
    session.record(group).pods[pod] = reason
    return reason


PATIENCE: Final = 4
"""The number of worded refusals before groups are compared with the bounds of their queues."""
GROUPS_PER_REFUSAL: Final = 256
"""The most groups to compare per worded refusal, so that comparing stays the lesser work."""


class FullQueues:
    """The groups of one heap that their queues may not take. Shapes: G groups."""

    def __init__(self, session: Session, heap: GroupHeap, groups: GroupRows) -> None:
        """Watch ``groups``, which all have one leaf."""
        self._session = session
        self._heap = heap
        self._groups = groups
        self._patience = PATIENCE + len(groups) // GROUPS_PER_REFUSAL if session.takes(FULL_QUEUES) else -1
        self._refusals = 0

    def is_worth_passing(self) -> bool:
        """Count a worded refusal, and return whether there were enough of them for ``pass_over`` to pay."""
        self._refusals += 1
        return 0 <= self._patience < self._refusals

    def pass_over(self) -> Portion | None:
        """Pop and refuse the next groups as long as their queues are full; return the first that may be placed."""
        self._refusals = 0
        session = self._session
        count = len(session.snapshot.groups)
        amounts = np.zeros((count, 3), np.float64)
        describe_waiting(
            session.facts, session.columns, session.limit_amounts, self._groups, np.zeros(count, np.float64), amounts
        )
        full = np.zeros(count, np.bool_)
        full[self._groups] = self._exceed(amounts[self._groups])
        passed = np.empty(count + 1, np.int64)
        rules = session.policy.rules
        group = pop_open(session.facts, session.columns, rules, self._heap.records, full, passed)
        self._refuse(passed[: passed[-1]], amounts)
        return self._heap.taken(group) if group >= 0 else None

    def _exceed(self, amounts: Float64s) -> Bools:
        """Return bool[n]: which watched groups [n] with ``amounts`` [n, 3] exceed a bound of a queue above them."""
        facts, columns = self._session.facts, self._session.columns
        fixed = ~facts.groups.preemptible[self._groups]
        queues = facts.groups.queue[self._groups]
        out = np.zeros(len(queues), np.bool_)
        while (queues >= 0).any():
            # Row -1 reads the last queue: the mask below drops those answers.
            limit, quota = facts.queues.limit[queues], fit.lasting_quotas(facts, self._groups, queues)
            over_limit = (limit >= 0) & (limit < columns.queue_used[queues] + amounts)
            over_quota = (quota >= 0) & (quota < columns.queue_fixed[queues] + amounts) & fixed[:, np.newaxis]
            out |= (queues >= 0) & ((amounts > 0) & (over_limit | over_quota)).any(axis=1)
            queues = np.where(queues >= 0, facts.queues.parent[queues], -1)
        if len(facts.users.limit):
            accounts = facts.users.binding[self._groups]
            while (accounts >= 0).any():
                limit, used = facts.users.limit[accounts], columns.user_used[accounts]
                over = (amounts > 0) & (limit >= 0) & (limit < used + amounts)
                out |= (accounts >= 0) & over.any(axis=1)
                accounts = np.where(accounts >= 0, facts.users.above[accounts], -1)
        return out

    def _refuse(self, groups: GroupRows, amounts: Float64s) -> None:
        """Refuse ``groups``; all of one queue and user that want the same get the same reason."""
        if not len(groups):
            return
        session, facts = self._session, self._session.facts.groups
        users = session.facts.users
        account = users.binding[groups] if len(users.limit) else np.zeros(len(groups), np.int64)
        columns = (facts.queue[groups], account, facts.preemptible[groups], facts.ahead[groups], amounts[groups])
        # Stacked, all columns are floats; rows of queues and flags are small enough to stay exact.
        _, first, which = np.unique(np.column_stack(columns), axis=0, return_index=True, return_inverse=True)
        which = which.reshape(-1)
        for number, group in enumerate(groups[first].tolist()):
            cpu, memory, gpu = amounts[group].tolist()
            code = over_capacity(session.facts, session.columns, group, cpu, memory, gpu, False)  # noqa: FBT003 - kernels take no keywords
            (reason,) = excess(session, group, amounts[group], code).reasons
            session.refuse_together(groups[which == number], reason)
