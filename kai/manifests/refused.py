"""What an API server refuses in a workload that is applied, field by field, before it is sent there.

``check_refused`` yields findings of one document; ``kai.manifests.containers`` has the rules of containers. Rules about
what must be given hold for kinds of Kubernetes itself; other controllers may fill in what is missing.

Source: the validation of Kubernetes, tried on a real API server; tests/unit/manifests/refused.yaml has the cases.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeGuard

from kai.api.documents import mapping_of
from kai.manifests.containers import faults_of_containers
from kai.manifests.faults import Fault, is_label, is_subdomain, items, key_fault, one_of, repeated, value_fault
from kai.manifests.findings import Document, Finding
from kai.manifests.positions import Path
from kai.manifests.unused import templates

_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})
_ALWAYS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"})
_SELECTING: Final = _ALWAYS - {"ReplicationController"}
_MOST_ANNOTATIONS: Final = 256 * 1024
_LONGEST_CRON: Final = 52
_CRON: Final = re.compile(r"\S+(?: +\S+){4}|@(?:yearly|annually|monthly|weekly|daily|midnight|hourly|every \S+)")


def check_refused(document: Document) -> Iterator[Finding]:
    """Yield what an API server refuses in a document; of an object that comes from one, nothing."""
    manifest = document.manifest
    metadata = mapping_of(manifest.get("metadata"))
    if metadata.get("resourceVersion") or not isinstance(manifest.get("kind"), str):
        return
    for fault in _faults(manifest, metadata):
        name = str(fault.path[-1])
        yield document.finding(
            "J024",
            f"{name}: found {fault.found}, expected {fault.expected}",
            fault.path,
            found=fault.found,
            expected=fault.expected,
            hint=f"must be {fault.expected}",
        )


def _faults(manifest: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Fault]:
    kind = str(manifest["kind"])
    is_own = str(manifest.get("apiVersion")).rpartition("/")[0] in _OWN_GROUPS
    is_pod = is_own and kind == "Pod"
    pods = [((), manifest)] if is_pod else templates(manifest) or (_bare_template(manifest) if is_own else [])
    if not pods:
        return
    yield from _of_metadata(metadata, ("metadata",))
    if isinstance(metadata.get("name"), str) and not is_subdomain(metadata["name"]):
        yield Fault(("metadata", "name"), f'"{metadata["name"]}"', "lower case letters, digits, '-' and '.'")
    if isinstance(metadata.get("namespace"), str) and metadata["namespace"] and not is_label(metadata["namespace"]):
        yield Fault(("metadata", "namespace"), f'"{metadata["namespace"]}"', "lower case letters, digits and '-'")
    if is_own and not is_pod:
        yield from _of_controller(kind, mapping_of(manifest.get("spec")), metadata)
    for path, template in pods:
        spec = mapping_of(template.get("spec"))
        if not is_pod:
            yield from _of_metadata(mapping_of(template.get("metadata")), (*path, "metadata"))
        yield from faults_of_containers(spec, (*path, "spec"), is_own=is_own)
        yield from _of_pod(spec, (*path, "spec"))


def _bare_template(manifest: Mapping[str, Any]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the pod template of a controller of Kubernetes that names no container, as it is."""
    path: Path = ("spec", "template")
    if manifest.get("kind") == "CronJob":
        path = ("spec", "jobTemplate", *path)
    found: Any = manifest
    for key in path:
        found = mapping_of(found).get(str(key))
    return [(path, found)] if isinstance(found, Mapping) and "spec" in found else []


