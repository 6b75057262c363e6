"""Refuses pods that no node could hold even if it were empty.

It changes no placement: it gives such pods a clear reason, and spares searches for victims.

Source: the peer's MaxNodePoolResources predicate, which is evaluated once for each attempt on a pod, before any node.
"""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kai.framework import (
    CPU,
    GPU,
    GPU_UNIT,
    MEMORY,
    PLUGGED_GPU,
    PODS,
    Bools,
    Code,
    Extension,
    Int64s,
    PodFilter,
    PodRow,
    SessionView,
    Shape,
    Verdict,
)

LEADING_NAMES: Mapping[int, str] = {GPU: "GPU", CPU: "CPU", MEMORY: "memory"}
GIGABYTE = 10**9
MILLI = 1000


@attrs.frozen(kw_only=True)
class PoolMaximum:
    """Refuse pods that ask for more of a resource than any node has."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the refusal, for the shapes that are too large."""
        requests = session.snapshot.requests
        largest = session.facts.nodes.allocatable.max(axis=0, initial=0)
        excess = (requests > largest) & _checked(session, largest)
        # Claims may do with smaller alternatives, and with parts of GPUs.
        spared = np.array(session.snapshot.by_shape("GPUs that claims do without", _spared), np.int64)
        if spared.any():
            excess[:, GPU] &= requests[:, GPU] - spared > largest[GPU]
        concerns = excess.any(axis=1)
        if not concerns.any():
            return ()

        def admit_pod(pod: PodRow) -> Verdict:
            shape = session.shape_of(pod)
            # The peer looks at GPUs first, then at CPU and memory; the order of the others is its map's, so it is ours.
            short = min(np.flatnonzero(excess[shape]), key=lambda resource: (resource != GPU, resource))
            text = f"{_wanted(session, pod)}. {_maximum(session, pod, int(short), int(largest[short]))}"
            return Verdict.refused(Code.POD_REFUSED, rule="MaxNodePoolResources", text=text)

        return (PodFilter(admit_pod, concerns=concerns),)


def _checked(session: SessionView, largest: Int64s) -> Bools:
    """Return bool[R]: the resources that count.

    Places for pods do not, nor what only device classes offer, nor by whom GPUs are offered: nodes object to that.
    """
    classes = session.snapshot.catalog.claims.classes.values()
    offered = {name for each in classes for name in each.extended_resources}
    names = session.snapshot.axis.names
    return np.array(
        [
            row != PODS and name != PLUGGED_GPU and not (name in offered and largest[row] == 0)
            for row, name in enumerate(names)
        ],
        np.bool_,
    )


def _spared(shape: Shape) -> int:
    return shape.gpu.most_spared


def _wanted(session: SessionView, pod: PodRow) -> str:
    """Return the request of the pod in words."""
    snapshot = session.snapshot
    request = snapshot.requests[session.shape_of(pod)]
    gpus = int(request @ session.facts.nodes.gpu_weight)
    parts = [
        f"GPU: {plain(gpus / GPU_UNIT)}",
        f"CPU: {plain(request[CPU] / MILLI)} (cores)",
        f"memory: {plain(request[MEMORY] / GIGABYTE)} (GB)",
    ]
    for resource in range(PODS + 1, len(snapshot.axis)):
        if request[resource] and snapshot.axis.names[resource] != PLUGGED_GPU:
            amount, unit = _in_units(session, resource, int(request[resource]))
            mig = "mig " if session.facts.nodes.mig_resource[resource] else ""
            parts.append(f"{mig}{snapshot.axis.names[resource]}: {plain(amount)}" + (f" ({unit})" if unit else ""))
    return f"The pod {snapshot.pods[pod].key} requires {', '.join(parts)}"


def _maximum(session: SessionView, pod: PodRow, resource: int, largest: int) -> str:
    """Return how much of a resource one node has at most, in words."""
    group = session.group_of(pod)
    pool = (session.snapshot.groups[group].node_pool if group >= 0 else "") or "default"
    name = LEADING_NAMES.get(resource, session.snapshot.axis.names[resource])
    if largest == 0:
        return f"No node in the {pool} node-pool has {name} resources"
    amount, unit = _in_units(session, resource, largest)
    most = f"{plain(amount)} {unit}".rstrip()
    return f"Max {name} resources available in a single node in the {pool} node-pool is topped at {most}"


def _in_units(session: SessionView, resource: int, amount: int) -> tuple[float, str]:
    """Return an amount in the unit that people use, and the unit's name if it needs one."""
    if resource == CPU:
        return amount / MILLI, "cores"
    if session.snapshot.axis.is_bytes(resource):
        return amount / GIGABYTE, "GB"
    return (float(amount), "") if session.facts.nodes.mig_resource[resource] else (amount / MILLI, "")


def plain(amount: float) -> str:
    """Return a number with at most three decimals, cut rather than rounded, as the peer writes it."""
    whole, decimals = f"{amount:.6f}".split(".")
    return f"{whole}.{decimals[:3]}".rstrip("0").rstrip(".")
