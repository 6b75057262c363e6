"""Node events: failures and returns, drains, taints and additions, as planned, at random or by autoscaling."""

from __future__ import annotations

from collections import Counter
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.kubernetes.node import Node, Taint
from kai.history.facts import Ended
from kai.lab.virtual.running.embedded_cluster import EmbeddedCluster
from kai.lab.virtual.running.live_jobs import Calendar, State
from kai.lab.virtual.running.records import Records
from kai.lab.virtual.running.workloads import Workloads
from kai.lab.virtual.scenes.annotations import exponential, generator
from kai.lab.virtual.scenes.scene import Autoscale, Change, Faults, NodeEvent, Scene

if TYPE_CHECKING:
    import random

_TINY: Final = 1e-6


@attrs.define(eq=False)
class Nodes:
    """All nodes of the embedded cluster, and their future events."""

    calendar: Calendar
    cluster: EmbeddedCluster
    workloads: Workloads
    records: Records
    failures: int = 0
    _down: dict[str, Node] = attrs.field(factory=dict)
    _drains: Counter[str] = attrs.field(factory=Counter)
    """Number of active drains by node."""
    _pools: list[_Pool] = attrs.field(factory=list)

    def begin(self, scene: Scene) -> None:
        """Enter the node events of the scene into the calendar."""
        for name in self.cluster.nodes:
            self._notify(name)
        for event in scene.events:
            self.calendar.enter(event.at, partial(self._happen, event))
        for faults in scene.faults:
            for name in faults.nodes:
                # A generator for each node: faults of one node must not depend on how many others there are.
                numbers = generator(scene.seed, "faults", name)
                self._enter_fault(name, faults, numbers)
        self._pools = [_Pool(rule=rule) for rule in scene.autoscale]
        for pool in self._pools:
            for _ in range(pool.rule.least):
                self._provide(pool)

    def _happen(self, event: NodeEvent) -> None:
        for node in event.added:
            self._put(node)
        for name in event.nodes:
            if event.change is Change.FAIL:
                self._fail(name, event.seconds)
            elif event.change is Change.DRAIN:
                self._drain(name, event.seconds)
            elif event.taint is not None:
                self._taint(name, event.taint, event.seconds)

    # --- One node --------------------------------------------------------------------------------------------------

    def _fail(self, name: str, seconds: float | None) -> None:
        """Remove a node immediately, with its pods."""
        node = self.cluster.node(name)
        if node is None:
            return
        self.failures += 1
        self._down[name] = node
        self._remove(name)
        # A list, as losing a pod removes it from the table and may create another.
        for life in [each for each in self.workloads.lives.values() if each.node == name]:
            self.workloads.lose(life)
        if seconds is not None:
            self.calendar.enter(self.calendar.now + seconds, partial(self._come_back, name))

    def _come_back(self, name: str) -> None:
        node = self._down.pop(name, None)
        if node is not None:
            self._put(node)

    def _drain(self, name: str, seconds: float | None) -> None:
        """Cordon a node, and terminate its pods; a node that is down comes back cordoned."""
        node = self._known(name)
        if node is None:
            return
        if node.spec.unschedulable and not self._drains[name]:
            self._drains[name] += 1  # cordoned before by other means: it stays cordoned when all drains have ended
        self._drains[name] += 1
        self._change(name, unschedulable=True)
        for life in [each for each in self.workloads.lives.values() if each.node == name]:
            # Pods that terminate already go by themselves.
            if life.state is State.RUNNING:
                self.workloads.evict(life, Ended.DRAINED)
        if seconds is not None:
            self.calendar.enter(self.calendar.now + seconds, partial(self._open, name))

    def _open(self, name: str) -> None:
        """End one drain of a node; the node is uncordoned with the last of them."""
        self._drains[name] -= 1
        self._change(name, unschedulable=self._drains[name] > 0)

    def _taint(self, name: str, taint: Taint, seconds: float | None) -> None:
        node = self._known(name)
        if node is None:
            return
        self._change(name, taints=(*node.spec.taints, taint))
        if seconds is not None:
            self.calendar.enter(self.calendar.now + seconds, partial(self._clean, name, taint))

    def _clean(self, name: str, taint: Taint) -> None:
        node = self._known(name)
        if node is not None and taint in node.spec.taints:
            at = node.spec.taints.index(taint)  # only one: another event may have added an equal taint
            self._change(name, taints=node.spec.taints[:at] + node.spec.taints[at + 1 :])

    def _known(self, name: str) -> Node | None:
        """Return a node, even one that is down."""
        return self.cluster.node(name) or self._down.get(name)

    def _change(self, name: str, **spec: Any) -> None:  # noqa: ANN401 - fields of a node's spec by name
        """Change the spec of a node; one that is down comes back with it."""
        node = self._known(name)
        if node is None:
            return
        changed = attrs.evolve(node, spec=attrs.evolve(node.spec, **spec))
        if name in self._down:
            self._down[name] = changed
        else:
            self._put(changed)

    def _put(self, node: Node) -> None:
        self.cluster.put_node(node)
        self._notify(node.metadata.name)
        self.workloads.is_changed = True

    def _remove(self, name: str) -> None:
        self.cluster.remove_node(name)
        self._notify(name)
        self.workloads.is_changed = True

    def _notify(self, name: str) -> None:
        self.records.meters.advance(self.calendar.now)
        self.records.meters.node(name, self.cluster.gpus_of(name))

    # --- Random faults ---------------------------------------------------------------------------------------------

    def _enter_fault(self, name: str, faults: Faults, numbers: random.Random) -> None:
        at = self.calendar.now + exponential(numbers, faults.mean_between)
        self.calendar.enter(at, partial(self._fault, name, faults, numbers))

    def _fault(self, name: str, faults: Faults, numbers: random.Random) -> None:
        self._fail(name, faults.repair)
        # The next fault is drawn once the node is back: a node that is down cannot fail.
        self.calendar.enter(self.calendar.now + faults.repair, partial(self._enter_fault, name, faults, numbers))

    # --- Autoscaling -----------------------------------------------------------------------------------------------

    def scale(self) -> None:
        """Provision nodes for waiting pods, and remove autoscaled nodes that have been idle long enough.

        It is called after each cycle: pods that still wait found no room. Provisioned nodes have no DRA devices, so
        pods with claims do not count.
        """
        for pool in self._pools:
            rule = pool.rule
            asked = sum(
                life.slot.plan.gpus
                for life in self.workloads.lives.values()
                if life.state is State.WAITING
                and not life.pod.spec.resource_claims
                and 0 < life.slot.plan.gpus <= rule.gpus + _TINY
            )
            # Nodes under way count, or each cycle until they arrive would order the same ones again.
            wanted = ceil(asked / rule.gpus - _TINY) - pool.coming
            for _ in range(max(0, min(wanted, rule.most - len(pool.nodes) - pool.coming))):
                pool.coming += 1
                self.calendar.enter(self.calendar.now + rule.provision, partial(self._arrive, pool))

    def _arrive(self, pool: _Pool) -> None:
        pool.coming -= 1
        self._provide(pool)

    def _provide(self, pool: _Pool) -> None:
        node = pool.rule.make(pool.made)
        # Counted up for ever, so that a node that comes later never has the name of one that went.
        pool.made += 1
        pool.nodes[node.metadata.name] = self.calendar.now
        self._put(node)
        self.calendar.enter(self.calendar.now + pool.rule.idle, partial(self._look, pool, node.metadata.name))

    def _look(self, pool: _Pool, name: str) -> None:
        """Remove an autoscaled node that was idle for long enough; otherwise check again when it may have been."""
        now, idle = self.calendar.now, pool.rule.idle
        is_used = any(life.node == name for life in self.workloads.lives.values())
        # A node that was never used is idle since it came; an autoscaler removes such nodes too.
        since = now if is_used else max(pool.nodes[name], self.workloads.left.get(name, 0.0))
        if now - since < idle - _TINY:
            self.calendar.enter(since + idle, partial(self._look, pool, name))
        # At the least number the node stays and is looked at again: another one of the pool may go first.
        elif len(pool.nodes) > pool.rule.least:
            del pool.nodes[name]
            self.workloads.left.pop(name, None)
            self._remove(name)
        else:
            self.calendar.enter(now + idle, partial(self._look, pool, name))


@attrs.define(eq=False)
class _Pool:
    """The autoscaled nodes of one shape."""

    rule: Autoscale
    nodes: dict[str, float] = attrs.field(factory=dict)
    """By name: when each was added."""
    coming: int = 0
    made: int = 0
