"""Refuse nodes of racks that would draw more than their cap.

A ``RackPowerCap`` bears the name of its rack, which is the value of a label of nodes:

    apiVersion: power.example.com/v1
    kind: RackPowerCap
    metadata: {name: rack-a}
    spec: {watts: 40000}

A rack without one may draw anything. A rack whose cap cannot be read takes nothing that draws power.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs
import numpy as np
from kai.framework import (
    GPU,
    GPU_UNIT,
    Bools,
    Effect,
    Extension,
    Int64s,
    NodeFilter,
    NodeRow,
    NodeRows,
    Objects,
    Placement,
    PodRow,
    RawObject,
    SessionView,
)

from kai_rack_power.kernels import within_caps
from kai_rack_power.metrics import DRAWN

NO_CAP = -1
REFUSED = "node(s) are in a rack that would exceed its power cap"


def watts_of(raw: RawObject) -> int:
    """Return what the rack may draw."""
    watts = raw.spec.get("watts")
    if not isinstance(watts, int) or watts < 0:
        raise ValueError(f"spec.watts: found {watts!r}, expected a whole number, 0 or more")
    return watts


CAPS = Objects(api_version="power.example.com/v1", kind="RackPowerCap", plural="rackpowercaps", read=watts_of)


@attrs.frozen(kw_only=True)
class RackPower:
    """Keep racks below their ``RackPowerCap``; a GPU draws ``per_gpu`` watts, a rack is a value of ``label``."""

    reads: ClassVar = (CAPS,)
    per_gpu: int = attrs.field(default=700, validator=attrs.validators.ge(0))
    label: str = "topology.kubernetes.io/rack"

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Add up what racks draw now and keep the sums in a tracked column."""
        racks = session.label_codes(self.label).copy()
        caps = self._caps(session, racks)
        draws = np.round(session.requested[:, GPU] * self.per_gpu / GPU_UNIT).astype(np.int64)
        pods = session.placed(np.arange(len(session.snapshot.pods)))
        pods = pods[session.columns.node[pods] >= 0]
        sums = np.zeros(len(caps), np.int64)
        np.add.at(sums, racks[session.columns.node[pods]], draws[session.facts.pods.shape[pods]])
        drawn = session.track(sums)

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            fits = np.empty(len(nodes), np.bool_)
            within_caps(racks, caps, drawn.values, int(draws[session.shape_of(pod)]), nodes, fits)
            return fits

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            return [REFUSED] * len(nodes)

        def effects(pod: PodRow, node: NodeRow, detail: object) -> Sequence[Effect]:
            return [Effect(drawn, int(racks[node]), int(draws[session.shape_of(pod)]))]

        def report() -> Mapping[int, Mapping[str, object]]:
            DRAWN.watts = {name: int(drawn.values[code]) for code, name in self._names(session, racks).items() if code}
            return {}

        return [
            NodeFilter(filter_nodes, concerns=draws > 0, explain=explain_nodes),
            Placement(effects=effects, report=report, concerns=draws > 0),
        ]

    def _names(self, session: SessionView, racks: Int64s) -> dict[int, str]:
        """Return the name of each rack by its code; code 0 stands for nodes without the label."""
        codes, first = np.unique(racks, return_index=True)
        nodes = [session.snapshot.nodes[node] for node in first.tolist()]
        return {code: node.labels.get(self.label, "") for code, node in zip(codes.tolist(), nodes, strict=True)}

    def _caps(self, session: SessionView, racks: Int64s) -> Int64s:
        """Return the cap of each rack by its code."""
        caps = np.full(racks.max(initial=0) + 1, NO_CAP, np.int64)
        values = session.values(CAPS)
        for code, name in self._names(session, racks).items():
            watts = values.get(name, NO_CAP)
            caps[code] = watts if isinstance(watts, int) else 0
        return caps
