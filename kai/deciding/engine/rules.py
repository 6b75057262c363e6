"""The score terms and checks of all plugins as one value for kernels, and two checks that are always on.

Nodes that refused a pod at its bind are not tried again for it.

Pods whose GPU request makes no sense are refused. Otherwise such a pod would be placed as if it had requested no GPU:
it would run, and find none.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from kai.deciding.engine.opened import OpenedPlugin
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.fragments import Mix, no_mix
from kai.facts.model.axis import Bools, NodeRows, PodRow
from kai.framework.hooks import Dependence, NodeFilter, PodFilter
from kai.framework.terms import (
    Availability,
    CpuOnlyNodes,
    Density,
    DeviceOrder,
    FairShares,
    Fragmentation,
    SharedDevices,
    Term,
)
from kai.framework.verdict import Code, Verdict
from kai.framework.view import SessionView


class FoldedRules(NamedTuple):
    """The rules of a session in three forms."""

    rules: Rules
    waiting: Rules
    """For nodes on which a pod has to wait: availability rewards nodes where it can start now."""
    free: Rules
    """Without the limits of queues."""

    @classmethod
    def of(cls, rules: Rules) -> "FoldedRules":
        """Return the three forms of ``rules``."""
        return cls(rules, rules.replace(availability=0.0), rules.replace(limits=False))


def fold_rules(plugins: Sequence[OpenedPlugin], elastic_key: int) -> FoldedRules:
    """Return the sum of all score terms, and which checks are on.

    If a plugin computes what stays usable of a node, terms that only estimate it are ignored.
    """
    terms = [term for plugin in plugins for term in plugin.terms]
    fair = any(isinstance(term, FairShares) for term in terms)
    fragmentation = next((term for term in terms if isinstance(term, Fragmentation)), None)
    if fragmentation is not None:
        terms = [term for term in terms if not isinstance(term, Density | SharedDevices | DeviceOrder)]
    if fragmentation is None:
        return _with_weights(*_weights(terms).values(), fair=fair, elastic_key=elastic_key)
    mix = _mix(fragmentation)
    return FoldedRules.of(Rules(limits=fair, fair_order=fair, elastic_key=elastic_key, mix=mix, **_weights(terms)))


_WEIGHTS: Final = (
    "binpack_cpu",
    "binpack_gpu",
    "spread_cpu",
    "spread_gpu",
    "cpu_only",
    "availability",
    "sharing",
    "pack_slots",
    "spread_slots",
)


@lru_cache(maxsize=16)
def _with_weights(*weights: float, fair: bool, elastic_key: int) -> FoldedRules:
    """Return rules with these weights. Sessions share them, because each new struct costs memory for kernels."""
    by_name = dict(zip(_WEIGHTS, weights, strict=True))
    return FoldedRules.of(Rules(limits=fair, fair_order=fair, elastic_key=elastic_key, mix=no_mix(), **by_name))


def _weights(terms: Sequence[Term]) -> dict[str, float]:
    weights = dict.fromkeys(_WEIGHTS, 0.0)
    for term in terms:
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
            # The other terms are no weights: kernels get shares and the mix as arrays of their own.
            case _:
                pass
    return weights


def _mix(term: Fragmentation) -> Mix:
    return Mix(
        weight=term.weight,
        shapes=term.shapes,
        shares=term.shares,
        allowed=term.allowed,
        gpu_by_cpu=term.gpu_by_cpu,
        gpu_by_memory=term.gpu_by_memory,
        pressure=term.pressure,
    )


NAME = "refusals"


def refusing_nodes(session: SessionView) -> list[OpenedPlugin]:
    """Return a filter, in the form of one more plugin, for shapes of pods that a node refused, if any."""
    if not session.snapshot.past.refused:
        return []
    shapes = session.snapshot.shapes
    refused = session.snapshot.by_shape("shapes that nodes refused", lambda shape: bool(shape.constraints.refusing))
    concerns = np.array(refused, np.bool_)
    if not concerns.any():
        return []
    rows = session.snapshot.node_rows

    def refusals(pod: PodRow) -> dict[int, str]:
        found = shapes[session.shape_of(pod)].constraints.refusing
        # A node that refused the pod may have left the cluster since.
        return {rows[node]: reason for node, reason in found if node in rows}

    def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
        mask: Bools = ~np.isin(nodes, list(refusals(pod)))
        return mask

    def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
        said = refusals(pod)
        return [f"node(s) refused it: {said[node]}" for node in nodes.tolist()]

    filters = NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes)
    return [OpenedPlugin(name=NAME, concerns=concerns, node_filter=filters)]


RULE = "GpuRequest"


def unusable_requests(session: SessionView) -> list[OpenedPlugin]:
    """Return the check of GPU requests in the form of one more plugin; empty if every request makes sense.

    Cost: one look at each new shape.
    """
    refusals = session.snapshot.by_shape("refusals of shapes", lambda shape: shape.gpu.refusal)
    if not any(refusals):
        return []

    def admit_pod(pod: PodRow) -> Verdict:
        return Verdict.refused(Code.POD_REFUSED, rule=RULE, text=refusals[session.shape_of(pod)])

    concerns = np.array(list(map(bool, refusals)), np.bool_)
    return [OpenedPlugin(name=RULE, concerns=concerns, pod_filter=PodFilter(admit_pod))]