def _of_metadata(metadata: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    labels, annotations = mapping_of(metadata.get("labels")), mapping_of(metadata.get("annotations"))
    for key, value in labels.items():
        yield from key_fault((*path, "labels", str(key)), key)
        yield from value_fault((*path, "labels", str(key)), value)
    for key in annotations:
        yield from key_fault((*path, "annotations", str(key)), key)
    size = sum(len(str(text).encode()) for pair in annotations.items() for text in pair)
    if size > _MOST_ANNOTATIONS:
        yield Fault((*path, "annotations"), f"{size} bytes", f"at most {_MOST_ANNOTATIONS}")


def _of_controller(kind: str, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Fault]:
    at: Path = ("spec",)
    if kind == "CronJob":
        schedule = spec.get("schedule")
        if not isinstance(schedule, str) or not _CRON.fullmatch(schedule.strip()):
            yield Fault((*at, "schedule"), _shown(schedule), "five fields, as in 0 3 * * *")
        yield from one_of(at, spec, "concurrencyPolicy", ("Allow", "Forbid", "Replace"))
        if len(str(metadata.get("name", ""))) > _LONGEST_CRON:
            yield Fault(("metadata", "name"), "a longer name", f"at most {_LONGEST_CRON} characters")
        inner = mapping_of(mapping_of(spec.get("jobTemplate")).get("spec"))
        yield from _of_job(inner, (*at, "jobTemplate", "spec"))
    elif kind == "Job":
        yield from _of_job(spec, at)
        if spec.get("selector") and not spec.get("manualSelector"):
            yield Fault((*at, "selector"), "a selector", "none: the Job controller makes it")
    if kind in _SELECTING:
        yield from _of_selector(spec, at)
    if kind in _ALWAYS:
        inner = mapping_of(mapping_of(spec.get("template")).get("spec"))
        policy = inner.get("restartPolicy")
        if policy not in (None, "Always"):
            yield Fault((*at, "template", "spec", "restartPolicy"), _shown(policy), f"Always in a {kind}")
        if inner.get("activeDeadlineSeconds") is not None:
            yield Fault((*at, "template", "spec", "activeDeadlineSeconds"), "a deadline", f"none in a {kind}")
    if kind == "StatefulSet":
        yield from one_of(at, spec, "podManagementPolicy", ("OrderedReady", "Parallel"))


def _of_job(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    template = mapping_of(mapping_of(spec.get("template")).get("spec"))
    policy = template.get("restartPolicy")
    if template and policy in (None, "Always"):
        yield Fault((*at, "template", "spec", "restartPolicy"), _shown(policy), "OnFailure or Never in a Job")
    yield from one_of(at, spec, "completionMode", ("NonIndexed", "Indexed"))
    limit = spec.get("backoffLimit")
    if _is_number(limit) and limit < 0:
        yield Fault((*at, "backoffLimit"), str(limit), "0 or more")


def _of_selector(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    selector = mapping_of(spec.get("selector"))
    wanted = mapping_of(selector.get("matchLabels"))
    if not wanted and not selector.get("matchExpressions"):
        yield Fault((*at, "selector"), "nothing", "the labels of the template")
        return
    labels = mapping_of(mapping_of(mapping_of(spec.get("template")).get("metadata")).get("labels"))
    for key, value in wanted.items():
        if labels.get(key) != value:
            found = f"{value} where the template has {labels.get(key, 'no such label')}"
            yield Fault((*at, "selector", "matchLabels", str(key)), found, "a label of the template")


def _of_pod(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    yield from one_of(at, spec, "restartPolicy", ("Always", "OnFailure", "Never"))
    yield from one_of(at, spec, "dnsPolicy", ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"))
    for field in ("nodeName", "serviceAccountName"):
        name = spec.get(field)
        if isinstance(name, str) and name and not is_subdomain(name):
            yield Fault((*at, field), f'"{name}"', "lower case letters, digits, '-' and '.'")
    deadline = spec.get("activeDeadlineSeconds")
    if _is_number(deadline) and deadline < 1:
        yield Fault((*at, "activeDeadlineSeconds"), str(deadline), "1 or more")
    for key, value in mapping_of(spec.get("nodeSelector")).items():
        yield from key_fault((*at, "nodeSelector", str(key)), key)
        yield from value_fault((*at, "nodeSelector", str(key)), value)
    yield from _of_gates(spec, at)
    yield from _of_tolerations(spec, (*at, "tolerations"))
    yield from _of_spreading(spec, (*at, "topologySpreadConstraints"))
    affinity = mapping_of(mapping_of(spec.get("affinity")).get("nodeAffinity"))
    yield from _of_node_affinity(affinity, (*at, "affinity", "nodeAffinity"))
    for place, volume in items(spec, "volumes", at):
        sources = [key for key in volume if key != "name" and volume[key] is not None]
        if len(sources) > 1:
            yield Fault((*place, sources[1]), f"{sources[0]} and {sources[1]}", "one source of a volume")
    yield from repeated(items(spec, "volumes", at), "name")


def _of_gates(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    gates = items(spec, "schedulingGates", at)
    for place, gate in gates:
        yield from key_fault((*place, "name"), gate.get("name"))
    yield from repeated(gates, "name")
    if gates and spec.get("nodeName"):
        yield Fault((*at, "nodeName"), f'"{spec["nodeName"]}"', "none while there are scheduling gates")


def _of_tolerations(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(spec, "tolerations", at[:-1]):
        operator = each.get("operator") or "Equal"
        if operator == "Exists" and each.get("value"):
            yield Fault((*place, "value"), _shown(each["value"]), "none beside operator Exists")
        if not each.get("key") and operator != "Exists":
            yield Fault((*place, "operator"), _shown(each.get("operator")), "Exists where no key is given")
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            yield Fault((*place, "effect"), _shown(each.get("effect")), "NoExecute beside tolerationSeconds")


def _of_spreading(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(spec, "topologySpreadConstraints", at[:-1]):
        if not each.get("topologyKey"):
            yield Fault((*place, "topologyKey"), "nothing", "a label of nodes")
        skew = each.get("maxSkew")
        if not _is_number(skew) or skew < 1:
            yield Fault((*place, "maxSkew"), _shown(skew), "1 or more")
        if each.get("whenUnsatisfiable") is None:
            yield Fault((*place, "whenUnsatisfiable"), "nothing", "DoNotSchedule or ScheduleAnyway")
        yield from one_of(place, each, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))


def _of_node_affinity(affinity: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if isinstance(required, Mapping):
        place = (*at, "requiredDuringSchedulingIgnoredDuringExecution")
        if not required.get("nodeSelectorTerms"):
            yield Fault((*place, "nodeSelectorTerms"), "no term", "at least one term")
        for where, term in items(required, "nodeSelectorTerms", place):
            yield from _of_expressions(term, where)
    for place, each in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution", at):
        weight = each.get("weight")
        if not _is_number(weight) or not 1 <= weight <= 100:
            yield Fault((*place, "weight"), _shown(weight), "1 to 100")
        yield from _of_expressions(mapping_of(each.get("preference")), (*place, "preference"))


def _of_expressions(term: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(term, "matchExpressions", at):
        yield from key_fault((*place, "key"), each.get("key"))
        operator, values = each.get("operator"), each.get("values")
        if operator in ("In", "NotIn") and not values:
            yield Fault((*place, "values"), "none", f"at least one value beside operator {operator}")
        if operator in ("Exists", "DoesNotExist") and values:
            yield Fault((*place, "values"), _shown(values), f"none beside operator {operator}")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is None or value == "":
        return "nothing"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f'"{value}"' if isinstance(value, str) else str(value)


__all__ = ["check_refused"]
