"""The cluster of one schedule: the model of the API server, its processes, and what is said about all of it."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from kai.cluster.transport.calls import JSON, Answer, Call
from tests.doubles.rest_server.kinds import BY_KIND, Served
from tests.doubles.rest_server.replies import RefusedError
from tests.doubles.rest_server.server import Server
from tests.simulation.loop import SeededLoop
from tests.simulation.network import Wire
from tests.simulation.replica import NAMESPACE, Replica

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Change, Manifest

HOME: Final = "team"
RIVAL: Final = "rival"
HOMES: Final = frozenset({HOME, RIVAL})
RESERVED: Final = "kai-resource-reservation"
GPU: Final = "nvidia.com/gpu"
POD: Final = BY_KIND["v1", "Pod"]
NODE: Final = BY_KIND["v1", "Node"]
JOB: Final = BY_KIND["batch/v1", "Job"]
QUEUE: Final = BY_KIND["scheduling.run.ai/v2", "Queue"]
GROUP: Final = BY_KIND["scheduling.run.ai/v2alpha2", "PodGroup"]
ORDER: Final = BY_KIND["scheduling.run.ai/v1alpha2", "BindRequest"]
LEASE: Final = BY_KIND["coordination.k8s.io/v1", "Lease"]
ENDED: Final = frozenset({"Succeeded", "Failed"})
EPOCH: Final = "kai.scheduler/epoch"
_EPOCH_SHOWS_AFTER: Final = 0.02
_WALL: Final = 1_700_000_000.0


@attrs.frozen
class Violation:
    """An invariant that was broken, by its number in the list of invariants."""

    invariant: int
    text: str
    time: float

    def __str__(self) -> str:
        return f"invariant {self.invariant} at {self.time:.2f} s: {self.text}"


@attrs.define(eq=False)
class World:
    """All that a schedule is about. What is drawn comes from streams that do not disturb each other."""

    seed: int
    loop: SeededLoop
    shape: random.Random
    """For what there is at the beginning, and for what users do."""
    nature: random.Random
    """For how long things take."""
    server: Server = attrs.field(init=False)
    wire: Wire = attrs.field(init=False)
    replicas: list[Replica] = attrs.field(factory=list)
    violations: list[Violation] = attrs.field(factory=list)
    timeline: list[tuple[float, str]] = attrs.field(factory=list)
    blind: float = 10.0
    """For so long kai may be unaware of what others did, as far as the faults of this schedule go."""
    is_calm: bool = False
    """Whether faults and users are over."""
    calm_since: float = math.inf
    """When they ended."""
    fenced: bool = True
    """Whether the policy for terms is installed."""
    happened: Counter[str] = attrs.field(factory=Counter)
    """How often each kind of fault had something to disturb."""
    refused_binds: set[str] = attrs.field(factory=set)
    """Names of pods of which a webhook of others refuses every binding."""
    evicting: set[str] = attrs.field(factory=set)
    """Pods whose evictions kai has sent without an answer so far: it counts them as gone from their queues."""
    failures_said: dict[str, float] = attrs.field(factory=dict)
    """When each event that tells of a failed bind was sent, by its name."""
    orders_refused: dict[str, float] = attrs.field(factory=dict)
    """When kai heard last that an order was refused, by the pod: a failure is told later."""
    orders_hidden: float = -math.inf
    """Until when bind requests were not served; a kind that is not there is asked for once in 45 s at least."""
    undone: set[str] = attrs.field(factory=set)
    """UIDs of pods of which a backup that was put back knows less than kai was told."""
    on_backup: list[Callable[[], None]] = attrs.field(factory=list)
    """Are told that a backup was put back."""
    hears: Callable[[str], None] = lambda _: None
    """Is told every line of the log that is kept."""
    _digest: Any = attrs.field(factory=hashlib.sha256)
    _epochs: list[tuple[float, int]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.server = Server(now=self.wall, admit=self._admit)
        self.wire = Wire(self.server, self.nature)
        self.server.storage.listeners.append(self._note)

    # --- Time and words --------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Seconds since the beginning."""
        return self.loop.time() - 1000.0

    @property
    def sent(self) -> float:
        """When the call was sent that the server does now, in seconds since the beginning."""
        return self.wire.sent - 1000.0

    def wall(self) -> float:
        return _WALL + self.loop.time()

    def say(self, text: str) -> None:
        self.timeline.append((self.time, text))

    def violate(self, invariant: int, text: str) -> None:
        """Note that an invariant is broken."""
        found = Violation(invariant, text, self.time)
        self.violations.append(found)
        self.say(f"VIOLATION {found}")

    @property
    def history(self) -> str:
        """A name for all that happened, the same for the same history."""
        return str(self._digest.hexdigest())

    def _note(self, change: Change) -> None:
        version = (change.after or {}).get("metadata", {}).get("uid", "")
        text = f"{self.time:.6f} {change.version} {change.served.plural} {change.place} {change.by} {version}\n"
        self._digest.update(text.encode())

    # --- Asking ----------------------------------------------------------------------------------------------------

    def ask(self, by: str, method: str, path: str, body: object = None, content_type: str = JSON) -> Answer:
        """Let somebody beside kai ask the server, without any delay."""
        data = None if body is None else msgspec.json.encode(body)
        return self.server.answer(Call(method=method, path=path, body=data, content_type=content_type), by)

    def create(self, by: str, served: Served, manifest: Mapping[str, Any]) -> Manifest | None:
        """Create an object; None if the server refuses it."""
        namespace = str(manifest["metadata"].get("namespace", ""))
        whole = {
            "apiVersion": served.api_version,
            "kind": served.kind,
            **_admitted(served, manifest, self.server.storage.version),
        }
        answer = self.ask(by, "POST", path_of(served, namespace), whole)
        return msgspec.json.decode(answer.body) if answer.is_good else None

    def patch(self, by: str, served: Served, obj: Manifest, patch: Mapping[str, Any], subresource: str = "") -> bool:
        """Patch an object that still has its UID; return whether it was done."""
        metadata = obj["metadata"]
        path = path_of(served, metadata.get("namespace", ""), metadata["name"], subresource)
        found = self.server.storage.get(served, (metadata.get("namespace", ""), metadata["name"]))
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return False
        return self.ask(by, "PATCH", path, patch, "application/merge-patch+json").is_good

    def delete(self, by: str, served: Served, obj: Manifest, grace: int | None = None) -> bool:
        """Delete this very object."""
        metadata = obj["metadata"]
        options: dict[str, Any] = {"preconditions": {"uid": metadata["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = path_of(served, metadata.get("namespace", ""), metadata["name"])
        return self.ask(by, "DELETE", path, options).is_good

    def all(self, served: Served, namespace: str = "") -> list[Manifest]:
        return list(self.server.storage.all(served, namespace))

    def workers(self) -> list[Manifest]:
        """Return the pods of users."""
        return [each for each in self.server.storage.all(POD) if each["metadata"]["namespace"] in HOMES]

    def current(self, served: Served, obj: Manifest) -> Manifest | None:
        """Return an object as it is now; None if it is gone, or another has its name."""
        metadata = obj["metadata"]
        found = self.server.storage.get(served, (metadata.get("namespace", ""), metadata["name"]))
        return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None

    # --- Policies --------------------------------------------------------------------------------------------------

    def _admit(self, by: str, verb: str, served: Served, obj: Manifest) -> None:
        """Refuse what the policy for terms refuses, and what a webhook of others does."""
        name = obj["metadata"].get("name", "")
        if verb == "bind" and name in self.refused_binds:
            raise RefusedError(403, f'admission webhook "quota.others" denied the request: pod {name}')
        if served is LEASE and by.startswith("kai"):
            self._note_epoch(obj)
        written = verb == "create" and (served is ORDER or (served is POD and node_of(obj)))
        if not self.fenced or not (verb in {"bind", "evict"} or written):
            return
        epoch = (obj["metadata"].get("annotations") or {}).get(EPOCH)
        if epoch is not None and int(epoch) < self.epoch:
            raise RefusedError(403, f"metadata.annotations[{EPOCH}]: found {epoch}, expected at least {self.epoch}")

    @property
    def epoch(self) -> int:
        """The epoch that admission knows: what a lease says shows there a moment later."""
        known = [epoch for when, epoch in self._epochs if when + _EPOCH_SHOWS_AFTER <= self.time]
        return max(known, default=0)

    @property
    def led_since(self) -> float:
        """When the newest term began; minus infinity before the first."""
        return self._epochs[-1][0] if self._epochs else -math.inf

    def _note_epoch(self, lease: Manifest) -> None:
        epoch = int(lease["spec"].get("leaseTransitions") or 0)
        if lease["metadata"].get("namespace", NAMESPACE) == NAMESPACE and (
            not self._epochs or epoch > self._epochs[-1][1]
        ):
            self._epochs.append((self.time, epoch))


def path_of(served: Served, namespace: str, name: str = "", subresource: str = "") -> str:
    """Return the path of an object, or of a collection."""
    root = "apis" if "/" in served.api_version else "api"
    parts = [root, served.api_version]
    if served.namespaced:
        parts += ["namespaces", namespace]
    parts += [each for each in (served.plural, name, subresource) if each]
    return "/" + "/".join(parts)


def _admitted(served: Served, manifest: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return a pod as admission hands it on: one that shares a GPU names the config map that it is to get."""
    metadata = manifest["metadata"]
    if served is not POD or "gpu-fraction" not in (metadata.get("annotations") or {}):
        return manifest
    annotations = {**metadata["annotations"], "runai/shared-gpu-configmap": f"share-{number}"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


# --- What pods ask for ---------------------------------------------------------------------------------------------


def gpus_of(pod: Manifest) -> int:
    """Return the whole GPUs that a pod asks for."""
    return sum(int((each.get("resources") or {}).get("limits", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


def cpus_of(pod: Manifest) -> int:
    """Return the CPUs that a pod asks for."""
    found = ((each.get("resources") or {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get("cpu", 0)) for each in found)


def fraction_of(pod: Manifest) -> float:
    """Return the part of one GPU that a pod asks for; 0 for none."""
    return float((pod["metadata"].get("annotations") or {}).get("gpu-fraction", 0))


def granted_to(pod: Manifest) -> float:
    """Return the part of each GPU that a bound pod was given, whatever its annotations ask for by now."""
    text = (pod["metadata"].get("annotations") or {}).get("kai.scheduler/granted") or "{}"
    try:
        grant = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:  # its owner wrote it
        return fraction_of(pod)
    return float(grant.get("portion", fraction_of(pod)))


def is_over(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def is_leaving(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def node_of(pod: Manifest) -> str:
    return str(pod["spec"].get("nodeName") or "")


def key_of(obj: Manifest) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
