"""Those who work on a cluster beside kai: kubelets, controllers of workloads, the garbage collector.

All of them follow what the storage tells, each after a drawn delay, and ask the server as anybody does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.doubles.rest_server.kinds import SERVED
from tests.doubles.rest_server.storage import Change, Manifest
from tests.simulation.world import (
    GPU,
    HOME,
    JOB,
    NODE,
    POD,
    RESERVED,
    World,
    cpus_of,
    gpus_of,
    is_leaving,
    is_over,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = "sim/seconds"
"""For how long a pod runs; it goes on for ever without."""
_ORDER: Final = {served: number for number, served in enumerate(SERVED)}
_DEVICE: Final = "run.ai/reserve_for_gpu_index"


@attrs.define(eq=False)
class Actor:
    """Does something a while after a change."""

    world: World

    def __attrs_post_init__(self) -> None:
        self.world.server.storage.listeners.append(self.see)

    def see(self, change: Change) -> None:
        """Take a change."""

    def later(self, least: float, most: float, function: Callable[..., Any], *args: Any) -> None:
        """Call a function after a drawn time."""
        self.world.loop.call_later(self.world.nature.uniform(least, most), function, *args)


@attrs.define(eq=False)
class Kubelets(Actor):
    """The kubelets of all nodes: they admit what fits, run it, and end it."""

    refuses: float = 0.0
    """How often a pod is not admitted although it fits."""
    is_mute: bool = False
    """Whether reservation pods do not say which device they have."""
    sticks: float = 0.0
    """How often a pod that is to end takes a minute for it."""
    devices: dict[str, str] = attrs.field(factory=dict)

    def see(self, change: Change) -> None:
        if change.served is not POD or change.after is None:
            return
        pod, before = change.after, change.before
        if not node_of(pod):
            return
        if is_leaving(pod) and (before is None or not is_leaving(before)):
            long = self.world.nature.random() < self.sticks
            self.later(*((40.0, 70.0) if long else (0.3, 2.0)), self._end, pod)
        elif before is None or not node_of(before):
            self.later(0.2, 2.0, self._admit, pod)

    def _admit(self, seen: Manifest) -> None:
        world, pod = self.world, self.world.current(POD, seen)
        if pod is None or is_leaving(pod) or pod["status"]["phase"] != "Pending":
            return
        node = world.server.storage.get(NODE, ("", node_of(pod)))
        if node is None:
            self.later(1.0, 3.0, self._admit, pod)  # another node of the name takes the pods that are bound to it
            return
        is_ours = pod["metadata"]["namespace"] == RESERVED
        if not self._fits(pod, node) or (not is_ours and world.nature.random() < self.refuses):
            world.say(f"kubelet refuses {pod['metadata']['name']} on {node_of(pod)}")
            self._status(pod, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})
            return
        told = [each for each in pod["status"].get("conditions") or () if each["type"] != "Ready"]
        self._status(pod, {"phase": "Running", "conditions": [*told, {"type": "Ready", "status": "True"}]})
        if is_ours:
            self._name_device(pod)
        seconds = (pod["metadata"].get("annotations") or {}).get(SECONDS)
        if seconds:
            self.later(float(seconds), float(seconds), self._finish, pod)

    def _fits(self, pod: Manifest, node: Manifest) -> bool:
        on_it = [
            each
            for each in self.world.all(POD)
            if node_of(each) == node["metadata"]["name"] and each["status"]["phase"] == "Running"
        ]
        size = node["status"]["allocatable"]
        gpus, cpus = gpus_of(pod), cpus_of(pod)
        # A kubelet looks at what a pod asks for: a node that lost a GPU takes pods without any.
        return (not gpus or gpus + sum(map(gpus_of, on_it)) <= int(size.get(GPU, 0))) and (
            not cpus or cpus + sum(map(cpus_of, on_it)) <= int(size["cpu"])
        )

    def _name_device(self, seen: Manifest) -> None:
        world, pod = self.world, self.world.current(POD, seen)
        if pod is None or is_leaving(pod):
            return
        if self.is_mute:
            self.later(5.0, 10.0, self._name_device, pod)
            return
        node = node_of(pod)
        alive = {each["metadata"]["uid"] for each in world.all(POD, RESERVED)}
        used = {device for uid, device in self.devices.items() if uid in alive}
        device = next(each for each in (f"GPU-{node}-{index}" for index in range(64)) if each not in used)
        self.devices[pod["metadata"]["uid"]] = device
        world.patch("kubelet", POD, pod, {"metadata": {"annotations": {_DEVICE: device}}})

    def _finish(self, seen: Manifest) -> None:
        pod = self.world.current(POD, seen)
        if pod is not None and not is_leaving(pod) and not self.world.is_calm:
            self._status(pod, {"phase": "Succeeded"})

    def _end(self, seen: Manifest) -> None:
        pod = self.world.current(POD, seen)
        if pod is not None:
            self.world.delete("kubelet", POD, pod, grace=0)

    def _status(self, pod: Manifest, status: dict[str, Any]) -> None:
        self.world.patch("kubelet", POD, pod, {"status": status}, "status")


@attrs.define(eq=False)
class NodeController(Actor):
    """Ends pods of nodes that are gone."""

    def see(self, change: Change) -> None:
        if change.served is NODE and change.after is None:
            self.later(5.0, 10.0, self._clean, change.place[1])
        elif change.served is POD and change.after is not None:
            node = node_of(change.after)
            if node and self.world.server.storage.get(NODE, ("", node)) is None:
                self.later(5.0, 10.0, self._clean, node)

    def _clean(self, node: str) -> None:
        if self.world.server.storage.get(NODE, ("", node)) is not None:
            return
        for pod in self.world.all(POD):
            if node_of(pod) == node:
                self.world.delete("pod-gc", POD, pod, grace=0)


@attrs.define(eq=False)
class GarbageCollector(Actor):
    """Deletes what belongs to an owner that is gone."""

    alive: set[str] = attrs.field(factory=set)
    """UIDs of all objects that there are."""
    owned: dict[str, dict[str, Change]] = attrs.field(factory=dict)
    """By the UID of an owner and their own: the last change of the objects that name it."""

    def see(self, change: Change) -> None:
        uid, owners = change.present["metadata"]["uid"], _owners_of(change.present)
        if change.after is None:
            self.alive.discard(uid)
            for owner in owners:
                self.owned.get(owner, {}).pop(uid, None)
            self.later(0.5, 3.0, self._collect, uid)
            return
        self.alive.add(uid)
        for owner in owners:
            self.owned.setdefault(owner, {})[uid] = change
        if change.before is None and owners:
            self.later(20.0, 25.0, self._check, change)

    def _collect(self, uid: str) -> None:
        found = self.owned.pop(uid, {}).values()
        for change in sorted(found, key=lambda each: (_ORDER[each.served], each.place)):
            obj = self.world.current(change.served, change.present)
            if obj is not None and uid in _owners_of(obj):
                self.world.delete("gc", change.served, obj)

    def _check(self, change: Change) -> None:
        """Collect what was made for an owner that was gone by then."""
        obj = self.world.current(change.served, change.present)
        if obj is not None and not any(owner in self.alive for owner in _owners_of(change.present)):
            self.world.delete("gc", change.served, obj)


def _owners_of(obj: Manifest) -> list[str]:
    return [each["uid"] for each in obj["metadata"].get("ownerReferences") or ()]


@attrs.define(eq=False)
class JobController(Actor):
    """Keeps as many pods of each Job as it asks for, until they have succeeded."""

    counts: bool = False
    """Whether it runs no more pods at once than a Job asks for, and writes how many have succeeded."""

    def see(self, change: Change) -> None:
        if change.served is JOB and change.after is not None and change.before is None:
            self.later(0.05, 0.5, self._fill, change.after)
        elif change.served is POD and (change.after is None or is_over(change.after)):
            for owner in change.present["metadata"].get("ownerReferences") or ():
                job = self.world.server.storage.get(JOB, (change.place[0], owner["name"]))
                if job is not None and job["metadata"]["uid"] == owner["uid"]:
                    self.later(0.2, 2.0, self._fill, job)

    def _fill(self, seen: Manifest) -> None:
        job = self.world.current(JOB, seen)
        if job is None or is_leaving(job):
            return
        uid, spec = job["metadata"]["uid"], job["spec"]
        mine = [
            pod
            for pod in self.world.workers()
            if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())
        ]
        done = sum(pod["status"]["phase"] == "Succeeded" for pod in mine)
        active = sum(not is_over(pod) for pod in mine)
        if self.counts and done != (job.get("status") or {}).get("succeeded", 0):
            self.world.patch("job-controller", JOB, job, {"status": {"succeeded": done}}, "status")
        most = spec["parallelism"] if self.counts else spec["completions"]
        for _ in range(min(spec["completions"] - done, most) - active):
            self._make(job)

    def _make(self, job: Manifest) -> None:
        metadata, template = job["metadata"], job["spec"]["template"]
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        made = {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
            **template["metadata"],
        }
        self.world.create("job-controller", POD, {"metadata": made, "spec": template["spec"]})


@attrs.define(eq=False)
class GangOperator(Actor):
    """Keeps pods with names: one that is gone or has failed is made anew under the same name."""

    wanted: dict[str, Manifest] = attrs.field(factory=dict)
    """Manifests of pods, by name."""

    def want(self, manifests: list[Manifest]) -> None:
        """Keep these from now on."""
        for manifest in manifests:
            self.wanted[manifest["metadata"]["name"]] = manifest
            self.later(0.05, 0.5, self._make, manifest["metadata"]["name"])

    def drop(self, prefix: str) -> None:
        """Keep the pods of a gang no longer, and delete them."""
        for name in [each for each in self.wanted if each.rpartition("-")[0] == prefix]:
            del self.wanted[name]
            pod = self.world.server.storage.get(POD, (HOME, name))
            if pod is not None:
                self.world.delete("operator", POD, pod)

    def see(self, change: Change) -> None:
        if change.served is not POD or change.place[0] != HOME or change.place[1] not in self.wanted:
            return
        if change.after is None:
            self.later(0.0, 1.0, self._make, change.place[1])
        elif change.after["status"]["phase"] == "Failed" and not is_leaving(change.after):
            self.later(0.0, 1.0, self.world.delete, "operator", POD, change.after)

    def _make(self, name: str) -> None:
        if name in self.wanted and self.world.server.storage.get(POD, (HOME, name)) is None:
            self.world.create("operator", POD, self.wanted[name])
