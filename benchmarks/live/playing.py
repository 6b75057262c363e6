"""A scene on a real API server in real time: owners by the rules of ``kai.lab.virtual``, and everything else by kai.

    calendar ─ a Job arrives, or its work is done ─ Jobs and pods on the API server ─ kai groups, decides and binds
                                                                                       │
                      owners take note ←─ a watch of pods: one runs, one was told to go ─┘

So what owners do is the same in virtual and in real time, and what differs is how long a cluster takes.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http.client import HTTPException
from queue import Empty, SimpleQueue
from typing import Final

import attrs

from kai.api.kinds import Key
from kai.facts.model.axis import GPU_UNIT
from kai.history.facts import Ended
from kai.lab.virtual.running.embedded_cluster import EmbeddedCluster
from kai.lab.virtual.running.live_jobs import Calendar, Life, State
from kai.lab.virtual.running.meters import Meters
from kai.lab.virtual.running.records import Eviction, JobRecord, Records
from kai.lab.virtual.running.workloads import Workloads
from kai.lab.virtual.scenes.job_plans import JobPlan
from kai.lab.virtual.scenes.scene import Scene
from tests.integration.client import Api, Manifest
from tests.integration.mirror import manifest_of

_LONGEST_LOOK: Final = 0.5
"""After so many seconds owners look at their calendar even if nothing happens."""
_WATCH_SECONDS: Final = 40
"""Shorter than the client waits for an answer."""
_REST: Final = 0.02
"""Seconds between two watches."""
_JOB: Final = {"apiVersion": "batch/v1", "kind": "Job"}


def set_up(api: Api, scene: Scene) -> None:
    """Create queues and nodes; queues a second apart, for their age counts, and servers tell it in seconds."""
    for queue in sorted(scene.objects.queues, key=lambda each: each.metadata.name):
        api.ensure(manifest_of(queue))
        time.sleep(1.0)
    for node in scene.objects.nodes:
        manifest = manifest_of(node)
        made = api.ensure(manifest)
        api.patch(made, {"status": manifest["status"]}, subresource="status")


@attrs.define(eq=False)
class Player:
    """Plays the owners of pods, and the kubelet as far as it ends pods."""

    api: Api
    scene: Scene
    manifests: dict[str, Manifest]
    """Jobs by their names, as their user writes them."""
    grace: float
    records: Records = attrs.field(init=False)
    _workloads: Workloads = attrs.field(init=False)
    _calendar: Calendar = attrs.field(factory=Calendar)
    _shown: dict[Key, Life] = attrs.field(factory=dict)
    """The pods that were created, and are not over."""
    _jobs: dict[str, Manifest] = attrs.field(factory=dict)
    """Jobs as the server has them."""
    _changes: SimpleQueue[tuple[float, Manifest]] = attrs.field(factory=SimpleQueue)
    _began: float = 0.0
    _is_over: threading.Event = attrs.field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        """Prepare the books of owners."""
        self.records = Records(Meters(sorted(queue.metadata.name for queue in self.scene.objects.queues)))
        cluster = EmbeddedCluster.of(self.scene.objects, time.time())
        self._workloads = Workloads(self._calendar, cluster, self.records, self.grace)

    def play(self, limit: float) -> list[JobRecord]:
        """Have everything happen until all jobs are over, and return what happened to each.

        Raises: TimeoutError if they are not after so many seconds.
        """
        _, version = self.api.listed("v1", "Pod")
        watch = threading.Thread(target=self._watch, args=(version,), name="owners' watch", daemon=True)
        watch.start()
        # A quarter into a second: what comes a second later is a second younger.
        time.sleep(1.25 - time.time() % 1.0)
        self._began = time.monotonic()
        plans = tuple(self.scene.arrivals())
        self._expect(plans)
        try:
            while self.records.ended < len(plans):
                if self._now > limit:
                    left = len(plans) - self.records.ended
                    raise TimeoutError(f"{left} of {len(plans)} jobs are not over after {limit:g} s")
                self._turn()
        finally:
            self._is_over.set()
        return list(self.records.jobs)

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _expect(self, plans: Iterable[JobPlan]) -> None:
        for plan in plans:

            def arrive(plan: JobPlan = plan) -> None:
                self._workloads.arrive(plan)

            self._calendar.enter(plan.arrival, arrive)

    def _turn(self) -> None:
        """Do what is due, show it, and wait for the next change."""
        now = self._now
        while self._calendar.next <= now:
            self._calendar.pop()()
            self._show()
        try:
            wait = max(0.0, min(self._calendar.next - self._now, _LONGEST_LOOK))
            at, pod = self._changes.get(timeout=wait) if wait else self._changes.get_nowait()
        except Empty:
            return
        self._calendar.advance(max(self._calendar.now, at - self._began))
        self._see(pod)
        self._show()

    # --- What kai did ------------------------------------------------------------------------------------------------

    def _watch(self, version: str) -> None:
        """Follow the pods; a watch ends after a while, and goes on where it was."""
        while not self._is_over.wait(_REST):
            with suppress(OSError, HTTPException):
                for change in self.api.watch("v1", "Pod", seconds=_WATCH_SECONDS, resourceVersion=version):
                    version = change["object"]["metadata"]["resourceVersion"]
                    self._changes.put((time.monotonic(), change["object"]))

    def _see(self, pod: Manifest) -> None:
        """Take note of a pod that runs, and of one that was told to go."""
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        life = self._workloads.lives.get((metadata["namespace"], metadata["name"]))
        if life is None:
            return
        if "deletionTimestamp" in metadata:
            if life.pod.metadata.deletion_timestamp is None:
                self._evicted(life)
        elif life.state is State.WAITING and pod["status"].get("phase") == "Running":
            bound = attrs.evolve(life.pod, spec=attrs.evolve(life.pod.spec, node_name=node))
            self._workloads.run(life, bound, round(life.slot.plan.gpus * GPU_UNIT) / GPU_UNIT)

    def _evicted(self, life: Life) -> None:
        self.records.evict(
            Eviction(
                time=self._calendar.now,
                job=life.slot.task.job.number,
                pod="/".join(life.key),
                node=life.node,
                gpus=life.gpus,
                cause="",
                rule="",
                aggressor=-1,
            )
        )
        self._workloads.evict(life, Ended.EVICTED)

    # --- What owners and kubelets do ---------------------------------------------------------------------------------

    def _show(self) -> None:
        """Do on the API server what happened in the books since the last time."""
        lives = self._workloads.lives
        for key in [key for key, life in self._shown.items() if lives.get(key) is not life]:
            self._end(self._shown.pop(key))
        for key in [key for key in lives if key not in self._shown]:
            self._create(lives[key])
            self._shown[key] = lives[key]

    def _end(self, life: Life) -> None:
        """End a pod: one that was told to go is gone now, another one has done its work and stays."""
        namespace, name = life.key
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name}}
        if life.pod.metadata.deletion_timestamp is not None:
            self.api.delete(pod, gracePeriodSeconds=0)
        else:
            self.api.patch(pod, {"status": {"phase": "Succeeded"}}, subresource="status")

    def _create(self, life: Life) -> None:
        """Create a pod as the controller of Jobs does, and its Job before the first one."""
        namespace, name = life.key
        owner = life.slot.task.job.plan.owner
        if owner not in self._jobs:
            self._jobs[owner] = self.api.create(self.manifests[owner])
        uid, template = self._jobs[owner]["metadata"]["uid"], self.manifests[owner]["spec"]["template"]
        metadata = {
            **template["metadata"],
            "name": name,
            "namespace": namespace,
            "ownerReferences": [{**_JOB, "name": owner, "uid": uid, "controller": True}],
        }
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
