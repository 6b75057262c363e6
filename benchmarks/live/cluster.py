"""A cluster to measure in: an API server with nodes, queues and a scheduler, and a crowd of pods."""

import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

import attrs

from tests.integration import programs
from tests.integration.client import Api, Manifest
from tests.integration.controlplane import ControlPlane, Daemon
from tests.integration.installation import install
from tests.integration.ports import free_ports
from tests.integration.processes import await_ready
from tests.unit.deploy.rendering import DEPLOY

NAMESPACE = "crowd"
POOL_LABEL = "kai.scheduler/node-pool"
_SHARE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_ACCOUNT = "kai"
_NAMES_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_LIST_OF_NAMES = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_BOUND = "spec.nodeName!="


@attrs.frozen(kw_only=True)
class Size:
    """How large a cluster is, and how many pods come."""

    nodes: int = 500
    gpus: int = 8
    pods: int = 4000
    gang: int = 1
    """So many pods belong together and start together."""
    pools: int = 1
    """So many node pools share nodes, queues and pods; each of several has a label."""


@attrs.frozen
class Scheduler:
    """The program that is measured."""

    name: str
    daemon: Daemon


@contextmanager
def bare_control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Run an API server on which kai is installed.

    Raises: LookupError if its programs are not built.
    """
    found = programs.find()
    if found is None:
        raise LookupError("kube-apiserver: found none, expected it to be built by python -m tests.integration.programs")
    plane = ControlPlane.start(found, folder, controllers=())  # what is measured has the machine for itself
    try:
        install(plane, DEPLOY)
        yield plane
    finally:
        plane.stop()


@contextmanager
def control_plane(folder: Path, size: Size) -> Iterator[ControlPlane]:
    """Run an API server that has nodes and queues.

    Raises: as ``bare_control_plane``.
    """
    with bare_control_plane(folder) as plane:
        admin = plane.admin
        admin.ensure(an_object("v1", "Namespace", NAMESPACE))
        for pool in range(size.pools):
            top, team = queue_of("top", pool), queue_of("team", pool)
            for name, parent in ((top, ""), (team, top)):
                spec = {"parentQueue": parent, "resources": dict.fromkeys(("cpu", "memory", "gpu"), _SHARE)}
                labels = in_pool(pool, size.pools)
                admin.ensure(an_object("scheduling.run.ai/v2", "Queue", name, metadata={"labels": labels}, spec=spec))
        each(range(size.nodes), lambda number: _make_node(admin, number, size))
        yield plane


def queue_of(name: str, pool: int) -> str:
    """Return the name of a queue of a node pool."""
    return f"{name}-{pool}" if pool else name


def in_pool(number: int, pools: int) -> dict[str, str]:
    """Return the label that puts the object of a number into one of several node pools."""
    return {POOL_LABEL: pool_name(number % pools)} if pools > 1 else {}


def pool_name(pool: int) -> str:
    """Return the name of a node pool."""
    return f"pool-{pool}"


def _make_node(admin: Api, number: int, size: Size) -> None:
    name, gpus = f"node-{number:04d}", size.gpus
    there = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"allocatable": there, "capacity": there, "conditions": [ready]}
    labels = {"kubernetes.io/hostname": name, **in_pool(number, size.pools)}
    admin.create(an_object("v1", "Node", name, metadata={"labels": labels}, status=status))


@contextmanager
def kai(
    plane: ControlPlane, folder: Path, flags: tuple[str, ...] = (), *, roles: tuple[str, ...] = (), log: str = "kai"
) -> Iterator[Scheduler]:
    """Run kai: all roles in one process, as ``deploy`` does, or some of them."""
    metrics, probes, plugins = free_ports(3)
    config = plane.kubeconfig(plane.account("kai-scheduler", _ACCOUNT), _ACCOUNT)
    decides = not roles or "scheduler" in roles
    command = (
        *(sys.executable, "-m", "kai", "run", *roles, f"--kubeconfig={config}"),
        f"--{'listen-address' if decides else 'metrics-bind-address'}=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
        *((f"--plugin-server-port={plugins}",) if decides else ()),
        *flags,
    )
    with _running(Scheduler("kai-scheduler", Daemon(command, folder / f"{log}.log")), probes) as scheduler:
        yield scheduler


@contextmanager
def kube_scheduler(plane: ControlPlane, folder: Path, program: Path) -> Iterator[Scheduler]:
    """Run Kubernetes' own scheduler without its brake on requests, to compare with."""
    (port,) = free_ports(1)
    config = plane.kubeconfig(plane.admin, "kube-scheduler")
    command = (
        *(str(program), f"--kubeconfig={config}", "--leader-elect=false", f"--secure-port={port}"),
        *(f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}"),
        *("--kube-api-qps=5000", "--kube-api-burst=5000"),
    )
    daemon = Daemon(command, folder / "kube-scheduler.log")
    with _running(Scheduler("default-scheduler", daemon), 0) as scheduler:
        time.sleep(5.0)
        yield scheduler


@contextmanager
def _running(scheduler: Scheduler, probes: int) -> Iterator[Scheduler]:
    scheduler.daemon.start()
    try:
        if probes:
            await_ready(scheduler.daemon, probes, scheduler.name)
        yield scheduler
    finally:
        scheduler.daemon.stop()


