"""What changes in other node pools: other schedulers decide there, so it hurries no cycle here."""

from __future__ import annotations

from typing import Any

import attrs

from kai.api import names
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.port import Change, Store
from kai.intake import IntakeSettings


@attrs.frozen
class OtherPools:
    """Tells changes in other pools from those that matter here."""

    store: Store
    intake: IntakeSettings

    def hold(self, change: Change[Any]) -> bool:
        """Return whether an object is of other pools alone, before and after; False where the store leaves a doubt.

        A pod that has neither a group nor a node is of no pool: what gives it one is a change of its own.
        Cost: 1 us; two objects are looked up for a pod.
        """
        return all(self._has(side) for side in (change.before, change.after) if side is not None)

    def _has(self, side: object) -> bool:
        match side:
            case Pod():
                return self._has_pod(side)
            case Node() | PodGroup() | BindRequest():
                return not self.intake.owns(side.metadata.labels)
        return False

    def _has_pod(self, pod: Pod) -> bool:
        where: list[Node | PodGroup | None] = []
        if pod.spec.node_name:
            where.append(self.store.get(Node, pod.spec.node_name))
        group = pod.metadata.annotations.get(names.POD_GROUP)
        if group:
            where.append(self.store.get(PodGroup, group, pod.metadata.namespace))
        return all(each is not None and not self.intake.owns(each.metadata.labels) for each in where)
