"""Putting refusals into verdicts: which queue is full, and why no node takes a pod."""

import numpy as np

from kai.engine.histogram import histogram
from kai.engine.objections import excess
from kai.engine.portion import Portion
from kai.engine.session import Session
from kai.framework.verdict import ACCEPTED, Code, Fact, Reason, Verdict
from kai.kernels import fit
from kai.model.podgroup import DEFAULT_SUBGROUP
from kai.model.rows import NodeRows, PodRow, PodRows


def capacity_verdict(session: Session, portion: Portion, pods: PodRows, *, fixed_only: bool = False) -> Verdict:
    """Return whether the queues above ``portion`` may take ``pods``.

    ``fixed_only`` checks what cannot be taken back alone.
    """
    group = portion.group
    if not session.policy.rules.limits or session.facts.groups.queue[group] < 0:
        return ACCEPTED
    cpu, memory, gpu = session.limit_amounts[session.facts.pods.shape[pods]].sum(axis=0)
    code = fit.over_capacity(session.facts, session.columns, group, float(cpu), float(memory), float(gpu), fixed_only)
    return ACCEPTED if code == fit.ACCEPTED else excess(session, group, np.array([cpu, memory, gpu]), code)


def record_no_node(session: Session, portion: Portion, leaf: int, pod: int, placed: int, nodes: NodeRows) -> Reason:
    """Remember why ``pod``, the first of ``leaf`` that found no node after ``placed`` others did, found none."""
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
