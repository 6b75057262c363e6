"""The terms of all plugins, folded into the one value that kernels evaluate."""

from collections.abc import Sequence

from kai.engine.opened import OpenedPlugin
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
from kai.kernels.fit import Rules
from kai.kernels.fragments import Mix, no_mix


def fold_rules(plugins: Sequence[OpenedPlugin], elastic_key: int) -> Rules:
    """Return the sum of all score terms, and which checks are on.

    Where one plugin says what stays usable of a node, terms that only guess at it say nothing.
    """
    terms = [term for plugin in plugins for term in plugin.terms]
    fair = any(isinstance(term, FairShares) for term in terms)
    fragmentation = next((term for term in terms if isinstance(term, Fragmentation)), None)
    if fragmentation is not None:
        terms = [term for term in terms if not isinstance(term, Density | SharedDevices | DeviceOrder)]
    mix = no_mix() if fragmentation is None else _mix(fragmentation)
    return Rules(limits=fair, fair_order=fair, elastic_key=elastic_key, mix=mix, **_weights(terms))


def _weights(terms: Sequence[Term]) -> dict[str, float]:
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
