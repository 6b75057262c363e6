"""Offer the pods of a trace to kai's engine, and count what gets a place.

The engine lives on from cycle to cycle as the service does. What it binds runs before the next cycle, on its node and
with its devices, as the binder and the kubelet have it run. What finds no place goes on waiting.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field

from benchmarks.clock import Stopwatch
from benchmarks.engine import Live
from benchmarks.events import Form, batches
from benchmarks.manifests import NOW, Manifest
from benchmarks.placement.objects import arrival, cluster, index_of, running
from benchmarks.placement.trace import PodShape, Trace
from kai.deciding.engine.cycle import Profile


@define(eq=False)
class Offering:
    """A cluster, the pods that came so far, and which of them have a place."""

    trace: Trace
    profile: Profile
    cycles_ms: list[float] = Factory(list)
    """Processor time of each cycle."""
    _live: Live = field(init=False)
    _arrived: list[PodShape] = Factory(list)
    _placed: int = 0
    _namespaces: dict[PodShape, str] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        """Show the engine the empty cluster, and have it pass over it once."""
        self._live = Live(profile=self.profile)
        self._take(cluster(self.trace.nodes), "list")
        self._cycle()
        self._live.settle()
        self.cycles_ms.clear()

    @property
    def share(self) -> float:
        """The percentage of all GPUs that pods with a place hold."""
        return 100.0 * self._placed / self.trace.capacity

    def offer(self, pods: Sequence[PodShape]) -> None:
        """Let ``pods`` come, and decide once."""
        first = len(self._arrived)
        self._arrived += pods
        made = [arrival(first + at, pod, self._namespace(pod)) for at, pod in enumerate(pods)]
        self._take((group for group, _ in made), "ADDED")
        self._take((pod for _, pod in made), "ADDED")
        self._cycle()

    def _namespace(self, pod: PodShape) -> str:
        """Return the namespace of a shape: each has its own, because a cycle considers few shapes of a namespace."""
        return self._namespaces.setdefault(pod, f"team-{len(self._namespaces)}")

    def _take(self, manifests: Iterator[Manifest], form: Form) -> None:
        for batch in batches(manifests, form, 0):
            self._live.take(batch)

    def _cycle(self) -> None:
        begun = time.process_time()
        outcome = self._live.cycle(NOW.timestamp(), Stopwatch())
        self.cycles_ms.append((time.process_time() - begun) * 1000)
        self._take(self._run([json.loads(body)["spec"] for body in outcome.bodies]), "MODIFIED")

    def _run(self, requests: Sequence[Mapping[str, Any]]) -> Iterator[Manifest]:
        """Count what got a place by bind ``requests``, and yield the pods as they run."""
        for request in requests:
            index = index_of(request["podName"])
            pod = self._arrived[index]
            self._placed += pod.demand
            yield running(index, pod, self._namespace(pod), request["selectedNode"], request.get("selectedGPUGroups"))
