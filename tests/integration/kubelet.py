"""A small kubelet for tests: runs the pods of all nodes without running anything.

A pod that is bound becomes Running; one that is being deleted goes at once. A reservation pod gets a GPU of its node
that no other one has, and says which in its annotation, with the rights of the account that it would run under. The
device plugin's part is played too: where no GPU is left, the pod is refused as a real kubelet refuses it. So is that of
the controller of resource claims: what a pod had claimed is free when it is gone.
"""

import threading
from contextlib import closing, suppress
from http.client import HTTPException
from typing import Any

import attrs

from tests.integration.client import STRATEGIC, Api, Manifest, Refused

RESERVED = "kai-resource-reservation"
DEVICE = "run.ai/reserve_for_gpu_index"
GPU = "nvidia.com/gpu"


@attrs.define
class Kubelet:
    """Looks at all pods when one has changed, in a thread of its own, and now and then anyway.

    A second thread watches pods. Looking often instead would cost the machine more than the tests themselves.
    """

    admin: Api
    reservation: Api
    """The account of reservation pods."""
    pause: float = 0.25
    devices: dict[str, str] = attrs.field(factory=dict)
    """Which GPU each reservation pod has, by UID."""
    claimed: dict[str, list[Manifest]] = attrs.field(factory=dict)
    """The resource claims of each pod that has any, by UID."""
    is_paused: bool = False
    """While true, nothing happens to any pod."""
    _stop: threading.Event = attrs.field(factory=threading.Event)
    _changed: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="kubelet's watch", daemon=True).start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._changed.wait(self.pause)
            if self.is_paused:
                self._stop.wait(self.pause)
                continue
            self._changed.clear()
            try:
                pods = self.admin.list("v1", "Pod")
            except (Refused, HTTPException, OSError):  # the API server is being restarted
                continue
            there = {pod["metadata"]["uid"] for pod in pods}
            self.devices = {uid: device for uid, device in self.devices.items() if uid in there}
            for uid in self.claimed.keys() - there:
                for claim in self.claimed.pop(uid):
                    with suppress(Refused, HTTPException, OSError):
                        self._free(claim, uid)
            for pod in pods:
                # Gone, or changed, or nobody answers: seen again in a moment.
                with suppress(Refused, HTTPException, OSError):
                    self._see(pod)

    def _watch(self) -> None:
        """Say when a pod has changed, which one does not matter; a watch that ends is begun anew."""
        while not self._stop.wait(0.05):
            with suppress(Refused, HTTPException, OSError), closing(self.admin.watch("v1", "Pod")) as changes:
                for _ in changes:
                    self._changed.set()
                    if self._stop.is_set():
                        return

    def _see(self, pod: Manifest) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        claims = claims_of(pod)
        if claims:
            self.claimed[metadata["uid"]] = claims
        if not node:
            return
        if metadata.get("deletionTimestamp"):
            self.devices.pop(metadata["uid"], None)
            # A kubelet says that a pod is over before it lets the object go; its claims are free from then on.
            for claim in self.claimed.pop(metadata["uid"], ()):
                with suppress(Refused, HTTPException, OSError):
                    self._free(claim, metadata["uid"])
            self.admin.delete(pod, gracePeriodSeconds=0)
        elif pod["status"].get("phase") == "Pending":
            if metadata["namespace"] == RESERVED and not self._give_device(pod, node):
                self._set_status(pod, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})
                return
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self._set_status(pod, {"phase": "Running", "conditions": [ready]})

    def _free(self, claim: Manifest, uid: str) -> None:
        """Take a pod out of those that a claim is reserved for; what only it could use is given back or deleted."""
        found = self.admin.get(claim)
        others = [each for each in found.get("status", {}).get("reservedFor", ()) if each["uid"] != uid]
        if any(each["uid"] == uid for each in found["metadata"].get("ownerReferences", ())):
            self.admin.patch(found, {"metadata": {"finalizers": None}})
            self.admin.delete(found)
        else:
            self.admin.patch(found, {"metadata": {"finalizers": None}})
            status = {"reservedFor": others} if others else {"reservedFor": None, "allocation": None}
            self.admin.patch(found, {"status": status}, subresource="status")

    def _give_device(self, pod: Manifest, node: str) -> bool:
        there = self.admin.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        count = int(there["status"]["allocatable"].get(GPU, "0"))
        there_are = (f"GPU-{node}-{index}" for index in range(count))
        free = [device for device in there_are if device not in self.devices.values()]
        if not free:
            return False
        self.devices[pod["metadata"]["uid"]] = free[0]
        self.reservation.patch(pod, {"metadata": {"annotations": {DEVICE: free[0]}}})
        return True

    def _set_status(self, pod: Manifest, status: dict[str, Any]) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self.admin.patch(pod, patch, subresource="status", content_type=STRATEGIC)


def claims_of(pod: Manifest) -> list[Manifest]:
    """Return the names of the resource claims of a pod, those it was given for what it asks for by name included."""
    named = [each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims", ())]
    named.append(pod["status"].get("extendedResourceClaimStatus", {}).get("resourceClaimName"))
    at = {"namespace": pod["metadata"]["namespace"]}
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {**at, "name": name}}
        for name in named
        if name
    ]
