"""Charges of queues for the devices of claims: each claim counts once, and parts of devices count as parts.

The engine charges each pod with the GPUs that its claims request. This module gives back to a queue what another pod of
the queue already pays for the same claim, and the difference where devices turn out to be smaller parts of GPUs than
the engine knows. If pods of two queues use one claim, each queue pays once.

The charge of a claim is a function of its users, so the order in which pods come and leave makes no difference.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kai.framework import GPU, GPU_UNIT, SHARED_RESOURCES, Effect, Int64s, NodeRow, PodRow, SessionView, Status, Tracked
from kai.framework.claims import Claim, ClaimPlacement
from kai.plugins.dra.inventory import Inventory

ClaimKey = tuple[str, str]


class Charges:
    """The pods of each queue that are charged for each claim."""

    def __init__(
        self,
        view: SessionView,
        inventory: Inventory,
        claims: Mapping[ClaimKey, Claim],
        concerned: Iterable[PodRow],
        assigned: Mapping[PodRow, ClaimPlacement],
    ) -> None:
        """Begin with the pods that are charged; ``concerned`` are all that refer to claims."""
        self._view = view
        self._inventory = inventory
        self._claims = claims
        self._at = self._places(concerned)
        counts, fixed = np.zeros(len(self._at), np.int64), np.zeros(len(self._at), np.int64)
        self._columns = tuple(view.engine_column(name) for name in ("queue_used", "queue_fixed"))
        self._models = view.engine_column("queue_models")
        self.corrections: list[Effect] = []
        """What changes in the books of queues when the session opens."""
        for pod, placement in assigned.items():
            if view.snapshot.pod_status[pod] == Status.RELEASING:
                continue
            node = NodeRow(int(view.snapshot.pod_node[pod]))
            self.corrections += self._for_named(pod, node, placement)
            for table, column, at, delta in self._deltas(pod, placement, (counts, fixed), 0):
                table[at] += 1
                self.corrections += self._of_queues(pod, node, column, delta)
        self._counts = tuple(view.track(table) for table in (counts, fixed))
        """[places] Pods that are charged, and the non-preemptible ones among them."""

    def _places(self, concerned: Iterable[PodRow]) -> Mapping[tuple[ClaimKey, int], int]:
        """Return the row of each claim with GPUs and each queue with a pod that refers to it."""
        out: dict[tuple[ClaimKey, int], int] = {}
        snapshot = self._view.snapshot
        for pod in concerned:
            queue = self._queue(pod)
            for reference in snapshot.shapes[int(snapshot.pod_shape[pod])].constraints.claims:
                key = (snapshot.pods[pod].namespace, reference.claim)
                if queue >= 0 and key in self._claims and self._claims[key].gpus:
                    out.setdefault((key, queue), len(out))
        return out

    def _queue(self, pod: PodRow) -> int:
        group = self._view.group_of(pod)
        return -1 if group < 0 else int(self._view.queue_of(group))

    def effects(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement, *, held: bool) -> list[Effect]:
        """Return the refund in the books of queues for a pod that gets its claims on ``node`` (or has them by now)."""
        if self._view.columns.status[pod] == Status.RELEASING:
            return []
        out: list[Effect] = []
        tables = tuple(each.values for each in self._counts)
        for table, column, at, delta in self._deltas(pod, placement, tables, int(held)):
            counted = self._counts[0] if table is tables[0] else self._counts[1]
            out += [Effect(counted, at, 1), *self._of_queues(pod, node, column, delta)]
        return out + self._for_named(pod, node, placement)

    def _for_named(self, pod: PodRow, node: NodeRow, placement: ClaimPlacement) -> list[Effect]:
        """Return the refund for devices that the pod requests by the name of their class; no other pod has them."""
        group, shape = self._view.group_of(pod), self._view.snapshot.shapes[int(self._view.snapshot.pod_shape[pod])]
        devices = placement.for_resources() if shape.gpu.named else ()
        if group < 0 or not devices:
            return []
        delta = shape.gpu.named_not_had - self._inventory.gpus.not_had(devices)
        is_fixed = not self._view.facts.groups.preemptible[group]
        return [each for column in self._columns[: 1 + is_fixed] for each in self._of_queues(pod, node, column, delta)]

    def _deltas(
        self, pod: PodRow, placement: ClaimPlacement, tables: Sequence[Int64s], own: int
    ) -> Iterable[tuple[Int64s, Tracked, int, int]]:
        """Yield for each claim and column of the books the table that counts its pods, its row, and the deduction.

        ``own`` is the number of counted pods that are ``pod`` itself.
        """
        queue, group = self._queue(pod), self._view.group_of(pod)
        if queue < 0:
            return
        gpus = self._inventory.gpus
        is_fixed = not self._view.facts.groups.preemptible[group]
        for each in {each.claim: each for each in placement.claims if each.reference}.values():
            at = self._at.get((each.claim, queue))
            if at is None:
                continue
            claim = self._claims[each.claim]
            whole, known = claim.gpus * GPU_UNIT, gpus.known_not_had(claim)
            for table, column in zip(tables[: 1 + is_fixed], self._columns, strict=False):
                others = int(table[at]) - own
                # If another pod of the queue is charged for the claim already, this one costs nothing.
                back = whole if others > 0 else min(whole, gpus.not_had(each.devices))
                yield table, column, at, known - back

    def _of_queues(self, pod: PodRow, node: NodeRow, column: Tracked, delta: int) -> list[Effect]:
        queue, out = self._queue(pod), list[Effect]()
        facts = self._view.facts
        model = int(facts.nodes.model[node]) if column is self._columns[0] and node >= 0 else -1
        while delta and queue >= 0:
            out.append(Effect(column, queue * SHARED_RESOURCES + GPU, delta))
            if model >= 0:
                out.append(Effect(self._models, queue * facts.queues.model_limit.shape[1] + model, delta))
            queue = int(self._view.facts.queues.parent[queue])
        return out
