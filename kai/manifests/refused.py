"""The validation rules of an API server, applied to workloads field by field before they are sent.

``check_refused`` yields findings of one document. ``kai.manifests.faults`` has the rules of containers; affinities,
selectors, tolerations and spreading are checked here. Rules about required fields apply to Kubernetes' own kinds only;
other controllers may fill in missing fields.

Source: the validation of Kubernetes, tried on a real API server; tests/unit/manifests/refused.yaml has the cases.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kai.basics.parsing import is_number, mapping_of, mappings_of, part_of
from kai.basics.schedules import WANTED, Schedule
from kai.manifests.faults import (
    Fault,
    Item,
    at_least,
    faults_of_containers,
    is_label,
    is_subdomain,
    items,
    key_fault,
    one_of,
    repeated,
    shown,
    value_fault,
)
from kai.manifests.findings import Document, Finding, Path, field_of
from kai.manifests.unused import PATCHES
from kai.manifests.workloads.table import has_model, pod_templates
from kai.roles.podgrouper import Kind

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SETS, _PRESENCE, _COMPARISONS = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")
_MOST: Final = 1 << 63
_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})
# Spark adds its own container to a template, and the definitions of its kinds let any template pass.
_WITH_OWN_CONTAINERS: Final = frozenset({"sparkoperator.k8s.io"})
_ALWAYS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"})
# The selector of a ReplicationController defaults to the labels of its template; the others must have one.
_SELECTING: Final = _ALWAYS - {"ReplicationController"}
_POD_TEMPLATES: Final = frozenset({"template", "leaderTemplate", "workerTemplate"})
_POD_SPEC: Final = "podSpec"
# The limit is on bytes of keys and values together, not on the number of annotations.
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


def faults_of_selection(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    """Yield the faults in the spec of a pod."""
    yield from _of_tolerations(spec, at)
    yield from _of_spreading(spec, at)
    affinity = mapping_of(spec, "affinity")
    yield from _of_node_affinity(mapping_of(affinity, "nodeAffinity"), (*at, "affinity", "nodeAffinity"))
    for name in ("podAffinity", "podAntiAffinity"):
        yield from _of_pod_affinity(mapping_of(affinity, name), (*at, "affinity", name))


def _of_tolerations(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(spec, "tolerations", at):
        operator, value = each.get("operator") or "Equal", each.get("value")
        if operator == "Exists" and value:
            yield Fault((*place, "value"), shown(value), "none beside operator Exists")
        elif operator == "Equal":
            yield from value_fault((*place, "value"), value)
        elif operator in _COMPARISONS and not _is_integer(value, _DECIMAL):
            yield Fault((*place, "value"), shown(value), f"a whole number beside operator {operator}")
        if each.get("key"):
            yield from key_fault((*place, "key"), each["key"])
        elif operator != "Exists":
            yield Fault((*place, "operator"), shown(each.get("operator")), "Exists where no key is given")
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            yield Fault((*place, "effect"), shown(each.get("effect")), "NoExecute beside tolerationSeconds")
        elif each.get("effect"):
            yield from one_of(place, each, "effect", _EFFECTS)


def _of_spreading(spec: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    for place, each in items(spec, "topologySpreadConstraints", at):
        if not each.get("topologyKey"):
            yield Fault((*place, "topologyKey"), "nothing", "a label of nodes")
        skew = each.get("maxSkew")
        if not is_number(skew) or skew < 1:
            yield Fault((*place, "maxSkew"), shown(skew), "1 or more")
        yield from at_least(1, place, each, "minDomains")
        if each.get("whenUnsatisfiable") is None:
            yield Fault((*place, "whenUnsatisfiable"), "nothing", "DoNotSchedule or ScheduleAnyway")
        yield from one_of(place, each, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(place, each, field, ("Honor", "Ignore"))
        yield from _of_label_selector(mapping_of(each, "labelSelector"), (*place, "labelSelector"))


def _of_node_affinity(affinity: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    required = affinity.get(_REQUIRED)
    if isinstance(required, Mapping):
        place = (*at, _REQUIRED)
        if not required.get("nodeSelectorTerms"):
            yield Fault((*place, "nodeSelectorTerms"), "no term", "at least one term")
        for where, term in items(required, "nodeSelectorTerms", place):
            yield from _of_term(term, where)
    for place, each in items(affinity, _PREFERRED, at):
        yield from _of_weight(each, place)
        yield from _of_term(mapping_of(each, "preference"), (*place, "preference"))


def _of_pod_affinity(affinity: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    terms: list[Item] = items(affinity, _REQUIRED, at)
    for place, each in items(affinity, _PREFERRED, at):
        yield from _of_weight(each, place)
        terms.append(((*place, "podAffinityTerm"), mapping_of(each, "podAffinityTerm")))
    for place, term in terms:
        yield from key_fault((*place, "topologyKey"), term.get("topologyKey") or None)
        for field in ("labelSelector", "namespaceSelector"):
            yield from _of_label_selector(mapping_of(term, field), (*place, field))


def _of_weight(each: Mapping[str, Any], place: Path) -> Iterator[Fault]:
    weight = each.get("weight")
    if not is_number(weight) or not 1 <= weight <= 100:
        yield Fault((*place, "weight"), shown(weight), "1 to 100")


def _of_term(term: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    """Yield the faults in one alternative of a node affinity, and a comparison that holds for no node."""
    for place, each in items(term, "matchExpressions", at):
        yield from _of_expression(each, place, (*_SETS, *_PRESENCE, *_COMPARISONS))
        operator, values = each.get("operator"), each.get("values")
        # A list of another type is a fault of types, which `check_fields` reports.
        if operator not in _COMPARISONS or not isinstance(values, list | None):
            continue
        if len(values or ()) != 1:
            yield Fault(
                (*place, "values"), shown(values) if values else "none", f"one value beside operator {operator}"
            )
        elif values and isinstance(values[0], str) and not _is_integer(values[0], _WHOLE):
            expected = f"a whole number beside operator {operator}"
            yield Fault((*place, "values", 0), shown(values[0]), expected, code="J026")
    for place, each in items(term, "matchFields", at):
        yield from one_of(place, each, "operator", _SETS)
        yield from one_of(place, each, "key", ("metadata.name",))
        values = each.get("values")
        if isinstance(values, list | None) and len(values or ()) != 1:
            yield Fault((*place, "values"), shown(values) if values else "none", "one name of a node")


def _of_label_selector(selector: Mapping[str, Any], at: Path) -> Iterator[Fault]:
    """Yield the faults in a label selector."""
    for key, value in mapping_of(selector, "matchLabels").items():
        yield from key_fault((*at, "matchLabels", str(key)), key)
        yield from value_fault((*at, "matchLabels", str(key)), value)
    for place, each in items(selector, "matchExpressions", at):
        yield from _of_expression(each, place, (*_SETS, *_PRESENCE))


def _of_expression(each: Mapping[str, Any], place: Path, operators: Sequence[str]) -> Iterator[Fault]:
    yield from key_fault((*place, "key"), each.get("key"))
    operator, values = each.get("operator"), each.get("values")
    if operator not in operators:
        yield Fault((*place, "operator"), shown(operator), f"one of {', '.join(operators)}")
    if operator in _SETS and not values:
        yield Fault((*place, "values"), "none", f"at least one value beside operator {operator}")
    if operator in _PRESENCE and values:
        yield Fault((*place, "values"), shown(values), f"none beside operator {operator}")
    if operator in _SETS:
        for index, value in enumerate(values if isinstance(values, list) else ()):
            yield from value_fault((*place, "values", index), value)


def _is_integer(value: object, form: re.Pattern[str]) -> bool:
    """Return whether a text is an integer of 64 bits."""
    return isinstance(value, str) and form.fullmatch(value) is not None and -_MOST <= int(value) < _MOST


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
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    is_own = group in _OWN_GROUPS
    is_pod = is_own and kind == "Pod"
    pods = [((), manifest)] if is_pod else pod_templates(manifest) or (_bare_template(manifest) if is_own else [])
    yield from _of_metadata(metadata, ("metadata",))
    yield from _of_names(manifest, metadata)
    if kind == "PriorityClass":
        yield from _of_priority(manifest, metadata)
    if is_own and not is_pod:
        # Jobs have their counts checked with their other fields, also inside of a CronJob.
        if kind != "Job":
            yield from _of_counts(kind, mapping_of(manifest, "spec"), ("spec",))
        yield from _of_controller(kind, mapping_of(manifest, "spec"), metadata)
    is_modelled = has_model(Kind.of(str(manifest.get("apiVersion")), kind))
    if not is_own and is_modelled and group not in _WITH_OWN_CONTAINERS:
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
        if not isinstance(inner, str):
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
