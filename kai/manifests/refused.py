"""The validation rules of an API server, applied to workloads field by field before they are sent.

``check_refused`` yields findings of one document. ``kai.manifests.containers`` has the rules of containers, and
``kai.manifests.selection`` those of node and pod selection. Rules about required fields apply to Kubernetes' own kinds
only; other controllers may fill in missing fields.

Source: the validation of Kubernetes, tried on a real API server; tests/unit/manifests/refused.yaml has the cases.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.basics.parsing import is_number, mapping_of, mappings_of, part_of
from kai.basics.schedules import WANTED, Schedule
from kai.manifests.containers import faults_of_containers
from kai.manifests.faults import (
    Fault,
    at_least,
    is_label,
    is_subdomain,
    items,
    key_fault,
    one_of,
    repeated,
    shown,
    value_fault,
)
from kai.manifests.findings import Document, Finding, field_of
from kai.manifests.positions import Path
from kai.manifests.selection import faults_of_selection
from kai.manifests.unused import PATCHES
from kai.manifests.workloads.table import has_model, pod_templates
from kai.roles.podgrouper import Kind

_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})
_ALWAYS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"})
_SELECTING: Final = _ALWAYS - {"ReplicationController"}
_POD_TEMPLATES: Final = frozenset({"template", "leaderTemplate", "workerTemplate"})
_POD_SPEC: Final = "podSpec"
_MOST_ANNOTATIONS: Final = 256 * 1024
_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "CronJob": ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
    "DaemonSet": ("minReadySeconds", "revisionHistoryLimit"),
    "Deployment": ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    "Job": (
        *("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"),
        *("activeDeadlineSeconds", "ttlSecondsAfterFinished"),
    ),
    "ReplicaSet": ("minReadySeconds",),
    "StatefulSet": ("minReadySeconds",),
}
"""Fields of controllers that must not be negative, besides the number of replicas, for which pods are made."""
_HIGHEST_PRIORITY: Final = 1_000_000_000
_OF_THE_SYSTEM: Final = "system-"
_RBAC: Final = "rbac.authorization.k8s.io"
_LONGEST_CRON: Final = 52


def check_refused(document: Document) -> Iterator[Finding]:
    """Yield findings for the faults that an API server refuses; none for an object that comes from one."""
    manifest = document.manifest
    metadata = mapping_of(manifest, "metadata")
    if metadata.get("resourceVersion") or not isinstance(manifest.get("kind"), str):
        return
    for fault in _faults(manifest, metadata):
        # YAML changed the type of a key: on became true. Report it as it is written.
        written = document.text.written_key(document.number, (*document.path, *fault.path))
        expected = f'a string: "{written}"' if written else fault.expected
        # In generated files a line number says little: kustomize writes all objects into one file.
        whose = f" (in {document.title})" if document.title else ""
        yield document.finding(
            fault.code,
            f"{written or field_of(fault.path)}: found {fault.found}, expected {expected}{whose}",
            fault.path,
            at_key=bool(written),
            object=document.title,
            found=fault.found,
            expected=expected,
            hint=f"must be {expected}",
        )


def _faults(manifest: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Fault]:
    kind = str(manifest["kind"])
    is_own = str(manifest.get("apiVersion")).rpartition("/")[0] in _OWN_GROUPS
    is_pod = is_own and kind == "Pod"
    pods = [((), manifest)] if is_pod else pod_templates(manifest) or (_bare_template(manifest) if is_own else [])
    yield from _of_metadata(metadata, ("metadata",))
    yield from _of_names(manifest, metadata)
    if kind == "PriorityClass":
        yield from _of_priority(manifest, metadata)
    if is_own and not is_pod:
        if kind != "Job":
            yield from _of_counts(kind, mapping_of(manifest, "spec"), ("spec",))
        yield from _of_controller(kind, mapping_of(manifest, "spec"), metadata)
    is_modelled = has_model(Kind.of(str(manifest.get("apiVersion")), kind))
    if not is_own and is_modelled:
        for path in _without_containers(manifest):
            yield Fault((*path, "containers"), "none", "at least one container")
    for path, template in pods:
        spec = mapping_of(template, "spec")
        if not is_pod:
            yield from _of_metadata(mapping_of(template, "metadata"), (*path, "metadata"))
        # The controller of an unknown kind may add volumes.
        added = volumes_added(manifest) if is_own or is_modelled else None
        yield from faults_of_containers(spec, (*path, "spec"), is_own=is_own, added=added)
        yield from _of_pod(spec, (*path, "spec"))


def _bare_template(manifest: Mapping[str, Any]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the pod template of a Kubernetes controller, whether or not it has containers."""
    path: Path = ("spec", "template")
    if manifest.get("kind") == "CronJob":
        path = ("spec", "jobTemplate", *path)
    found: Any = manifest
    for key in path:
        found = part_of(found, str(key))
    return [(path, found)] if isinstance(found, Mapping) and "spec" in found else []


