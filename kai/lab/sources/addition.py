"""Adding a workload to a cluster as it is: manifests are read, expanded, grouped and merged.

Objects in the files replace those of the same kind and name, as `kubectl apply` would. Existing pods stay, and are not
part of the added workload.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from kai.answers.cases.case import Case, RefusedWorkload, with_claims_of_templates
from kai.api import names
from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of
from kai.lab.sources.judging import judge
from kai.manifests import Document, Finding, RefusedError, Surroundings, Unused
from kai.manifests.expansion import is_workload, numbered
from kai.manifests.gpus import CLAIM, TEMPLATE, VOLUME, Claims
from kai.manifests.keys import Nodes
from kai.manifests.lint import Beside, queue_fault
from kai.manifests.manifest_reading import Reading
from kai.manifests.workloads.making import Stage


@attrs.frozen(kw_only=True)
class LaterPods:
    """Pods of one job that its controller creates once a condition holds."""

    job: str
    once: str
    """The condition in words."""
    pods: int
    gpus: float
    """GPUs that they request together."""
    beside: float = 0.0
    """GPUs held by those existing pods of the job that keep running beside them."""


@attrs.frozen(kw_only=True)
class Addition:
    """A case with an added workload."""

    case: Case
    jobs: frozenset[str]
    """``namespace/name`` of every added pod group."""
    findings: tuple[Finding, ...] = ()
    refused: tuple[RefusedWorkload, ...] = ()
    unused: tuple[Unused, ...] = ()
    later: tuple[LaterPods, ...] = ()
    """Pods that controllers create later; they are not in the case."""


def add(
    case: Case,
    documents: Sequence[Document],
    *,
    queue: str = "",
    copies: int = 1,
    namespace: str = "",
    operators: frozenset[str] = frozenset(),
) -> Addition:
    """Return ``case`` with ``copies`` copies of the workloads in ``documents``, in ``queue`` if one is named.

    Refused workloads are left out. Where all are refused, the case is unchanged.

    Raises: RefusedError for ``queue`` if it runs no jobs, InputError where no workload is for this scheduler.
    """
    wanted = [_in_queue(document, queue) for document in documents] if queue else list(documents)
    wanted += [
        attrs.evolve(document, manifest=numbered(document.manifest, number))
        for number in range(2, copies + 1)
        for document in wanted
        if is_workload(document.manifest)
    ]
    beside = beside_of(case.objects, namespace or case.origin.namespace or "default")
    around = attrs.evolve(_surroundings(case, namespace, wanted), queue=queue, operators=operators, with_later=True)
    judged = judge(wanted, around, beside)
    reading = judged.reading
    fault = queue_fault(queue, {**beside.queues, **_parents(reading)}) if queue else None
    if fault is not None:
        better = f"--queue {fault.better}" if fault.better else ""
        message = f"{fault.message}; {fault.hint}"
        raise RefusedError([Finding(code=fault.code, message=message, file=f"--queue {queue}", help=better)])
    groups = [each for each in reading.objects if isinstance(each, PodGroup)]
    if not groups and not judged.refused:
        refused = RefusedError.of(each for each in judged.findings if each.is_refusal)
        if refused is not None:
            raise refused
        said = "; ".join(str(each) for each in reading.expansion.unused)
        raise InputError(f"{_files(documents)}: found no workload for this scheduler{f' ({said})' if said else ''}")
    _refuse_those_that_are_there(case, reading.objects, _files(documents))
    return Addition(
        case=attrs.evolve(case, objects=_merged(case, reading.objects), cycles=1, stable_cycles=0),
        jobs=frozenset(f"{each.metadata.namespace}/{each.metadata.name}" for each in groups),
        findings=judged.findings,
        refused=judged.refused,
        unused=reading.expansion.unused,
        later=tuple(_later(case, reading)),
    )


def _later(case: Case, reading: Reading) -> Iterator[LaterPods]:
    """Yield the pods that controllers create later, one entry for each job and condition; turns of one Job are one."""
    objects = case.objects
    held = [unstructure(each) for each in (*objects.resource_claims, *objects.resource_claim_templates)]
    claims = Claims.of([*held, *(document.manifest for document in reading.documents)])
    asked = {str(job.group["metadata"]["name"]): sum(map(claims.gpus_with, job.pods)) for job in reading.expansion.jobs}
    found: dict[tuple[str, str], LaterPods] = {}
    for each in reading.expansion.later:
        job, once = str(each.group["metadata"]["name"]), " and ".join(dict.fromkeys(map(str, each.conditions)))
        goes_on = all(condition.stage is not Stage.COMPLETE for condition in each.conditions)
        beside = asked.get(job, 0.0) if goes_on else 0.0
        known = found.get((job, once), LaterPods(job=job, once=once, pods=0, gpus=0.0, beside=beside))
        gpus = sum(map(claims.gpus_with, each.pods))
        found[job, once] = attrs.evolve(known, pods=known.pods + len(each.pods), gpus=known.gpus + gpus)
    yield from found.values()


def _refuse_those_that_are_there(case: Case, added: Iterable[ApiObject], files: str) -> None:
    """Refuse pods that exist: applying them again changes nothing. Pods of workloads get new names."""
    known = {key_of(pod) for pod in case.objects.pods}
    found = sorted(key for key in (key_of(each) for each in added if isinstance(each, Pod)) if key in known)
    if found:
        name = "/".join(found[0])
        raise InputError(
            f"{files}: pod {name}: found it in the cluster already, expected a workload that is not; "
            f"kai why {found[0][1]} explains it"
        )


def _surroundings(case: Case, namespace: str, documents: Sequence[Document]) -> Surroundings:
    objects = case.objects
    # Nodes become manifests only for DaemonSets, which have a pod on each: there may be thousands.
    on_each = any(document.manifest.get("kind") == "DaemonSet" for document in documents)
    nodes = [unstructure(each) for each in objects.nodes] if on_each else []
    head = {"apiVersion": names.POD_GROUP_VERSION, "kind": "PodGroup"}
    groups = [
        {**head, "metadata": {"name": each.metadata.name, "namespace": each.metadata.namespace}}
        for each in objects.pod_groups
    ]
    return Surroundings(
        scheduler_name=case.settings.scheduler_name,
        namespace=namespace or case.origin.namespace or "default",
        pods=frozenset(map(key_of, objects.pods)),
        objects=[*groups, *nodes, *(unstructure(each) for each in objects.priority_classes), *case.templates],
    )


def beside_of(objects: ClusterObjects, namespace: str = "default") -> Beside:
    """Return the parts of a cluster that findings about added documents depend on."""
    kinds = {"resource_claims": CLAIM, "resource_claim_templates": TEMPLATE, "persistent_volume_claims": VOLUME}
    return Beside(
        namespace=namespace,
        claims=frozenset((kind, *key_of(each)) for field, kind in kinds.items() for each in getattr(objects, field)),
        queues={queue.metadata.name: queue.spec.parent_queue or "" for queue in objects.queues},
        classes=frozenset(each.metadata.name for each in objects.priority_classes),
        nodes=Nodes.among(objects),
    )


def _parents(reading: Reading) -> dict[str, str]:
    """Return the queues of documents with their parents."""
    return {each.metadata.name: each.spec.parent_queue for each in reading.objects if isinstance(each, Queue)}


def _merged(case: Case, added: Sequence[ApiObject]) -> ClusterObjects:
    """Return the objects of a cluster with the added ones; new objects get the time of the case as creation time."""
    fields: dict[str, dict[Key, Any]] = {}
    for each in added:
        field = FIELD_OF.get(type(each))
        if field is None:
            continue
        kept = fields.get(field)
        if kept is None:
            kept = fields[field] = {key_of(known): known for known in getattr(case.objects, field)}
        key = key_of(each)
        if not (isinstance(each, Pod) and key in kept):
            kept[key] = _born(each, kept.get(key), case.now)
    merged = attrs.evolve(case.objects, **{field: tuple(kept.values()) for field, kept in fields.items()})
    return with_claims_of_templates(merged, {key_of(each) for each in added if isinstance(each, Pod)})


def _born(obj: ApiObject, known: ApiObject | None, now: float) -> ApiObject:
    """Return an object with the age of the one it replaces, or created now; the time in its manifest is ignored."""
    created = (now or obj.metadata.creation_timestamp) if known is None else known.metadata.creation_timestamp
    return attrs.evolve(obj, metadata=attrs.evolve(obj.metadata, creation_timestamp=created))


def _in_queue(document: Document, queue: str) -> Document:
    """Return a workload with another queue."""
    manifest = document.manifest
    if not is_workload(document.manifest):
        return document
    if manifest.get("kind") == "PodGroup":
        return attrs.evolve(document, manifest={**manifest, "spec": {**mapping_of(manifest, "spec"), "queue": queue}})
    metadata = mapping_of(manifest, "metadata")
    labels = {**mapping_of(metadata, "labels"), names.QUEUE: queue}
    return attrs.evolve(document, manifest={**manifest, "metadata": {**metadata, "labels": labels}})


def _files(documents: Sequence[Document]) -> str:
    return ", ".join(dict.fromkeys(document.text.name for document in documents)) or "input"
