"""Deployments, ReplicaSets and StatefulSets: as many pods as replicas.

Source: the controllers of Kubernetes. Pods of a ReplicaSet are numbered here, where Kubernetes draws their names.
"""

from collections.abc import Iterator, Mapping

from kai.manifests.workloads.making import Identity, Made, child, count, pods
from kai.podgrouper.resource import Resource


def deployment(workload: Resource) -> Iterator[Made]:
    """Yield the ReplicaSet of the newest template."""
    replicas = count(workload.fields, "spec", "replicas", default=1)
    inner = {"replicas": replicas, "template": _template(workload)}
    yield child(workload, "apps/v1", "ReplicaSet", workload.name, inner, labels=dict(workload.labels))


def replica_set(workload: Resource) -> Iterator[Made]:
    """Yield a pod for each replica."""
    replicas = count(workload.fields, "spec", "replicas", default=1)
    identities = (Identity(name=f"{workload.name}-{index}") for index in range(replicas))
    yield from pods(workload, workload.fields.child("spec", "template"), identities)


def stateful_set(workload: Resource) -> Iterator[Made]:
    """Yield a pod for each replica, with its index.

    All of them are there at once: a controller that waits for each to be ready needs only longer.
    """
    replicas = count(workload.fields, "spec", "replicas", default=1)
    start = count(workload.fields, "spec", "ordinals", "start", default=0)
    identities = (
        Identity(
            name=f"{workload.name}-{index}",
            labels={
                "apps.kubernetes.io/pod-index": str(index),
                "statefulset.kubernetes.io/pod-name": f"{workload.name}-{index}",
            },
        )
        for index in range(start, start + replicas)
    )
    yield from pods(workload, workload.fields.child("spec", "template"), identities)


def notebook(workload: Resource) -> Iterator[Made]:
    """Yield the StatefulSet of a notebook: one pod, unless the notebook is stopped."""
    replicas = 0 if "kubeflow-resource-stopped" in workload.annotations else 1
    inner = {"replicas": replicas, "template": _template(workload)}
    yield child(workload, "apps/v1", "StatefulSet", workload.name, inner, labels=dict(workload.labels))


def _template(workload: Resource) -> Mapping[str, object]:
    template = workload.fields.child("spec", "template")
    if template is None:
        raise workload.error("spec.template", None, "a pod template")
    return template.value
