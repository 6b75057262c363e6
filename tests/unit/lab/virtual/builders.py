"""Scenes for tests: manifests as texts, read as the command reads them."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from kai.lab.virtual.scenes.from_manifests import read_workload
from kai.lab.virtual.scenes.scene import Inputs, Scene
from kai.manifests import Document, documents_of, open_text

CASES = Path(__file__).parent / "cases"


def case(name: str) -> str:
    return (CASES / name).read_text(encoding="utf-8")


def scene_of(text: str, *, seed: int = 0, documents: Sequence[Document] = (), **changes: object) -> Scene:
    workload = read_workload([*documents, *documents_of(*open_text(text.encode(), "case.yaml"))], seed)
    scene = Scene(
        title="case",
        objects=workload.objects,
        arrivals=lambda: workload.plans,
        jobs=len(workload.plans),
        span=max(plan.arrival for plan in workload.plans),
        seed=seed,
        began=workload.began,
        inputs=Inputs(workload="case.yaml"),
    )
    return attrs.evolve(scene, **changes)  # type: ignore[arg-type]  # fields of a scene by name


def cluster(nodes: int = 1, gpus: int = 8, quota: int = 8) -> str:
    """Return nodes and one queue, all, whose quota is all of them."""
    parts = [
        f"""
apiVersion: v1
kind: Node
metadata: {{name: n{number}, labels: {{kubernetes.io/hostname: n{number}}}}}
status:
  capacity: {{cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}
  allocatable: {{cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}
  conditions: [{{type: Ready, status: "True"}}]
"""
        for number in range(1, nodes + 1)
    ]
    for name, parent in (("all", ""), ("work", "all")):
        parts.append(
            f"""
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec:
  parentQueue: "{parent}"
  resources:
    gpu: {{quota: {quota}, limit: -1, overQuotaWeight: 1}}
    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}
"""
        )
    return "---".join(parts)


def job(name: str, gpus: int = 1, *, kind: str = "Job", spec: str = "", more: str = "", **annotations: str) -> str:
    """Return one workload; annotations are those of simulations, with - for _."""
    said = "".join(
        f'    simulation.kai.scheduler/{key.replace("_", "-")}: "{text}"\n' for key, text in annotations.items()
    )
    version = {"Job": "batch/v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1"}[kind]
    selector = "" if kind == "Job" else "  selector: {matchLabels: {app: x}}\n"
    restart = "Never" if kind == "Job" else "Always"
    return f"""---
apiVersion: {version}
kind: {kind}
metadata:
  name: {name}
  labels: {{kai.scheduler/queue: work, priorityClassName: train}}
  annotations:
    about: test
{said}spec:
{selector}{spec}  template:
    metadata: {{labels: {{app: x, kai.scheduler/queue: work, priorityClassName: train}}{more}}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: {restart}
      containers: [{{name: m, image: x, resources: {{limits: {{nvidia.com/gpu: "{gpus}"}}}}}}]
"""


def gang(name: str, *, pods: int, gpus: int, **annotations: str) -> str:
    """Return a pod group whose pods start together."""
    said = "".join(
        f'    simulation.kai.scheduler/{key.replace("_", "-")}: "{text}"\n' for key, text in annotations.items()
    )
    group = f"""---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata:
  name: {name}
  namespace: default
  annotations:
    about: test
{said}spec: {{queue: work, minMember: {pods}, priorityClassName: train}}
"""
    members = [
        f"""---
apiVersion: v1
kind: Pod
metadata: {{name: {name}-{number}, namespace: default, annotations: {{pod-group-name: {name}}}}}
spec:
  schedulerName: kai-scheduler
  containers: [{{name: m, image: x, resources: {{limits: {{nvidia.com/gpu: "{gpus}"}}}}}}]
"""
        for number in range(pods)
    ]
    return group + "".join(members)
