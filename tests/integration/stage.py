"""A cluster in which kai works as a whole: control plane, kubelet, and the programs; operators are played by tests.

A test has a namespace of its own. What lies in no namespace, or holds room on a node, is taken away afterwards.
"""

import http.client
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.integration import processes
from tests.integration.client import Api, Manifest, Refused, until
from tests.integration.controlplane import ControlPlane
from tests.integration.forking import AHEAD
from tests.integration.kubelet import GPU, RESERVED, RUNS_FOR, Kubelet
from tests.integration.processes import NAMESPACE, Program

POD_GROUP = "scheduling.run.ai/v2alpha2"
BIND_REQUEST = "scheduling.run.ai/v1alpha2"
QUEUE = "scheduling.run.ai/v2"
TOPOLOGY = "kai.scheduler/v1alpha1"
JOB = "tests/job"
"""The label that says which job of a test a pod belongs to."""
FIRST_QUEUES = {"default-queue", "default-parent-queue"}

_CLAIM = ("resource.k8s.io/v1", "ResourceClaim")
# What is taken away after a test: first what makes or holds something, then what it held.
_IN_NAMESPACE = (
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("v1", "Pod"),
    (BIND_REQUEST, "BindRequest"),
    (POD_GROUP, "PodGroup"),
    ("v1", "PersistentVolumeClaim"),
    _CLAIM,
    ("storage.k8s.io/v1", "CSIStorageCapacity"),
)
_BESIDE = (
    (QUEUE, "Queue"),
    ("v1", "Node"),
    (TOPOLOGY, "Topology"),
    ("v1", "PersistentVolume"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSINode"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("topology.node.k8s.io/v1alpha2", "NodeResourceTopology"),
)
_NUMBERS = itertools.count(1)


@attrs.define
class Stage:
    """What a test sees of the cluster, and does in it as its administrator."""

    plane: ControlPlane
    kubelet: Kubelet
    folder: Path
    programs: list[Program] = attrs.field(factory=list)
    space: str = ""
    everywhere: list[str] = attrs.field(factory=list)
    """All namespaces that tests had."""
    is_patient: bool = False
    """Whether every program begins from nothing, as pods do: that takes two seconds of processor for each."""

    @property
    def api(self) -> Api:
        """The administrator."""
        return self.plane.admin

    # --- Programs ------------------------------------------------------------------------------------------------

    def begin(
        self,
        name: str,
        *roles: str,
        account: str = "kai",
        flags: tuple[str, ...] = (),
        api: Api | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start roles, all by default, with the rights of a service account; do not wait until they are ready.

        Roles that run alone begin from nothing, and so import themselves what they need. So does a program with
        variables of its own that are not of its pod or its clock.
        """
        user = api or self.plane.account(NAMESPACE, account)
        afresh = self.is_patient or bool(roles) or not all(key.startswith(("POD_", AHEAD)) for key in environment or ())
        program = processes.start(
            self.plane, user, self.folder, name, *roles, flags=flags, environment=environment, afresh=afresh
        )
        self.programs.append(program)
        return program

    def start(
        self,
        name: str,
        *roles: str,
        account: str = "kai",
        flags: tuple[str, ...] = (),
        api: Api | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start roles like `begin`, and wait until they are ready."""
        program = self.begin(name, *roles, account=account, flags=flags, api=api, environment=environment)
        self.await_ready()
        return program

    def await_ready(self) -> None:
        """Wait until all programs are ready."""
        try:
            processes.wait(*self.programs)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.logs()}") from error

    def stop(self, program: Program, *, kill: bool = False) -> None:
        """End a program, at once or as a signal asks it to."""
        program.daemon.stop(kill=kill)
        self.programs.remove(program)

    def logs(self) -> str:
        """Return the last lines of all programs."""
        return "\n".join(f"--- {' '.join(each.roles)}\n{each.daemon.tail(25)}" for each in self.programs)

    def settle(self) -> None:
        """Wait until two more cycles are over; nodes are touched so that there is something to look at."""
        schedulers = [each for each in self.programs if not each.roles or "scheduler" in each.roles]
        starts = [each.cycles() for each in schedulers]

        def are_over() -> bool:
            for each in self.api.list("v1", "Node"):
                self.api.patch(each, {"metadata": {"annotations": {"tests/touched": str(next(_NUMBERS))}}})
            return all(each.cycles() >= start + 2 for each, start in zip(schedulers, starts, strict=True))

        until(are_over, "two more cycles", every=0.2)

    # --- Objects -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Give the test that begins a namespace of its own."""
        self.space = f"test-{next(_NUMBERS)}"
        self.everywhere.append(self.space)
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.space}})

    def clear(self) -> None:
        """Take away what the test left behind."""
        self.kubelet.is_paused = False
        for version, kind in _IN_NAMESPACE:
            for manifest in self._found(version, kind, self.space):
                self.api.delete(manifest, gracePeriodSeconds=0, propagationPolicy="Background")
        until(lambda: not self.reservations(), "the reservations to go")
        until(lambda: not self._found(*_CLAIM, self.space), "the claims to go")
        for version, kind in _BESIDE:
            for manifest in self._found(version, kind):
                if manifest["metadata"]["name"] not in FIRST_QUEUES:
                    self.api.delete(manifest)

    def _found(self, version: str, kind: str, namespace: str = "") -> list[Manifest]:
        """Return all objects of a kind that may not be known here."""
        try:
            return self.api.list(version, kind, namespace)
        except LookupError:
            return []
        except Refused as error:
            if error.code != http.client.NOT_FOUND:
                raise
            return []

    def placed(self, manifest: Manifest) -> Manifest:
        """Return the manifest, in our namespace if it is of a kind that has any and names none."""
        metadata = manifest["metadata"]
        if "namespace" in metadata or not self.api.is_namespaced(manifest["apiVersion"], manifest["kind"]):
            return manifest
        return {**manifest, "metadata": {**metadata, "namespace": self.space}}

    def create(self, manifest: Manifest) -> Manifest:
        """Create an object, with its status if it has any."""
        made = self.api.create(self.placed(manifest))
        if "status" in manifest:
            made = self.api.patch(made, {"status": manifest["status"]}, subresource="status")
        return made

    def change(self, part: Manifest) -> None:
        """Merge a part of a manifest into the object that it names."""
        self.api.patch(self.placed(part), {key: part[key] for key in part.keys() - {"apiVersion", "kind"}})

    def get(self, version: str, kind: str, name: str) -> Manifest:
        """Return an object."""
        return self.api.get(self.placed({"apiVersion": version, "kind": kind, "metadata": {"name": name}}))

    def find(self, version: str, kind: str, name: str) -> Manifest | None:
        """Return an object, None if it is not there."""
        return self.api.find(self.placed({"apiVersion": version, "kind": kind, "metadata": {"name": name}}))

    def delete(self, version: str, kind: str, name: str) -> None:
        """Delete an object, and with it what it owns."""
        manifest = self.placed({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
        self.api.delete(manifest, propagationPolicy="Background")

    def pod(self, name: str) -> Manifest:
        """Return a pod."""
        return self.get("v1", "Pod", name)

    def pods(self, job: str = "") -> list[Manifest]:
        """Return our pods, or those of one job, that nobody deletes; in the order of their names."""
        found = self.api.list("v1", "Pod", self.space, **({"labelSelector": f"{JOB}={job}"} if job else {}))
        alive = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return sorted(alive, key=lambda each: str(each["metadata"]["name"]))

    def running(self, job: str = "") -> list[Manifest]:
        """Return those of them that run."""
        return [each for each in self.pods(job) if each["status"].get("phase") == "Running"]

    def waiting(self, job: str = "") -> list[Manifest]:
        """Return those of them that have no node."""
        return [each for each in self.pods(job) if not each["spec"].get("nodeName")]

    def group_of(self, pod: str) -> Manifest:
        """Return the group of a pod, once it has one."""
        name: str = until(
            lambda: self.pod(pod)["metadata"].get("annotations", {}).get("pod-group-name"), f"a group of {pod}"
        )
        # That of a pod without an owner may be written after the pod was bound.
        return until(lambda: self.find(POD_GROUP, "PodGroup", name), f"group {name}")

    def queue_status(self, name: str) -> dict[str, Any]:
        """Return the status of a queue."""
        status: dict[str, Any] = self.get(QUEUE, "Queue", name).get("status", {})
        return status

    def events(self, name: str = "", reason: str = "") -> list[Manifest]:
        """Return our events, oldest first; those about an object, those of a reason."""
        found = self.api.list("v1", "Event", self.space)
        chosen = [
            each for each in found if name in {"", each["involvedObject"]["name"]} and reason in {"", each["reason"]}
        ]
        return sorted(chosen, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def condition(self, pod: str, kind: str = "PodScheduled") -> Manifest | None:
        """Return a condition of a pod, None if it has none."""
        conditions = self.pod(pod)["status"].get("conditions", ())
        return next((each for each in conditions if each["type"] == kind), None)

    def reservations(self) -> list[Manifest]:
        """Return the pods that reserve whole GPUs for shares."""
        return self.api.list("v1", "Pod", RESERVED)

    def forbidden(self, since: int) -> list[tuple[str, str, str]]:
        """Return what kai asked for without having the right, from the given number of audited requests on."""
        return [
            (event["user"]["username"], event["verb"], event["requestURI"])
            for event in self.plane.audited()[since:]
            if event.get("responseStatus", {}).get("code") == 403
            and event.get("userAgent", "").startswith("kai/")
            # A quota, and a definition that is being deleted, refuse with the same code what kai has every right to.
            and not any(each in event["responseStatus"].get("message", "") for each in _NO_MATTER_OF_RIGHTS)
        ]


_NO_MATTER_OF_RIGHTS = ("exceeded quota", "while custom resource definition is terminating")


@contextmanager
def staged(plane: ControlPlane, folder: Path) -> Iterator[Stage]:
    """Set the stage: a kubelet works, and no program yet."""
    kubelet = Kubelet(plane.admin, plane.account(RESERVED, RESERVED))
    kubelet.start()
    stage = Stage(plane, kubelet, folder)
    try:
        yield stage
    finally:
        for program in tuple(stage.programs):
            stage.stop(program)
        kubelet.stop()


@contextmanager
def scene(stage: Stage) -> Iterator[Stage]:
    """Give a test its namespace, and show what the programs wrote when it fails."""
    before = len(stage.plane.audited())
    stage.open()
    try:
        yield stage
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"{error}\n{_pods(stage.pods())}\n{stage.logs()}") from error
    finally:
        stage.clear()
    refused = stage.forbidden(before)
    assert not refused, refused


def _pods(pods: Iterable[Manifest]) -> str:
    def line(pod: Manifest) -> str:
        conditions = [f"{each['type']}: {each.get('message')}" for each in pod["status"].get("conditions", ())]
        return f"{pod['metadata']['name']} {pod['status'].get('phase')} {pod['spec'].get('nodeName')} {conditions}"

    return "\n".join(line(pod) for pod in pods)


# --- Manifests ----------------------------------------------------------------------------------------------------


def an_object(version: str, kind: str, name: str, **body: Any) -> Manifest:
    """Return a manifest."""
    metadata = {"name": name, **body.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def node(name: str, *, labels: dict[str, str] | None = None, spec: Manifest | None = None, **amounts: Any) -> Manifest:
    """Return a node with plenty of everything but GPUs; amounts by the names of resources, ``gpu`` for NVIDIA's."""
    found = {"cpu": "32", "memory": "128Gi", "pods": "110", **{key: str(value) for key, value in amounts.items()}}
    if "gpu" in found:
        found["nvidia.com/gpu"] = found.pop("gpu")
    status = {"allocatable": found, "capacity": found}
    host = {"kubernetes.io/hostname": name}
    return an_object(
        "v1", "Node", name, metadata={"labels": {**host, **(labels or {})}}, spec=spec or {}, status=status
    )


def queue(name: str, parent: str = "", *, priority: int | None = None, **body: Any) -> Manifest:
    """Return a queue; ``gpu``, ``cpu`` and ``memory`` are shares that differ from: no GPU as quota, no limits."""
    shares = {
        part: {"quota": 0 if part == "gpu" else -1, "limit": -1, "overQuotaWeight": 1, **body.pop(part, {})}
        for part in ("gpu", "cpu", "memory")
    }
    spec: dict[str, Any] = {"resources": shares, **body}
    if parent:
        spec["parentQueue"] = parent
    if priority is not None:
        spec["priority"] = priority
    return an_object(QUEUE, "Queue", name, spec=spec)


def job(
    name: str,
    pods: int,
    *,
    gang: bool = True,
    gpu: int = 1,
    queue: str = "team",
    seconds: float | None = None,
    **body: Any,
) -> Manifest:
    """Return a Job of Kubernetes, whose pods its controller makes: as a gang, each running for so many seconds."""
    labels = {JOB: name, "kai.scheduler/queue": queue, **body.pop("labels", {})}
    annotations = {"kai.scheduler/batch-min-member": str(pods)} if gang else {}
    template = pod_template(gpu, labels, seconds)
    template["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": template, **body}
    metadata = {"labels": labels, "annotations": annotations}
    return an_object("batch/v1", "Job", name, metadata=metadata, spec=spec)


def pod_template(gpu: int, labels: Mapping[str, str], seconds: float | None = None) -> Manifest:
    """Return what a controller makes pods of, which run for so many seconds or until they are taken away."""
    resources = {"requests": {GPU: str(gpu)}, "limits": {GPU: str(gpu)}}
    container = {"name": "main", "image": "none", "resources": resources}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0}
    annotations = {} if seconds is None else {RUNS_FOR: str(seconds)}
    return {"metadata": {"labels": dict(labels), "annotations": annotations}, "spec": spec}


def when(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of a condition that may fail while what it looks at is not there yet."""

    def tried() -> Any:
        try:
            return condition()
        except (KeyError, IndexError):
            return None

    return until(tried, what)
