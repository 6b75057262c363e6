"""Jobs together with queues and nodes: faults that only show when all objects of an input are checked together.

`kai lint` checks files alone; commands that decide check them together with the objects of a cluster.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.fields import EMPTY
from kai.basics.parsing import mapping_of, mappings_of, part_of
from kai.basics.wording import counted, first_of
from kai.manifests.expansion import Job
from kai.manifests.findings import Document, Finding, Path
from kai.manifests.gpus import Claims, Place, check_claims, gpus_of
from kai.manifests.keys import Nodes, check_keys, check_nodes, nearest_key
from kai.manifests.manifest_reading import Reading
from kai.manifests.queues import check_access, check_models, check_notes, check_queues, parent_of, queues_of
from kai.manifests.refused import check_refused
from kai.manifests.unused import check_priorities, classes_of, pods_in, templates
from kai.manifests.workloads import trainer
from kai.manifests.workloads.serving import DYNAMO_QUEUE

_SHOWN: Final = 5
_WHERE_QUEUES_COUNT: Final[Mapping[str, str]] = {
    "PodCliqueSet": "put it into the labels of each clique",
    "CronJob": "put it into spec.jobTemplate.metadata.labels",
    "Service": "put it into spec.template.metadata.labels",  # of Knative; one of Kubernetes has no jobs
}
"""Kinds whose own queue label does not reach the objects that their controllers create, and where to put the label."""


@attrs.frozen(kw_only=True)
class Beside:
    """The objects of the cluster that documents are applied to, as far as findings depend on them."""

    queues: Mapping[str, str] = EMPTY
    """Parents of queues by queue name."""
    classes: frozenset[str] = frozenset()
    """Names of priority classes."""
    nodes: Nodes = attrs.field(factory=Nodes)
    claims: Collection[Place] | None = None
    """Claims and claim templates; None if they are not known."""
    namespace: str = "default"
    """The namespace for objects that name none."""


def lint(reading: Reading, beside: Beside | None = None) -> list[Finding]:
    """Return every finding about an input: of its documents one by one, and of all together."""
    beside = Beside() if beside is None else beside
    parents = {**beside.queues, **{name: parent_of(queue) for name, queue in queues_of(reading.documents).items()}}
    unread = {(finding.file, finding.line, finding.column) for finding in reading.findings}
    later = [
        *check_queues(reading.documents, beside.queues),
        *_check_jobs(reading, parents),
        *check_priorities(reading.documents, classes_of(reading.documents) | beside.classes),
        *check_nodes(reading.documents, Nodes.written(reading.documents).beside(beside.nodes)),
    ]
    # A value that cannot be read is not checked further.
    found = [*reading.findings, *(each for each in later if (each.file, each.line, each.column) not in unread)]
    said = {(each.file, each.line, each.column) for each in found}
    manifests = [document.manifest for document in reading.documents]
    claims = Claims.of(manifests, beside.namespace)
    # Without nodes the input is not a whole cluster, and claims may be elsewhere.
    if beside.claims is not None or any(map(_is_node, reading.documents)):
        found += check_claims(reading.documents, {*claims.found, *(beside.claims or ())}, beside.namespace)
    for document in reading.documents:
        found += [
            *_foreign(document, claims, reading),
            *_groups_of_others(document, reading.scheduler),
            *_former_fields(document),
            *check_keys(document),
        ]
        # A fault at the place of another finding is not reported again in other words.
        found += [each for each in check_refused(document) if (each.file, each.line, each.column) not in said]
    found += [*_without_model(reading), *_unused_labels(reading)]
    found += [*check_access(reading), *check_models(reading.documents), *check_notes(reading.documents)]
    return sorted(dict.fromkeys(found), key=lambda each: (each.file, each.line, each.column, each.code))


def _check_jobs(reading: Reading, parents: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings for jobs whose queue does not exist, or is no leaf, and for gangs larger than their workload.

    ``parents`` has all queues with their parents; if it is empty, only an empty queue name is reported.
    """
    seen: set[int] = set()
    for job in reading.expansion.jobs:
        # Jobs of one workload share its faults; a job without an object in the input has no place to show.
        if job.at in seen or job.at < 0:
            continue
        seen.add(job.at)
        document = reading.documents[job.at]
        yield from _queue(document, job, parents)
        yield from _gang(document, job)


@attrs.frozen
class QueueFault:
    """A fault in the name of a queue: a code, message and hint, and the name of a better queue."""

    code: str
    message: str
    hint: str
    better: str


