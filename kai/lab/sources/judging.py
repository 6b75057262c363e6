"""Judging documents as a cluster would: the findings of every rule, and the workloads that it refuses.

``kai.manifests.codes`` defines what each finding means for its object. `kai lint` reports findings; commands that
decide call ``judge``, so that no command starts a workload which another command reports as refused.

The refusals of kai's admission webhooks are predicted by the functions that answer the API server, so `kai lint`
accepts nothing that they refuse. Rules of ``kai.manifests`` find most of these faults earlier and with more help; the
same fault is not reported twice. Admission has settings that are not in the files. They are taken as `deploy/` sets
them: pods may share GPUs, and the quotas of queues are not compared.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.answers.cases.case import RefusedWorkload
from kai.api import names
from kai.api.codec import structuring
from kai.api.kinds import key_of
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.parsing import list_of, mapping_of, part_of, place_of
from kai.intake.groups import fault_of_tree
from kai.manifests import Document, Finding, RefusedError, Surroundings, read
from kai.manifests.expansion import Job, is_workload
from kai.manifests.findings import Path
from kai.manifests.gpus import gpus_of
from kai.manifests.lint import Beside, lint
from kai.manifests.manifest_reading import Reading
from kai.manifests.unused import names_scheduler
from kai.manifests.workloads.table import pod_templates
from kai.roles.admission import AdmissionRequest, AdmissionSettings, mutate, validate

if TYPE_CHECKING:
    from kai.manifests.findings import Origin


_SETTINGS: Final = AdmissionSettings(gpu_sharing_enabled=True)
_CODE: Final = "W001"
_KINDS: Final = frozenset({"PodGroup", "Queue", "Topology"})
_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("F001", "J010", "J011", "J012", "J013", "J014", "J015", "J016", "T003"),
    "PodGroup": ("F001", "J018", "J023", "T003"),
    "Queue": ("F001", "Q010", "Q014", "Q021", "T003"),
    "Topology": ("F001", "T003"),
}
"""By kind: error codes of other rules for faults that a webhook refuses in its own words."""
_ANNOTATIONS: Final = (
    ("MPS", names.MPS),
    ("gpu-memory annotation", names.GPU_MEMORY),
    ("cannot request both GPU and GPU memory", names.GPU_MEMORY),
    ("fraction count", names.GPU_FRACTION_DEVICES),
    ("cannot request multiple", names.GPU_FRACTION_DEVICES),
    ("failed to get fraction container", names.GPU_FRACTION_CONTAINER),
    ("gpu-fraction annotation", names.GPU_FRACTION),
    ("cannot have both GPU fraction", names.GPU_FRACTION),
)
"""The beginnings of webhook messages about a pod, and the annotation that each concerns."""
_FIELD: Final = re.compile(r"\b((?:spec|metadata)(?:\.\w+|\[\d+\])*)")
_STEP: Final = re.compile(r"\w+")
_SUB_GROUP: Final = re.compile(r'subgroup (?:name )?"?([^":]*)"?')


def refusals(documents: Sequence[Document], said: Iterable[Finding], jobs: Iterable[Job] = ()) -> Iterator[Finding]:
    """Yield what webhooks refuse in applied documents, unless ``said`` has an error for the same fault.

    ``jobs`` are the results of controllers and the pod grouper, which may have more than the templates. Objects from an
    API server are skipped: they were admitted, or are older than the webhooks.
    """
    known: dict[str, set[tuple[str, int]]] = {}
    for each in said:
        if each.is_error:
            known.setdefault(each.file, set()).add((each.code, each.line))
    fresh = {at: each for at, each in enumerate(documents) if not each.is_kept}
    wrong: set[int] = set()
    for at, document in fresh.items():
        for path, manifest in _asked(document):
            same = _SAME[str(manifest["kind"])]
            # Any line of the object: a rule and a webhook may place the same fault at different fields.
            alike = [line for code, line in known.get(document.text.name, ()) if code in same]
            if alike and not set(_lines(document, path)).isdisjoint(alike):
                wrong.add(at)
                continue
            for finding in _refused(document, path, manifest):
                wrong.add(at)
                yield finding
    # Pods that come from a refused template repeat its fault.
    for job in jobs:
        if job.at in fresh and job.at not in wrong:
            found = [each for made in _fresh(job) for each in _refused(fresh[job.at], (), made)]
            wrong |= {job.at} if found else set()
            # The group and the pods of a job mostly share a fault: one finding sends the user to the document.
            yield from found[:1]


def _fresh(job: Job) -> Iterator[Mapping[str, Any]]:
    """Yield the group and the pods of a job, one of each set of equal pods, without objects from an API server."""
    last: object = None
    for each in (job.group, *job.pods):
        asked = (part_of(each, "metadata", "annotations"), each.get("spec"))
        # Equal pods follow one another, so that a comparison with the one before suffices.
        if asked != last and not part_of(each, "metadata", "resourceVersion"):
            yield each
        last = asked


def with_refusals(
    documents: Sequence[Document], said: Sequence[Finding], jobs: Iterable[Job] = ()
) -> tuple[Finding, ...]:
    """Return findings in the order of their places; refusals of webhooks replace warnings at the same place."""
    refused = list(refusals(documents, said, jobs))
    places = {(each.file, each.line, each.column) for each in refused}
    kept = [each for each in said if each.is_error or (each.file, each.line, each.column) not in places]
    return tuple(sorted([*kept, *refused], key=lambda each: (each.file, each.line, each.column, each.code)))


def _asked(document: Document) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the parts of a document that webhooks review: the object itself, or pods from its templates."""
    manifest = document.manifest
    known = structuring.kind_of(manifest)
    if manifest.get("kind") == "Pod" or (known is not None and known.kind in _KINDS):
        yield (), manifest
        return
    for path, template in pod_templates(manifest) if isinstance(manifest.get("kind"), str) else ():
        kept = mapping_of(template, "metadata")
        pod = {"annotations": kept.get("annotations"), "labels": kept.get("labels"), "generateName": _name(manifest)}
        yield path, {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": template.get("spec")}


def _name(manifest: Mapping[str, Any]) -> str:
    return f"{part_of(manifest, 'metadata', 'name') or 'pod'}-"


def _refused(document: Document, path: Path, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    kind = str(manifest["kind"])
    request = AdmissionRequest(operation="CREATE", kind=kind, object=manifest)
    # The drawn name is fixed: only the verdict counts, and findings must not differ from run to run.
    response = mutate(request, _SETTINGS, lambda length: "a" * length)
    if response.allowed:
        response = validate(request, _SETTINGS, lambda _: None)
    if response.allowed:
        return
    for text in response.message.split("\n"):
        at, is_key = _place(kind, manifest, text)
        yield document.finding(
            _CODE,
            f"an admission webhook refuses the {kind}: {text}",
            (*path, *at),
            at_key=is_key,
            object=f"{kind.lower()} {part_of(manifest, 'metadata', 'name') or _name(document.manifest)}",
        )


def _place(kind: str, manifest: Mapping[str, Any], text: str) -> tuple[Path, bool]:
    """Return the path that a webhook's message concerns, and whether its key is meant."""
    field = _FIELD.search(text)
    if field is not None:
        return tuple(int(step) if step.isdigit() else step for step in _STEP.findall(field[1])), False
    if kind == "Pod":
        key = next((key for start, key in _ANNOTATIONS if text.startswith(start)), None)
        return (("metadata", "annotations", key), False) if key is not None else (("spec",), True)
    if kind == "Topology":
        return ("spec", "levels"), True
    if kind == "Queue":
        return ("spec",), True
    return _place_in_group(manifest, text), False


def _place_in_group(manifest: Mapping[str, Any], text: str) -> Path:
    name = _SUB_GROUP.match(text)
    found = [
        (index, each)
        for index, each in enumerate(list_of(manifest, "spec", "subGroups"))
        if name is not None and isinstance(each, Mapping) and each.get("name") == name[1]
    ]
    fields = [field for field in ("minSubGroup", "minMember") if field in text]
    if not found:
        return ("spec", fields[0]) if fields else ("spec",)
    index, part = found[-1]
    return ("spec", "subGroups", index, next((field for field in fields if part.get(field) is not None), "name"))


def _lines(document: Document, path: Path) -> range:
    """Return the lines of an object in a document, or of a template in it."""
    first = document.text.locate(document.number, (*document.path, *path), at_key=True).line
    return range(first, document.text.last_line(document.number, (*document.path, *path)) + 1)


_UNUSABLE: Final = ("F001", "T003", "T004", "J018")
"""Codes that refuse even an object from an API server, because kai itself cannot use it."""
TOLD_BY_ANSWERS: Final = ("J003", "J019", "J025", "Q003", "Q005", "Q007")
"""Advice that answers repeat in their own words, as notes and states of jobs."""


@attrs.frozen(kw_only=True)
class Judged:
    """Accepted documents, and what was refused."""

    reading: Reading
    """The accepted documents."""
    findings: tuple[Finding, ...] = ()
    """Their faults, except advice that answers repeat."""
    refused: tuple[RefusedWorkload, ...] = ()

    @property
    def about(self) -> Mapping[str, tuple[Finding, ...]]:
        """Findings by the job they concern, ``namespace/name``; jobs without findings are left out."""
        found: dict[Origin | None, list[Finding]] = {}
        for each in self.findings:
            found.setdefault(each.origin, []).append(each)
        about = {f"{each.namespace}/{each.name}": each.findings for each in self.refused}
        for job in self.reading.expansion.jobs if found else ():
            own = found.get(self.reading.documents[job.at].origin) if job.at >= 0 else None
            metadata = mapping_of(job.group, "metadata")
            if own:
                about[f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"] = tuple(own)
        return about


def findings_of(reading: Reading, beside: Beside | None = None) -> tuple[Finding, ...]:
    """Return the findings of every rule about documents, including the rules of admission webhooks."""
    return with_refusals(reading.documents, [*lint(reading, beside), *_trees(reading)], reading.expansion.jobs)


def judge(documents: Sequence[Document], around: Surroundings | None = None, beside: Beside | None = None) -> Judged:
    """Return the documents without the refused ones, with all findings together.

    Raises: RefusedError for a finding that concerns no document.
    """
    reading = read(documents, around)
    found = findings_of(reading, beside)
    refused: list[RefusedWorkload] = []
    left = reading
    said = [each for each in found if not each.is_refusal and each.code not in TOLD_BY_ANSWERS]
    scheduler = names.SCHEDULER_NAME if around is None else around.scheduler_name
    while True:
        about_none = RefusedError.of(each for each in found if each.is_refusal and each.origin is None)
        if about_none is not None:
            raise about_none
        faulty = set(_refused_in(left.documents, found, scheduler))
        if not faulty:
            break
        places = {left.documents[at].origin for at in faulty}
        wrong = [each for each in found if each.is_refusal and each.origin in places]
        said += wrong
        refused += _workloads(left, faulty, wrong, scheduler)
        left = read([each for at, each in enumerate(left.documents) if at not in faulty], around)
        # The first pass found the faults of the rest. Only what refused documents kept from being read is new.
        found = left.findings
    said.sort(key=lambda each: (each.file, each.line, each.column, each.code))
    return Judged(reading=left, findings=tuple(dict.fromkeys(said)), refused=tuple(refused))


def _refused_in(documents: Sequence[Document], wrong: Iterable[Finding], scheduler: str) -> Iterator[int]:
    """Yield the positions of refused documents. Workloads of other schedulers never belong to a case."""
    codes: dict[object, set[str]] = {}
    for each in wrong:
        if each.is_refusal:
            codes.setdefault(each.origin, set()).add(each.code)
    for at, document in enumerate(documents):
        found = codes.get(document.origin, set())
        has_part = not document.is_kept and (_is_for(document, scheduler) or not is_workload(document.manifest))
        if found and (has_part or not found.isdisjoint(_UNUSABLE)):
            yield at


def _is_for(document: Document, scheduler: str) -> bool:
    """Return whether an object is a pod group, or names this scheduler for pods."""
    own = names_scheduler(document.manifest.get("spec"), scheduler)
    return own or document.manifest.get("kind") == PodGroup.__name__


def _workloads(
    reading: Reading, faulty: set[int], wrong: Sequence[Finding], scheduler: str
) -> Iterator[RefusedWorkload]:
    jobs = reading.expansion.jobs
    for at in sorted(faulty):
        document = reading.documents[at]
        own = [job for job in jobs if job.at == at]
        if not own and not (is_workload(document.manifest) and _is_for(document, scheduler)):
            continue
        metadata = mapping_of(document.manifest, "metadata")
        # Replicas of one workload are several groups: then its own name is clearer than that of the first group.
        named = mapping_of(own[0].group, "metadata") if len(own) == 1 else metadata
        pods = [pod for job in own for pod in job.pods]
        yield RefusedWorkload(
            name=str(named.get("name") or metadata.get("generateName") or ""),
            namespace=str(named.get("namespace") or metadata.get("namespace") or "default"),
            kind=str(document.manifest.get("kind")),
            queue=str(part_of(own[0].group, "spec", "queue") or "") if own else "",
            pods=len(pods),
            gpus=sum(map(gpus_of, pods)),
            findings=tuple(each for each in wrong if each.origin == document.origin),
        )


def _trees(reading: Reading) -> Iterator[Finding]:
    """Yield a finding for each pod group whose sub-groups form no valid tree."""
    declared = (each for each in reading.objects if isinstance(each, PodGroup) and each.spec.sub_groups)
    faults = {key_of(each): fault_of_tree(each.spec) for each in declared}
    for document in reading.documents:
        fault = faults.get(place_of(document.manifest))
        if fault and document.manifest.get("kind") == PodGroup.__name__:
            yield document.finding("J023", fault, ("spec", "subGroups"), at_key=True)