# --- Pods ----------------------------------------------------------------------------------------------------------


def create_pods(admin: Api, size: Size, scheduler: str) -> None:
    """Create the crowd, several at a time; the pods of a gang belong to a Job that says so."""
    owners = {} if size.gang == 1 else _make_jobs(admin, size)

    def create(number: int) -> None:
        gang = number // size.gang
        admin.create(_pod(number, scheduler, owners.get(gang), pool=gang % size.pools, pools=size.pools))

    each(range(size.pods), create)


def create_lone_pod(admin: Api, number: int, scheduler: str) -> None:
    """Create one pod that belongs to nothing."""
    admin.create(_pod(number, scheduler, None))


def _make_jobs(admin: Api, size: Size) -> dict[int, Manifest]:
    owners = {}
    for number in range(-(-size.pods // size.gang)):
        template = {"spec": {"restartPolicy": "Never", "containers": [_container()]}}
        spec = {"parallelism": size.gang, "completions": size.gang, "suspend": False, "template": template}
        annotations = {"kai.scheduler/batch-min-member": str(size.gang)}
        labels = {"kai.scheduler/queue": queue_of("team", number % size.pools), **in_pool(number, size.pools)}
        metadata = {"annotations": annotations, "labels": labels}
        job = an_object("batch/v1", "Job", f"job-{number:04d}", NAMESPACE, metadata=metadata, spec=spec)
        owners[number] = admin.create(job)
    return owners


def _pod(number: int, scheduler: str, owner: Manifest | None, *, pool: int = 0, pools: int = 1) -> Manifest:
    metadata: dict[str, Any] = {"labels": {"kai.scheduler/queue": queue_of("team", pool), **in_pool(pool, pools)}}
    if owner is not None:
        link = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        metadata["ownerReferences"] = [{**link, **{key: owner["metadata"][key] for key in ("name", "uid")}}]
    spec = {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [_container()]}
    return an_object("v1", "Pod", f"pod-{number:05d}", NAMESPACE, metadata=metadata, spec=spec)


def _container() -> Manifest:
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    return {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}


class Binds:
    """Counts the pods that got their nodes, by a watch of names only: lists would cost more than what they count."""

    def __init__(self, admin: Api, wanted: int) -> None:
        self._admin = admin
        self._wanted = wanted
        self._left = wanted
        self._last = 0.0
        self._instants: SimpleQueue[float] = SimpleQueue()
        self._thread = threading.Thread(target=self._count, daemon=True)
        # The first watch begins before anything is created.
        self._watch(admin.request("GET", _PODS, limit=1)["metadata"]["resourceVersion"])
        self._thread.start()

    def _watch(self, version: str) -> None:
        query = urlencode({"watch": 1, "fieldSelector": _BOUND, "resourceVersion": version})
        at = urlsplit(self._admin.url)
        context = ssl.create_default_context(cafile=self._admin.ca_file)
        self._connection = HTTPSConnection(at.hostname or "", at.port, timeout=600, context=context)
        headers = {"Authorization": f"Bearer {self._admin.token}", "Accept": _NAMES_ONLY}
        self._connection.request("GET", f"{_PODS}?{query}", headers=headers)

    def _count(self) -> None:
        while self._left:
            response = self._connection.getresponse()
            while self._left and (line := response.readline()):
                if b'"ADDED"' in line[:40]:
                    self._left -= 1
                    self._instants.put(time.monotonic())
            self._connection.close()
            if self._left:  # A server ends watches that it cannot keep up with.
                listed = self._admin.request("GET", _PODS, accept=_LIST_OF_NAMES, fieldSelector=_BOUND)
                self._left = self._wanted - len(listed["items"])
                self._watch(listed["metadata"]["resourceVersion"])
        self._last = time.monotonic()

    def next(self, seconds: float) -> float:
        """Wait for the next pod that is bound, and return when it was.

        Raises: TimeoutError.
        """
        try:
            return self._instants.get(timeout=seconds)
        except Empty:
            raise TimeoutError(f"no pod got its node within {seconds:g} s") from None

    def wait(self, seconds: float) -> float:
        """Wait until all are bound, and return when the last one was.

        Raises: TimeoutError.
        """
        self._thread.join(seconds)
        if self._left:
            raise TimeoutError(f"{self._left} pods are without a node after {seconds:g} s")
        return self._last


def run_pods(admin: Api) -> None:
    """Let all pods run, as kubelets would."""
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}

    def start(pod: Manifest) -> None:
        admin.patch(pod, status, subresource="status", content_type="application/strategic-merge-patch+json")

    each(admin.list("v1", "Pod", NAMESPACE), start)


def an_object(version: str, kind: str, name: str, namespace: str = "", **body: object) -> Manifest:
    """Return a manifest."""
    metadata = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **cast("Manifest", body.pop("metadata", {})),
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def each(items: Iterable[Any], act: Callable[[Any], object], *, threads: int = 8) -> None:
    """Do something with every item, several at a time.

    Raises: whatever went wrong first.
    """
    waiting: SimpleQueue[Any] = SimpleQueue()
    for item in items:
        waiting.put(item)
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            try:
                item = waiting.get_nowait()
            except Empty:
                return
            try:
                act(item)
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits for the threads
                errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