def queue_fault(queue: str, parents: Mapping[str, str]) -> QueueFault | None:
    """Return why a queue cannot run jobs, None if it can; ``parents`` has all queues with their parents."""
    if queue not in parents:
        near = difflib.get_close_matches(queue, parents, n=1)
        inner = set(parents.values())
        leaves = [name for name in parents if name not in inner and not _is_in_circle(name, parents)]
        known = f"leaf queues: {first_of(leaves, _SHOWN)}" if leaves else ""
        hint, better = (f"is it {near[0]}?", near[0]) if near else (known, leaves[0] if leaves else "")
        message = f"queue {queue} does not exist" if queue else "no queue is named"
        return QueueFault("J001", message, hint, better)
    below = _leaves(queue, parents)
    if not below:
        return None
    message = f"queue {queue} has children; only a leaf queue can run jobs"
    if _is_in_circle(queue, parents):
        return QueueFault("J002", message, "its parents form a circle, and no queue of it runs jobs", "")
    return QueueFault("J002", message, f"leaf queues below it: {first_of(below, _SHOWN)}", below[0])


def _queue(document: Document, job: Job, parents: Mapping[str, str]) -> Iterator[Finding]:
    queue = str(part_of(job.group, "spec", "queue") or "")
    path, key = _place_of_queue(document, queue)
    is_empty = not queue and bool(path) and document.text.has(document.number, (*document.path, *path))
    fault = queue_fault(queue, parents) if parents or is_empty else None
    if fault is None:
        return
    message = fault.message if path else f"no queue is named, and {fault.message}"
    if is_empty:
        message = f"{key} is empty, expected the name of a queue"
    # If a key is misspelt or misplaced, another finding reports that with its place.
    is_meant = not path and key == names.QUEUE and _means_queue(document)
    yield document.finding(
        fault.code,
        message,
        path or ("metadata", "name"),
        hint="" if is_meant else fault.hint,
        help=f"{key}: {fault.better}" if fault.better and not is_meant else "",
        found=queue,
        object=_title(job),
    )


def _gang(document: Document, job: Job) -> Iterator[Finding]:
    spec = mapping_of(job.group, "spec")
    parts = mappings_of(spec, "subGroups")
    is_group, is_kept = document.manifest.get("kind") == "PodGroup", "status" in document.manifest
    if is_group and not is_kept and parts and spec.get("minMember") is not None:
        message = f"minMember of {_title(job)} does not count beside its sub-groups"
        hint = "sub-groups say how many of their pods start together"
        yield document.finding("J027", message, ("spec", "minMember"), at_key=True, hint=hint)
    least = _least(spec, parts)
    if not job.pods or is_kept or least is None or least <= len(job.pods):
        return
    pods = counted(len(job.pods), "pod")
    path: Path = ("metadata", "annotations", names.MIN_MEMBER)
    if is_group:
        path = ("spec", "subGroups" if parts else "minMember")
    yield document.finding(
        "J017",
        f"a gang of {least} needs more than the {pods} of {_title(job)}",
        path,
        at_key=bool(parts) and is_group,
        hint=f"at most {len(job.pods)}",
        found=str(least),
        object=_title(job),
    )


