"""The decisions of an outcome as a plan: which pods start where, which wait for a place, which have to go and for whom.

A plan is values with names, so that it can be written down, compared with another, and found equal by its hash.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from kai.framework.decisions import Bind, Decision, Evict
from kai.model.axis import GPU, GPU_UNIT
from kai.model.rows import Int64s
from kai.simulation.cases.plan_document import KINDS, Departure, Hold, Place, digest_of
from kai.simulation.deciding.run import Cycle, Outcome


@attrs.frozen(kw_only=True)
class Plan:
    """What is decided in all cycles of an outcome, in the order of the decisions."""

    place: tuple[Place, ...]
    hold: tuple[Hold, ...]
    evict: tuple[Departure, ...]
    move: tuple[Departure, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many pods start, are promised a place, have to go, and move."""
        return {
            "start": len(self.place),
            "hold": len(self.hold),
            "evict": len(self.evict),
            "move": len(self.move),
        }

    @property
    def digest(self) -> str:
        """Return a digest that is the same for the same decisions."""
        return digest_of(self._items())

    def document(self) -> dict[str, Any]:
        """Return the plan as plain values, under the names of the output kind."""
        items = self._items()
        return {**items, "counts": dict(self.counts), "decisionHash": digest_of(items)}

    def _items(self) -> dict[str, list[dict[str, Any]]]:
        return {kind: [_values(each) for each in getattr(self, kind)] for kind in KINDS}


def _values(item: Place | Hold | Departure) -> dict[str, Any]:
    """Return a decision as plain values; one without MIG slices has no key for them, as recordings have none."""
    values = attrs.asdict(item)
    return values if item.sliced else {key: value for key, value in values.items() if key != "sliced"}


def plan_of(outcome: Outcome) -> Plan:
    """Return the plan of all cycles of an outcome."""
    place: list[Place] = []
    hold: list[Hold] = []
    gone: list[Departure] = []
    for cycle in outcome.cycles:
        weights, origins = cycle.snapshot.axis.gpu_weights(), cycle.origins
        for decision in cycle.decisions:
            common = _common(cycle, decision, weights, origins)
            if isinstance(decision, Bind):
                shared = bool(decision.devices)
                share = round(decision.gpu_portion, 3) if shared else None
                place.append(Place(**common, slots=tuple(decision.devices), share=share))
            elif isinstance(decision, Evict):
                gone.append(_departure(cycle, decision, common))
            else:
                hold.append(Hold(**common))
    return Plan(
        place=tuple(place),
        hold=tuple(hold),
        evict=tuple(each for each in gone if each.to is None),
        move=tuple(each for each in gone if each.to is not None),
    )


def _common(cycle: Cycle, decision: Decision, weights: Int64s, origins: Int64s) -> dict[str, Any]:
    snapshot, pod = cycle.snapshot, decision.pod
    request = snapshot.requests[int(snapshot.pod_shape[pod])]
    asked = int(request @ weights)
    group = int(snapshot.pod_group[pod])
    node = int(origins[pod]) if isinstance(decision, Evict) else decision.node
    return {
        "cycle": cycle.number,
        "pod": snapshot.pods[pod].key,
        "job": snapshot.groups[group].key if group >= 0 else "",
        "queue": snapshot.groups[group].queue if group >= 0 else "",
        "node": snapshot.nodes[node].name if node >= 0 else "",
        "gpus": round(asked / GPU_UNIT, 3),
        "sliced": round((asked - int(request[GPU])) / GPU_UNIT, 3),
    }


def _departure(cycle: Cycle, decision: Evict, common: Mapping[str, Any]) -> Departure:
    snapshot = cycle.snapshot
    return Departure(
        **common,
        cause=decision.cause.name,
        rule=decision.rule,
        aggressor=snapshot.groups[decision.aggressor].key if decision.aggressor >= 0 else None,
        to=snapshot.nodes[decision.moved_to].name if decision.moved_to >= 0 else None,
    )
