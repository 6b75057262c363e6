"""All roles in one process, as ``deploy/base`` runs them: the program, its account, its rights."""

import base64
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.client import Api, Manifest
from tests.integration.controlplane import ControlPlane, Daemon
from tests.integration.ports import free_ports
from tests.integration.processes import await_ready, shown
from tests.unit.deploy.rendering import DEPLOY, deployment, render

NAMESPACE = "kai-scheduler"
GPU = "nvidia.com/gpu"
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def an_object(version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Manifest:
    """Return a manifest."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **body.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def add_node(admin: Api, name: str, labels: Mapping[str, str], gpus: int = 4) -> None:
    """Add a node with GPUs of 80 GiB, as the GPU operator labels it."""
    found = {"kubernetes.io/hostname": name, "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": str(gpus)}
    node = an_object("v1", "Node", name, metadata={"labels": {**found, **labels}})
    admin.ensure(node)
    size = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    admin.patch(node, {"status": {"allocatable": size, "capacity": size}}, subresource="status")


def add_queues(admin: Api) -> None:
    """Add a queue ``team`` that may use everything."""
    everything = dict.fromkeys(("cpu", "memory", "gpu"), UNLIMITED)
    for name, parent in (("top", ""), ("team", "top")):
        admin.ensure(
            an_object("scheduling.run.ai/v2", "Queue", name, spec={"parentQueue": parent, "resources": everything})
        )


def shipped_arguments() -> list[str]:
    """Return what the shipped Deployment gives to the program, apart from ports."""
    (container,) = deployment(render(DEPLOY))["spec"]["template"]["spec"]["containers"]
    first, *rest = container["args"]
    assert first == "run"
    return [each for each in rest if "-port=" not in each and "-address=" not in each]


@contextmanager
def running(
    plane: ControlPlane, folder: Path, *flags: str, environment: Mapping[str, str] | None = None
) -> Iterator[Daemon]:
    """Run all roles; what they wrote to the log is shown when a test fails."""
    metrics, probes, plugins = free_ports(3)
    config = plane.kubeconfig(plane.account(NAMESPACE, "kai"), "kai")
    variables = [f"{name}={value}" for name, value in (environment or {}).items()]
    command = (
        *("env", *variables, sys.executable, "-m", "kai", "run", f"--kubeconfig={config}"),
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
        f"--plugin-server-port={plugins}",
        *shipped_arguments(),
        *flags,
    )
    daemon = Daemon(command, folder / "kai.log")
    daemon.start()
    with shown(daemon):
        await_ready(daemon, probes, "kai")
        yield daemon


@contextmanager
def serving_webhooks(
    plane: ControlPlane, folder: Path, *flags: str, components: tuple[str, ...] = ()
) -> Iterator[Daemon]:
    """Run the role admission as it is shipped, and have the API server ask it what it is to be asked.

    Flags and components of ``deploy`` come on top.

    The certificate is the API server's own: it is for this machine, and signed by itself.
    """
    port, metrics, probes = free_ports(3)
    certificates = folder / "certificates"
    certificates.mkdir()
    for ending in ("crt", "key"):
        shutil.copy(plane.folder / "certificates" / f"apiserver.{ending}", certificates / f"tls.{ending}")
    objects = render(DEPLOY / "components" / "webhooks", *(DEPLOY / "components" / name for name in components))
    for manifest in objects:
        if manifest["kind"] in {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "RoleBinding"}:
            plane.admin.apply(manifest)
    (container,) = deployment(objects, "admission")["spec"]["template"]["spec"]["containers"]
    shipped = [each for each in container["args"] if "-address=" not in each and "-addr=" not in each]
    config = plane.kubeconfig(plane.account(NAMESPACE, "admission"), "admission")
    command = (
        *(sys.executable, "-m", "kai", *shipped, f"--kubeconfig={config}", f"--webhook-addr={port}"),
        "--webhook-secret=",
        f"--webhook-cert-dir={certificates}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
        *flags,
    )
    daemon = Daemon(command, folder / "admission.log")
    daemon.start()
    with shown(daemon):
        await_ready(daemon, probes, "admission")
        authority = base64.b64encode((certificates / "tls.crt").read_bytes()).decode()
        for manifest in objects:
            for webhook in manifest.get("webhooks", ()):
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
            if "webhooks" in manifest:
                plane.admin.apply(manifest)
        yield daemon


def refused_calls(plane: ControlPlane) -> list[tuple[str, str, int]]:
    """Return the calls of kai that the server would not do for lack of rights, or because they made no sense."""
    user = f"system:serviceaccount:{NAMESPACE}:kai"
    found = ((event["verb"], event["requestURI"], event["responseStatus"]["code"]) for event in plane.audited(user))
    return [each for each in found if each[2] in {400, 403, 405, 415, 422}]


def own_environment(admin: Api, image: str) -> dict[str, str]:
    """Make the pod that the program would run in, and return what its environment says about it."""
    shipped = deployment(render(DEPLOY))["spec"]["template"]
    spec = {**shipped["spec"], "schedulerName": "nobody", "nodeName": "gateway"}
    spec["containers"] = [{**spec["containers"][0], "image": image}]
    pod = an_object("v1", "Pod", "kai-0", NAMESPACE, spec=spec)
    admin.ensure(pod)
    return {"POD_NAME": "kai-0", "POD_NAMESPACE": NAMESPACE, "HOME": os.environ.get("HOME", "/")}