def _least(spec: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many pods start together: the sum over leaves if there are sub-groups; None if it is not known."""
    if not parts:
        least = spec.get("minMember")
        return least if isinstance(least, int) else None
    if any(each.get("minSubGroup") is not None for each in (spec, *parts)):
        return None  # some sub-groups are optional
    parents = {each.get("parent") for each in parts}
    asked = [each.get("minMember") for each in parts if each.get("name") not in parents]
    return sum(each for each in asked if isinstance(each, int))


def _foreign(document: Document, claims: Claims, reading: Reading) -> Iterator[Finding]:
    """Yield findings for templates of another scheduler that request GPUs, or whose workload names a queue."""
    if str(document.manifest.get("apiVersion")).rpartition("/")[0] in reading.operators:
        return
    ours = reading.scheduler
    namespace = str(part_of(document.manifest, "metadata", "namespace") or "default")
    queue = part_of(document.manifest, "metadata", "labels", names.QUEUE)
    for path, template in pods_in(document.manifest):
        spec = mapping_of(template, "spec")
        shared = part_of(document.manifest, "spec", "schedulerName")  # some kinds have one for all of their pods
        # Dynamo's operator names kai itself, and so does its model.
        usual = ours if document.manifest.get("kind") == "DynamoGraphDeployment" else "default-scheduler"
        scheduler = str(spec.get("schedulerName") or shared or usual)
        if scheduler == ours or spec.get("nodeName") or not (path or _is_pod(document)):
            continue
        of_template = part_of(template, "metadata", "labels", names.QUEUE)
        place = (*path, "spec", "schedulerName") if "schedulerName" in spec else (*path, "spec")
        asks = gpus_of(template) > 0 or claims.gpus_of(template, namespace) > 0
        if asks or queue or of_template:
            what = "the pods ask for GPUs" if asks else f"queue {of_template or queue} is named"
            yield document.finding(
                "J003" if asks else "J042",
                f"{what}, and {scheduler} places {'them' if asks else 'the pods'}",
                place,
                hint="kai places pods that name it",
                help=f"schedulerName: {ours}",
                found=scheduler,
                expected=ours,
            )


def _groups_of_others(document: Document, scheduler: str) -> Iterator[Finding]:
    """Yield findings for pods of the given scheduler that name a pod group of Kubernetes."""
    for path, template in pods_in(document.manifest):
        spec = mapping_of(template, "spec")
        if spec.get("schedulerName") == scheduler and spec.get("schedulingGroup"):
            group = part_of(spec, "schedulingGroup", "podGroupName")
            yield document.finding(
                "J043",
                f"schedulingGroup does not count with {scheduler}: the pods do not wait for each other",
                (*path, "spec", "schedulingGroup"),
                at_key=True,
                hint="a PodGroup of scheduling.run.ai says how many pods start together",
                help=f"metadata: {{annotations: {{{names.POD_GROUP}: {group or 'NAME'}}}}}",
            )


def _former_fields(document: Document) -> Iterator[Finding]:
    """Yield a finding for the field of a TrainJob that Kubeflow Trainer had before release 2.2.0."""
    group = str(document.manifest.get("apiVersion")).rpartition("/")[0]
    if (group, document.manifest.get("kind")) != (trainer.GROUP, "TrainJob"):
        return
    if part_of(document.manifest, "spec", trainer.FORMER_PATCHES) is not None:
        # A warning: files do not say which release a cluster has, and earlier ones read the field.
        yield document.finding(
            "J044",
            f"{trainer.FORMER_PATCHES} is no field since Kubeflow Trainer 2.2.0: labels and tolerations get lost",
            ("spec", trainer.FORMER_PATCHES),
            at_key=True,
            hint=f"write {trainer.PATCHES}",
            help=f"{trainer.PATCHES}:",
        )


def _unused_labels(reading: Reading) -> Iterator[Finding]:
    """Yield findings for queue labels on workloads whose jobs are in another queue regardless."""
    queues: dict[int, set[str]] = {}
    for job in reading.expansion.jobs:
        if job.at >= 0:
            queues.setdefault(job.at, set()).add(str(part_of(job.group, "spec", "queue") or ""))
    for at, found in queues.items():
        document = reading.documents[at]
        label = part_of(document.manifest, "metadata", "labels", names.QUEUE)
        kind = str(document.manifest.get("kind"))
        if label and kind in _WHERE_QUEUES_COUNT and label not in found:
            yield document.finding(
                "J021",
                f"{names.QUEUE} on the {kind} does not count, and the job is in queue {', '.join(sorted(found))}",
                ("metadata", "labels", names.QUEUE),
                at_key=True,
                hint=_WHERE_QUEUES_COUNT[kind],
                found=str(label),
            )


def _without_model(reading: Reading) -> Iterator[Finding]:
    for each in reading.expansion.not_expanded:
        yield reading.documents[each.at].finding("J019", each.message, ("kind",))


def _is_node(document: Document) -> bool:
    name = part_of(document.manifest, "metadata", "name")
    return document.manifest.get("kind") == "Node" and isinstance(name, str)


def _place_of_queue(document: Document, queue: str) -> tuple[Path, str]:
    """Return the path at which a document names the queue, and the key; an empty path if it does not name it."""
    manifest = document.manifest
    if manifest.get("kind") == "PodGroup":
        return ("spec", "queue"), "queue"
    if manifest.get("kind") == "DynamoGraphDeployment":
        path: Path = ("metadata", "annotations", DYNAMO_QUEUE)
        return path if document.text.has(document.number, (*document.path, *path)) else (), DYNAMO_QUEUE
    for path, holder in ((), manifest), *templates(manifest):
        labels = mapping_of(holder, "metadata", "labels")
        if labels.get(names.QUEUE) == queue:
            return (*path, "metadata", "labels", names.QUEUE), names.QUEUE
    return (), names.QUEUE


def _means_queue(document: Document) -> bool:
    """Return whether an object has the queue key where it has no effect, or a misspelt one."""
    metadata = mapping_of(document.manifest, "metadata")
    labels, annotations = mapping_of(metadata, "labels"), mapping_of(metadata, "annotations")
    return names.QUEUE in {*labels, *annotations} or names.QUEUE in map(nearest_key, map(str, labels))


def _is_in_circle(queue: str, parents: Mapping[str, str]) -> bool:
    """Return whether the parents of a queue lead into a circle."""
    seen: set[str] = set()
    at = queue
    while at in parents and at not in seen:
        seen.add(at)
        at = parents[at]
    return at in seen


def _leaves(queue: str, parents: Mapping[str, str], seen: frozenset[str] = frozenset()) -> list[str]:
    """Return the leaf queues below a queue."""
    found: list[str] = []
    for child, parent in parents.items():
        if parent == queue and child not in seen and child != queue:
            found += _leaves(child, parents, seen | {queue}) or [child]
    return found


def _title(job: Job) -> str:
    metadata = mapping_of(job.group, "metadata")
    return f"job {metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _is_pod(document: Document) -> bool:
    return document.manifest.get("kind") == "Pod"
