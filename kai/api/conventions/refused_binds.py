"""Pods whose bind was refused and that rest until the next try: how conditions say so, and how cycles are shown them.

The scheduler that backs off writes the condition; commands and pages that decide anew read it, so that they do not say
of such a pod that it starts now. Both show it to a cycle with a gate that exists in memory only, as those are shown
that ask for too much (`kai.api.conventions.caps`): the pod waits, and its gate says why.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.api import names
from kai.api.kubernetes.meta import Condition
from kai.api.kubernetes.pod import Pod, PodSchedulingGate, condition_of

REASON: Final = "BindRefused"
GATE: Final = "kai.scheduler/bind-refused "
"""How the gate begins; the rest says by what, how often, and when it is tried again. No gate of a user has a space."""


def refusal_text(why: str, times: int, again: str) -> str:
    """Return what a pod waits for whose bind was refused; ``again`` is when it is tried again."""
    often = "once" if times == 1 else f"{times} times"
    return f"the bind was refused {often}: {' '.join(why.split()).rstrip('.')}; the next try is at {again}"


def at_rest(pod: Pod, text: str) -> Pod:
    """Return a pod as cycles are shown it while it rests."""
    gates = (*pod.spec.scheduling_gates, PodSchedulingGate(name=f"{GATE}{text}"))
    return attrs.evolve(pod, spec=attrs.evolve(pod.spec, scheduling_gates=gates))


def refusal_told(pod: Pod) -> str:
    """Return what conditions say about a refused bind for which a pod rests; "" if they say nothing, or nothing now.

    The scheduler's own word is the last one. Until it has spoken the binder's counts, unless the scheduler said
    something else since.
    """
    scheduled, bound = (condition_of(pod, kind) for kind in (names.POD_SCHEDULED_CONDITION, names.POD_BOUND_CONDITION))
    if pod.spec.node_name:
        return ""
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == REASON:
        return f"{scheduled.message[:1].lower()}{scheduled.message[1:]}".rstrip(".")
    if bound is None or bound.status != "False" or bound.reason != names.BINDING_ERROR_REASON:
        return ""
    if scheduled is not None and _told(scheduled) > _told(bound):
        return ""
    return f"the bind was refused: {bound.message.rstrip('.')}"


def _told(condition: Condition) -> float:
    return max(condition.last_probe_time or 0.0, condition.last_transition_time or 0.0)


__all__ = ["GATE", "REASON", "at_rest", "refusal_text", "refusal_told"]
