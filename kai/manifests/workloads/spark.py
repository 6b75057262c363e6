"""SparkApplications: a driver, and the executors that it creates once it runs.

Source: Kubeflow's Spark operator 2.5.0-rc.0, and Spark 3.5 for the amounts that its pods request.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from kai.basics.parsing import list_of, mapping_of, part_of, text_of
from kai.manifests.faults import exact_amount
from kai.manifests.workloads.making import Condition, Identity, Made, Stage, count, is_set, later, pods
from kai.roles.podgrouper.groupers.plain import SPARK_NAME, SPARK_SELECTOR
from kai.roles.podgrouper.resource import Fields, Resource

_MEBIBYTE: Final = 1 << 20
_LEAST_OVERHEAD: Final = 384
"""MiB. Source: Spark's spark.kubernetes.memoryOverhead."""
_OVERHEADS: Final = {"Python": Fraction(2, 5), "R": Fraction(2, 5)}
_USUAL: Final = Fraction(1, 10)
_KEPT: Final = ("affinity", "tolerations", "nodeSelector", "priorityClassName", "schedulerName", "initContainers")
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
"""Spark's units are those of Java: powers of 1024."""


def spark_application(workload: Resource) -> Iterator[Made]:
    """Yield the driver, and later the executors; none if the application is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    # Spark's own id of an application has random characters.
    known = {SPARK_NAME: workload.name, SPARK_SELECTOR: f"spark-{workload.name}"}
    labels = {"sparkoperator.k8s.io/app-name": workload.name, "spark-role": "driver", **known}
    name = text_of(workload.manifest, "spec", "driver", "podName") or f"{workload.name}-driver"
    (driver,) = pods(workload, _template(workload, "driver"), [Identity(name=name, labels=labels)])
    yield driver
    runs = Condition(stage=Stage.READY, labels=labels, subject="the driver")
    of_executor = {**labels, "spark-role": "executor"}
    identities = (
        Identity(name=f"{workload.name}-exec-{at + 1}", labels=of_executor) for at in range(_executors(workload))
    )
    for pod in pods(Resource.of(driver), _template(workload, "executor"), identities):
        yield later(pod, runs)


def _executors(workload: Resource) -> int:
    """Return the initial number of executors."""
    fields = workload.fields
    least = count(fields, "spec", "executor", "instances", default=1)
    if not is_set(fields, "spec", "dynamicAllocation", "enabled"):
        return least
    asked = [count(fields, "spec", "dynamicAllocation", key, default=0) for key in ("initialExecutors", "minExecutors")]
    stated = part_of(workload.manifest, "spec", "executor", "instances") is not None
    return max(*asked, least if stated else 0)


def _template(workload: Resource, role: str) -> Fields:
    """Return the pod template of a role: an optional template, overridden by the role's fields."""
    spec = mapping_of(workload.manifest, "spec")
    own, held = mapping_of(spec, role), mapping_of(spec, role, "template")
    pod: dict[str, Any] = {**mapping_of(held, "spec")}
    shared = {"nodeSelector": spec.get("nodeSelector")}
    pod |= {key: own.get(key) or shared.get(key) for key in _KEPT if own.get(key) or shared.get(key)}
    first, *others = list_of(pod, "containers") or [{}]
    container = {"name": f"spark-kubernetes-{role}", **mapping_of(first)}
    container["resources"] = _resources(workload, own, mapping_of(container, "resources"))
    pod["containers"] = [container, *others, *list_of(own, "sidecars")]
    pod["restartPolicy"] = "Never"
    metadata = {key: {**mapping_of(held, "metadata", key), **mapping_of(own, key)} for key in ("labels", "annotations")}
    return Fields({"metadata": metadata, "spec": pod}, f"{workload}", f"spec.{role}")


def _resources(workload: Resource, own: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    cores = own.get("coreRequest") or str(own.get("cores") or 1)
    memory = _memory(workload, own)
    requests = {**mapping_of(held, "requests"), "cpu": cores, "memory": memory}
    limits = {**mapping_of(held, "limits"), "memory": own.get("memoryLimit") or memory}
    if own.get("coreLimit"):
        limits["cpu"] = own["coreLimit"]
    gpu = mapping_of(own, "gpu")
    if gpu.get("name"):
        limits[str(gpu["name"])] = gpu.get("quantity", 1)
    return {**held, "requests": requests, "limits": limits}


def _memory(workload: Resource, own: Mapping[str, Any]) -> str:
    """Return the memory of a pod in MiB: that of the process, plus the overhead outside its heap."""
    base = _mebibytes(str(own.get("memory") or "1g"))
    stated = own.get("memoryOverhead")
    if stated:
        return f"{base + _mebibytes(str(stated))}Mi"
    spec = mapping_of(workload.manifest, "spec")
    factor = exact_amount(spec.get("memoryOverheadFactor")) or _OVERHEADS.get(str(spec.get("type")), _USUAL)
    return f"{base + max(int(base * factor), _LEAST_OVERHEAD)}Mi"


def _mebibytes(text: str) -> int:
    """Return an amount in Java's notation, ``2g`` or ``512m``, in MiB; a bare number is in MiB."""
    plain = text.strip().lower().removesuffix("b").removesuffix("i")
    number = exact_amount(plain.rstrip("".join(_UNITS)))
    return int((number or 0) * _UNITS.get(plain[-1:], _MEBIBYTE) / _MEBIBYTE)