def _without_containers(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of pod specs without containers: the schemas of all these kinds require one, as a pod's does."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        here = (*path, key if isinstance(key, int) else str(key))
        if key in PATCHES:
            continue
        is_template = key in _POD_TEMPLATES and "kind" not in mapping_of(inner)  # else it is a whole embedded object
        spec = part_of(inner, "spec") if is_template else inner if key == _POD_SPEC else None
        if isinstance(spec, Mapping) and "template" not in spec:  # the template of a job has another template
            if spec.get("containers") in (None, []):
                yield here if key == _POD_SPEC else (*here, "spec")
        elif isinstance(inner, Mapping | list):
            yield from _without_containers(inner, here)


def volumes_added(value: object) -> frozenset[str]:
    """Return the names of the volumes that controllers add to pods: one for each claim template.

    Source: the controllers of StatefulSet and LeaderWorkerSet (volumeClaimTemplates) and JobSet (volumeClaimPolicies).
    """
    found: set[str] = set()
    if isinstance(value, Mapping):
        policies = mappings_of(value, "volumeClaimPolicies")
        claims = [
            *mappings_of(value, "volumeClaimTemplates"),
            *(each for at in policies for each in mappings_of(at, "templates")),
        ]
        found |= {str(part_of(each, "metadata", "name")) for each in claims}
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        found |= volumes_added(inner)
    return frozenset(found)


def _of_metadata(metadata: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    labels, annotations = mapping_of(metadata, "labels"), mapping_of(metadata, "annotations")
    for key, value in labels.items():
        yield from key_fault((*path, "labels", str(key)), key)
        yield from value_fault((*path, "labels", str(key)), value)
    for key in annotations:
        yield from key_fault((*path, "annotations", str(key)), key)
    size = sum(len(str(text).encode()) for pair in annotations.items() for text in pair)
    if size > _MOST_ANNOTATIONS:
        yield Fault((*path, "annotations"), f"{size} bytes", f"at most {_MOST_ANNOTATIONS}")


def _of_names(manifest: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Fault]:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    # Roles and their bindings may have any name that is valid in a URL path.
    is_free = str(manifest.get("apiVersion")).startswith(_RBAC)
    if isinstance(name, str) and name and not is_free and not is_subdomain(name):
        yield Fault(("metadata", "name"), f'"{name}"', "lower case letters, digits, '-' and '.'")
    if isinstance(namespace, str) and namespace and not is_label(namespace):
        yield Fault(("metadata", "namespace"), f'"{namespace}"', "lower case letters, digits and '-'")


def _of_priority(manifest: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Fault]:
    value = manifest.get("value")
    is_of_users = not str(metadata.get("name")).startswith(_OF_THE_SYSTEM)
    if is_number(value) and value > _HIGHEST_PRIORITY and is_of_users:
        yield Fault(("value",), str(value), f"at most {_HIGHEST_PRIORITY}")
    yield from one_of((), manifest, "preemptionPolicy", ("PreemptLowerPriority", "Never"))


def _of_schedule(schedule: object, at: Path) -> Iterator[Fault]:
    try:
        Schedule.read(schedule if isinstance(schedule, str) else "")
    except ValueError:
        yield Fault(at, shown(schedule), WANTED)


def _of_controller(kind: str, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Fault]:
    at: Path = ("spec",)
    if kind == "CronJob":
        yield from _of_schedule(spec.get("schedule"), (*at, "schedule"))
        yield from one_of(at, spec, "concurrencyPolicy", ("Allow", "Forbid", "Replace"))
        if len(str(metadata.get("name", ""))) > _LONGEST_CRON:
            yield Fault(("metadata", "name"), "a longer name", f"at most {_LONGEST_CRON} characters")
        inner = mapping_of(spec, "jobTemplate", "spec")
        yield from _of_job(inner, (*at, "jobTemplate", "spec"))
    elif kind == "Job":
        yield from _of_job(spec, at)
        if spec.get("selector") and not spec.get("manualSelector"):
            yield Fault((*at, "selector"), "a selector", "none: the Job controller makes it")
    if kind in _SELECTING:
        yield from _of_selector(spec, at)
    if kind in _ALWAYS:
        inner = mapping_of(spec, "template", "spec")
        policy = inner.get("restartPolicy")
        if policy not in (None, "Always"):
            yield Fault((*at, "template", "spec", "restartPolicy"), shown(policy), f"Always in a {kind}")
        if inner.get("activeDeadlineSeconds") is not None:
            yield Fault((*at, "template", "spec", "activeDeadlineSeconds"), "a deadline", f"none in a {kind}")
    if kind == "StatefulSet":
        yield from one_of(at, spec, "podManagementPolicy", ("OrderedReady", "Parallel"))


def _of_counts(kind: str, spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for field in _COUNTS.get(kind, ()):
        yield from at_least(0, at, spec, field)


def _of_job(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    template = mapping_of(spec, "template", "spec")
    policy = template.get("restartPolicy")
    if template and policy in (None, "Always"):
        yield Fault((*at, "template", "spec", "restartPolicy"), shown(policy), "OnFailure or Never in a Job")
    yield from one_of(at, spec, "completionMode", ("NonIndexed", "Indexed"))
    yield from _of_counts("Job", spec, at)


def _of_selector(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    selector = mapping_of(spec, "selector")
    wanted = mapping_of(selector, "matchLabels")
    if not wanted and not selector.get("matchExpressions"):
        yield Fault((*at, "selector"), "nothing", "the labels of the template")
        return
    labels = mapping_of(spec, "template", "metadata", "labels")
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
    yield from at_least(1, at, spec, "activeDeadlineSeconds")
    for key, value in mapping_of(spec, "nodeSelector").items():
        yield from key_fault((*at, "nodeSelector", str(key)), key)
        yield from value_fault((*at, "nodeSelector", str(key)), value)
    yield from _of_gates(spec, at)
    yield from faults_of_selection(spec, at)
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
