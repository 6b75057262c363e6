"""Looks at every change of a pod as it happens: no node and no device may ever hold more than it has.

What each pod occupies is counted from the watch, event by event, so that a moment in which too much was given does not
go unseen because it was short.
"""

import http.client
import json
import threading
import time
from collections import defaultdict
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import attrs

from tests.integration.client import PATIENCE, Api, Manifest, Refused
from tests.integration.connection import Connection

GPU = "nvidia.com/gpu"
GROUP = "runai-gpu-group"
_ENDED = {"Succeeded", "Failed"}
_ROUNDING = 1e-6


@attrs.frozen
class Held:
    """What a pod that is bound holds."""

    node: str
    gpus: int
    group: str
    portion: float


@attrs.define
class Observer:
    """Follows all pods in a thread of its own."""

    admin: Api
    capacity: dict[str, int]
    """GPUs by node."""
    violations: list[str] = attrs.field(factory=list)
    bound_at: dict[str, float] = attrs.field(factory=dict)
    """When each pod was first seen on a node, by name, on the clock of this machine."""
    events: int = 0
    _held: dict[str, Held] = attrs.field(factory=dict)
    _used: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    _shared: dict[str, float] = attrs.field(factory=lambda: defaultdict(float))
    _stop: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _problem: str = ""
    _has_forgotten: bool = False

    def start(self) -> None:
        """Begin with the pods that are there."""
        version = self._list()
        self._thread = threading.Thread(target=self._run, args=(version,), name="observer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()

    def begin_anew(self) -> None:
        """Expect the server to be put back to an earlier state, in which a pod may go to another node than it had."""
        self._has_forgotten = True

    def check(self) -> list[str]:
        """Return what was violated so far.

        Raises: RuntimeError if the watch ended, so that nothing is seen any more.
        """
        if self._problem:
            raise RuntimeError(f"the observer sees nothing any more: {self._problem}")
        return self.violations

    def _list(self) -> str:
        """Look at all pods, and return the version from which on to follow them."""
        listed = self.admin.request("GET", "/api/v1/pods")
        there = {pod["metadata"]["uid"] for pod in listed["items"]}
        for uid in list(self._held):
            if self._has_forgotten or uid not in there:
                self._count(self._held.pop(uid), -1)
        self._has_forgotten = False
        for pod in listed["items"]:
            self._see("ADDED", pod)
        return str(listed["metadata"]["resourceVersion"])

    def _run(self, version: str) -> None:
        """Follow the pods; where the server went away, look at all of them again once it is back."""
        away_since: float | None = None
        while not self._stop.is_set():
            try:
                version = version or self._list()
                away_since = None
                version = self._follow(version)
            except (OSError, http.client.HTTPException, Refused) as error:
                version, now = "", time.monotonic()
                away_since = now if away_since is None else away_since
                if now - away_since > PATIENCE:
                    self._problem = f"{type(error).__name__}: {error}"
                    return
                self._stop.wait(0.5)
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever asks must know that nothing is seen
                self._problem = f"{type(error).__name__}: {error}"
                return

    def _follow(self, version: str) -> str:
        """Follow the pods until the stream ends, and return the version from which on to go on."""
        at = urlsplit(self.admin.url)
        headers = {"Authorization": f"Bearer {self.admin.token}"}
        query = f"watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=500"
        connection = Connection(at.hostname or "", at.port or 443, ca_file=self.admin.ca_file, timeout=600)
        with closing(connection):
            connection.request("GET", f"/api/v1/pods?{query}", headers=headers)
            response = connection.getresponse()
            while not self._stop.is_set() and (line := response.readline()).endswith(b"\n"):
                version = self._take(json.loads(line), version)
        return "" if self._has_forgotten else version

    def _take(self, event: dict[str, Any], version: str) -> str:
        if event["type"] == "ERROR":
            raise LookupError(event["object"].get("message", "the watch is too old"))
        if event["type"] != "BOOKMARK":
            self.events += 1
            self._see(event["type"], event["object"])
        return str(event["object"]["metadata"].get("resourceVersion", version))

    def _see(self, kind: str, pod: Manifest) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        before, now = self._held.get(uid), None if kind == "DELETED" else held_by(pod)
        if before is not None and now is not None and before.node != now.node:
            self.violations.append(f"pod {name}: moved from {before.node} to {now.node}")
        self._count(before, -1)
        self._count(now, 1)
        if now is None:
            self._held.pop(uid, None)
            return
        self._held[uid] = now
        self.bound_at.setdefault(name, time.monotonic())
        if self._used[now.node] > self.capacity.get(now.node, 0):
            self.violations.append(f"node {now.node}: holds {self._used[now.node]} GPUs after pod {name}")
        if now.group and self._shared[now.group] > 1.0 + _ROUNDING:
            self.violations.append(f"device {now.group}: holds {self._shared[now.group]:.2f} after pod {name}")

    def _count(self, held: Held | None, sign: int) -> None:
        if held is None:
            return
        self._used[held.node] += sign * held.gpus
        if held.group:
            self._shared[held.group] += sign * held.portion


def held_by(pod: Manifest) -> Held | None:
    """Return what a pod holds, None if it holds nothing."""
    node = pod["spec"].get("nodeName")
    if not node or pod.get("status", {}).get("phase") in _ENDED:
        return None
    gpus = sum(int(each.get("resources", {}).get("requests", {}).get(GPU, 0)) for each in pod["spec"]["containers"])
    portion = float(pod["metadata"].get("annotations", {}).get("gpu-fraction", 0))
    group = pod["metadata"].get("labels", {}).get(GROUP, "") if portion else ""
    return Held(node, gpus, group, portion)
