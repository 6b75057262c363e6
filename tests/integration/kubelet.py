"""A small kubelet for tests: runs the pods of all nodes without running anything.

A pod that is bound becomes Running, and Succeeded once the seconds that it asks for in an annotation (`RUNS_FOR`) are
over; one that is being deleted goes at once. A reservation pod gets a GPU of its node
that no other one has, and says which in its annotation, with the rights of the account that it would run under. The
device plugin's part is played too: where no GPU is left, the pod is refused as a real kubelet refuses it.
"""

import threading
import time
from contextlib import closing, suppress
from http.client import HTTPException
from typing import Any

import attrs

from tests.integration.client import STRATEGIC, Api, Manifest, Refused

RESERVED = "kai-resource-reservation"
DEVICE = "run.ai/reserve_for_gpu_index"
GPU = "nvidia.com/gpu"
RUNS_FOR = "tests/runs-for"
"""The annotation of pods that end by themselves: after how many seconds."""
# The API server is being restarted, or what a pod needs is not there yet.
_NOT_NOW = (Refused, HTTPException, OSError)


@attrs.define
class Kubelet:
    """Follows all pods by a watch, in one thread, and acts on those that changed, in another.

    Nothing is asked while nothing happens: lists of all pods would cost the machine more than the tests themselves.
    """

    admin: Api
    reservation: Api
    """The account of reservation pods."""
    pause: float = 0.25
    """After how many seconds it tries again what it could not do."""
    devices: dict[str, str] = attrs.field(factory=dict)
    """Which GPU each reservation pod has, by UID."""
    is_paused: bool = False
    """While true, nothing happens to any pod."""
    lingers: bool = False
    """Whether pods that are told to go stay until a test lets them go; reservations go at once."""
    _ends: dict[str, tuple[float, Manifest]] = attrs.field(factory=dict)
    """The pods that end by themselves, by UID, and when they do."""
    _known: set[str] = attrs.field(factory=set)
    """The UIDs of all pods that are there; the watch's alone."""
    _due: dict[str, Manifest | None] = attrs.field(factory=dict)
    """What changed since it was acted on: pods by UID, None for one that is gone."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _stop: threading.Event = attrs.field(factory=threading.Event)
    _changed: threading.Event = attrs.field(factory=threading.Event)
    _threads: list[threading.Thread] = attrs.field(factory=list)

    def start(self) -> None:
        """Begin."""
        self._threads = [
            threading.Thread(target=self._run, name="kubelet", daemon=True),
            threading.Thread(target=self._watch, name="kubelet's watch", daemon=True),
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End, and wait for what is being done."""
        self._stop.set()
        self._changed.set()
        if self._threads:
            self._threads[0].join(timeout=10)

    # --- What there is -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Follow the pods; a watch that ends is begun anew with a list."""
        while not self._stop.wait(0.05):
            with suppress(*_NOT_NOW):
                pods, version = self.admin.listed("v1", "Pod")
                there = {pod["metadata"]["uid"]: pod for pod in pods}
                gone = dict.fromkeys(self._known - there.keys())
                self._known = set(there)
                self._put({**gone, **there})
                with closing(self.admin.watch("v1", "Pod", seconds=300, resourceVersion=version)) as changes:
                    for change in changes:
                        if self._stop.is_set() or change["type"] == "ERROR":
                            break
                        self._follow(change)

    def _follow(self, change: Manifest) -> None:
        pod = change["object"]
        uid = pod["metadata"]["uid"]
        if change["type"] == "DELETED":
            self._known.discard(uid)
            self._put({uid: None})
        else:
            self._known.add(uid)
            self._put({uid: pod})

    def _put(self, changes: dict[str, Manifest | None]) -> None:
        with self._lock:
            self._due |= changes
        self._changed.set()

    # --- What is done about it -----------------------------------------------------------------------------------

    def _run(self) -> None:
        wait: float | None = None
        while True:
            self._changed.wait(wait)
            if self._stop.is_set():
                return
            if self.is_paused:
                self._stop.wait(self.pause)
                continue
            self._changed.clear()
            with self._lock:
                due, self._due = self._due, {}
            failed = {uid: pod for uid, pod in due.items() if not self._is_done(uid, pod)}
            with self._lock:
                self._due = failed | self._due  # what changed meanwhile is newer
            next_end = self._end()
            wait = self.pause if failed else next_end

    def _is_done(self, uid: str, pod: Manifest | None) -> bool:
        """Act on one pod, and return whether that worked; if not, it is tried again in a moment."""
        try:
            if pod is None:
                self._forget(uid)
            else:
                self._see(pod)
        except _NOT_NOW:
            return uid not in self._known
        return True

    def _forget(self, uid: str) -> None:
        self.devices.pop(uid, None)
        self._ends.pop(uid, None)

    def _see(self, pod: Manifest) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        if not node:
            return
        if metadata.get("deletionTimestamp"):
            if self.lingers and metadata["namespace"] != RESERVED:
                return
            self._forget(metadata["uid"])
            self.admin.delete(pod, uid=metadata["uid"], gracePeriodSeconds=0)
        elif pod["status"].get("phase") == "Pending":
            if metadata["namespace"] == RESERVED and not self._give_device(pod, node):
                self._set_status(pod, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})
                return
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self._set_status(pod, {"phase": "Running", "conditions": [ready]})
            runs_for = metadata.get("annotations", {}).get(RUNS_FOR)
            if runs_for is not None:
                self._ends[metadata["uid"]] = time.monotonic() + float(runs_for), pod

    def _end(self) -> float | None:
        """End the pods whose time is over, and return after how many seconds the next one ends."""
        for uid, (end, pod) in list(self._ends.items()):
            if end <= time.monotonic() and self._has_ended(uid, pod):
                del self._ends[uid]
        return min((max(self.pause, end - time.monotonic()) for end, _ in self._ends.values()), default=None)

    def _has_ended(self, uid: str, pod: Manifest) -> bool:
        try:
            self._set_status(pod, {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]})
        except _NOT_NOW:
            return uid not in self._known
        return True

    def _give_device(self, pod: Manifest, node: str) -> bool:
        uid = pod["metadata"]["uid"]
        if uid not in self.devices:  # what was seen of the pod may be older than what was done for it
            there = self.admin.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
            count = int(there["status"]["allocatable"].get(GPU, "0"))
            there_are = (f"GPU-{node}-{index}" for index in range(count))
            free = [device for device in there_are if device not in self.devices.values()]
            if not free:
                return False
            self.devices[uid] = free[0]
        self.reservation.patch(pod, {"metadata": {"annotations": {DEVICE: self.devices[uid]}}})
        return True

    def _set_status(self, pod: Manifest, status: dict[str, Any]) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self.admin.patch(pod, patch, subresource="status", content_type=STRATEGIC)
