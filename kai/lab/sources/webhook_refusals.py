"""The refusals of kai's admission webhooks, predicted before anything is applied.

``refusals`` calls the functions that answer the API server, so `kai lint` accepts nothing that they refuse. Rules of
``kai.manifests`` find most of these faults earlier and with more help; the same fault is not reported twice.

Admission has settings that are not in the files. They are taken as `deploy/` sets them: pods may share GPUs, and the
quotas of queues are not compared.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kai.api import names
from kai.api.codec import structuring
from kai.basics.parsing import list_of, mapping_of, part_of
from kai.manifests import Document, Finding
from kai.manifests.expansion import Job
from kai.manifests.positions import Path
from kai.manifests.workloads.table import pod_templates
from kai.roles.admission import AdmissionRequest, AdmissionSettings, mutate, validate

_SETTINGS: Final = AdmissionSettings(gpu_sharing_enabled=True)
_CODE: Final = "W001"
_KINDS: Final = frozenset({"PodGroup", "Queue", "Topology"})
_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("F001", "J010", "J011", "J012", "J013", "J014", "J015", "J016", "T003"),
    "PodGroup": ("F001", "J018", "J023", "T003"),
    "Queue": ("F001", "T003"),
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
            alike = [line for code, line in known.get(document.text.name, ()) if code in same]
            if alike and not set(_lines(document, path)).isdisjoint(alike):
                wrong.add(at)
                continue
            for finding in _refused(document, path, manifest):
                wrong.add(at)
                yield finding
    for job in jobs:
        if job.at in fresh and job.at not in wrong:
            found = [each for made in _fresh(job) for each in _refused(fresh[job.at], (), made)]
            wrong |= {job.at} if found else set()
            yield from found[:1]


def _fresh(job: Job) -> Iterator[Mapping[str, Any]]:
    """Yield the group and the pods of a job, one of each set of equal pods, without objects from an API server."""
    last: object = None
    for each in (job.group, *job.pods):
        asked = (part_of(each, "metadata", "annotations"), each.get("spec"))
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
