"""Files to documents, and the checks that take one document at a time. Start reading at ``read``.

From here on a finding has its place in the text. An error rejects the input only after all of it was checked.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.codec import structuring
from kai.api.codec.manifest_text import (
    WANTED,
    MisplacedError,
    TextError,
    load_values,
    other_than_text,
    place_documents,
)
from kai.api.kinds import ApiObject
from kai.api.kubernetes.pod import Pod
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of
from kai.basics.wording import shown
from kai.manifests.expansion import Expansion, Surroundings, expand
from kai.manifests.fields import check_fields
from kai.manifests.findings import Document, Finding, Path, RefusedError, Text
from kai.manifests.gpus import check_gpus
from kai.manifests.unused import known_versions
from kai.manifests.workloads.table import has_model, pod_templates
from kai.roles.podgrouper import Kind

_OUTPUT: Final = "output.kai/"
"""Prefix of the apiVersion of documents that kai writes with ``-o json``."""
_MOST_VALUES: Final = 20
"""The most invalid values of one object that are reported."""
_STEP: Final = re.compile(r'\["([^"]+)"\]|\[(\d+)\]|([^.\[\]]+)')
_OTHER_FILES: Final = {
    **dict.fromkeys(("plugins", "with", "actions", "tiers"), "a configuration of the scheduler is given with --config"),
    "cluster": "a scenario is simulated, or a source: --from",
    "rawObjects": "a snapshot is given as the zip that the scheduler wrote",
    **dict.fromkeys(
        ("resources", "patches", "bases"), "this is a kustomization: kustomize build FOLDER | kai simulate -"
    ),
    "services": "this is no Kubernetes manifest",
}
"""Keys by which other kinds of files are recognised, and the advice for each."""


@attrs.frozen(kw_only=True)
class Reading:
    """The contents of texts: documents, the objects made from them, and findings."""

    documents: tuple[Document, ...]
    expansion: Expansion
    objects: tuple[ApiObject, ...] = ()
    findings: tuple[Finding, ...] = ()
    scheduler: str = names.SCHEDULER_NAME
    """The scheduler whose workloads are read."""
    operators: frozenset[str] = frozenset()
    """API groups whose operators write this scheduler's name into the pods that they create."""


def open_text(text: bytes, name: str) -> tuple[Text, tuple[Any, ...]]:
    """Return a text with its name, and the values of its documents.

    Raises: RefusedError with the place where reading stopped.
    """
    source = Text(name, text.decode("utf-8-sig", errors="replace"))
    seems = other_than_text(text)
    if seems:
        # Complete zip files were read as snapshots before.
        broken = " that is not whole" if seems == "a zip file" else ""
        message = f"found {seems}{broken}, expected {WANTED}, or a snapshot (zip)"
        raise RefusedError([Finding(code="T001", message=message, file=name)])
    try:
        return source, load_values(text, name)
    except TextError as error:
        raise RefusedError([_text_finding(error, source)]) from None
    except InputError as error:
        raise RefusedError([Finding(code="T001", message=_without(str(error), name), file=name)]) from None


def documents_of(source: Text, values: Sequence[object]) -> list[Document]:
    """Return the manifests of a text, each item of a list separately.

    Raises: RefusedError for a document or item that is not an object.
    """
    for number, value in enumerate(values):
        # Its items would be read as objects of Kubernetes: a JobList holds a Job for each line of the table.
        if isinstance(value, dict) and str(value.get("apiVersion")).startswith(_OUTPUT):
            found = f"a {value.get('kind')} that kai wrote"
            message = f"found {found}, expected objects of a cluster"
            hint = "kai diff compares two results; kai snapshot saves a cluster to be asked again"
            document = Document(value, source, number)
            raise RefusedError([document.finding("T003", message, ("apiVersion",), found=found, hint=hint)])
    try:
        placed = place_documents(values, source.name)
    except MisplacedError as error:
        document = Document({}, source, error.document, error.place)
        message = f"found {error.found}, expected {error.wanted}"
        finding = document.finding("T003", message, (), found=error.found, expected=error.wanted)
        raise RefusedError([finding]) from None
    return [Document(each.manifest, source, each.document, each.path) for each in placed]


def read(documents: Sequence[Document], around: Surroundings | None = None) -> Reading:
    """Return the objects of documents, with workloads expanded and pods grouped, and every fault with its place."""
    findings = _once(finding for document in documents for finding in _check(document))
    findings += defined_twice(documents)
    around = Surroundings() if around is None else around
    expansion = expand([document.manifest for document in documents], around)
    objects, wrong = _structured(expansion, documents, around.namespace)
    problems = [_problem(documents[problem.at], problem.message) for problem in expansion.problems]
    problems += [_problem(documents[problem.at], problem.message, "J040") for problem in expansion.absent]
    said = {(finding.file, finding.line) for finding in findings}
    # A problem at the place of an earlier finding is a consequence of it, and is not reported again.
    more = [finding for finding in wrong + problems if (finding.file, finding.line) not in said]
    placed = [finding for finding in more if finding.line]
    # Findings without a place are the last resort: where an error has a place, they repeat it.
    findings += placed if any(finding.is_error for finding in (*findings, *placed)) else more
    return Reading(
        documents=tuple(documents),
        scheduler=around.scheduler_name,
        expansion=expansion,
        operators=frozenset(around.operators),
        objects=objects,
        findings=tuple(sorted(findings, key=lambda each: (each.file, each.line, each.column, each.code))),
    )


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings without repeated reports that a value is invalid."""
    seen: set[tuple[str, int, int]] = set()
    found: list[Finding] = []
    for finding in findings:
        place = (finding.file, finding.line, finding.column)
        if finding.code != "F001" or place not in seen:
            found.append(finding)
        if finding.code == "F001":
            seen.add(place)
    return found


def _check(document: Document) -> Iterator[Finding]:
    manifest = document.manifest
    missing = [key for key in ("apiVersion", "kind") if manifest.get(key) in (None, "")]
    for key in ("apiVersion", "kind"):
        found = manifest.get(key)
        if key not in missing and not isinstance(found, str):
            seen = shown(found) if isinstance(found, int | float) else "something else"
            message = f"{key}: found {seen}, expected a string"
            yield document.finding("T003", message, (key,), found=seen, expected="a string")
            return
    if missing:
        message = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
        hint = next((hint for key, hint in _OTHER_FILES.items() if key in manifest), "")
        yield document.finding(
            "T003", message, (), expected="an object with apiVersion, kind and metadata.name", hint=hint
        )
        return
    if manifest["kind"].endswith("List") and isinstance(manifest.get("items"), Mapping):
        message = "items: found an object, expected a list"
        yield document.finding("T003", message, ("items",), found="an object", expected="a list")
        return
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        yield document.finding("T003", f"{manifest['kind']} without metadata.name", ("metadata",), at_key=True)
        return
    yield from _check_names(document, metadata)
    yield from check_fields(document)
    known = structuring.kind_of(manifest)
    versions = known_versions(manifest["apiVersion"], manifest["kind"]) if known is None else []
    if versions:
        message = f"{manifest['kind']} is not read in version {manifest['apiVersion']}"
        better = f"apiVersion: {versions[0]}"
        yield document.finding("F004", message, ("apiVersion",), help=better, found=manifest["apiVersion"])
    if known is not None and known.cls is not Pod:
        return
    for path, template in [((), manifest)] if known is not None else pod_templates(manifest):
        yield from check_gpus(document, path, template)
        if not metadata.get("resourceVersion"):
            yield from _check_template(document, path, template)


def _check_names(document: Document, metadata: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for a name or namespace that API servers refuse, or with letters that look like others."""
    for field in ("name", "namespace"):
        text = metadata.get(field)
        odd = next((each for each in text if not "!" <= each <= "~"), "") if isinstance(text, str) else ""
        if odd:
            # Only the code point distinguishes a letter from its look-alike.
            found, expected = f"{shown(text)} with U+{ord(odd):04X}", "letters a to z, digits, '-' and '.'"
            message = f"{field}: found {found}, expected {expected}"
            yield document.finding("F001", message, ("metadata", field), found=found, expected=expected)


def _check_template(document: Document, path: Path, template: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings for invalid values of a pod template."""
    kept = template.get("metadata")
    if path:  # a template has only these metadata
        kept = {key: value for key, value in mapping_of(kept).items() if key in {"labels", "annotations"}}
    status = {} if path else {"status": template.get("status")}
    try:
        structuring.structure_as(Pod, {"metadata": kept, "spec": template.get("spec"), **status})
    except BadValue as bad:
        yield document.bad_value(bad, path)


def _structured(
    expansion: Expansion, documents: Sequence[Document], namespace: str
) -> tuple[tuple[ApiObject, ...], list[Finding]]:
    """Return the objects of all manifests; they are read one by one only if one is invalid."""
    try:
        return structuring.structure_all(expansion.manifests, namespace=namespace).objects, []
    except InputError as error:
        invalid = [Finding(code="F001", message=message, file=documents[0].text.name) for message in error.messages]
    findings: list[Finding] = []
    for manifest, at in zip(expansion.manifests, expansion.origins, strict=True):
        kind = structuring.kind_of(manifest)
        if kind is not None and at >= 0:  # objects made from a template repeat the faults of the template
            findings += [documents[at].bad_value(bad) for bad in _bad_values(kind.cls, manifest)]
    return (), findings or invalid


def _bad_values(cls: type[ApiObject], manifest: Mapping[str, Any]) -> Iterator[BadValue]:
    """Yield every invalid value of an object: reading stops at the first, so repeat it without that value."""
    left: Mapping[str, Any] | None = manifest
    for _ in range(_MOST_VALUES):
        if left is None:
            return
        try:
            structuring.structure_as(cls, left)
        except BadValue as bad:
            yield bad
            left = _without_value(left, bad.path) if bad.path else None
        else:
            return


def _without_value(value: Any, path: Path) -> Any:  # noqa: ANN401 - a manifest, or a part of it
    """Return a copy of a manifest without the field at a path; None if that is not possible.

    Items of a list are not removed: the items after it would get other indexes.
    """
    step, *rest = path
    is_there = step in value if isinstance(value, Mapping) else isinstance(value, list) and step in range(len(value))
    if not is_there:
        return None
    if not rest:
        return {key: each for key, each in value.items() if key != step} if isinstance(value, Mapping) else None
    inner = _without_value(value[step], tuple(rest))
    if inner is None:
        return None
    copy: Any = dict(value) if isinstance(value, Mapping) else [*value]
    copy[step] = inner
    return copy


def defined_twice(documents: Iterable[Document]) -> Iterator[Finding]:
    """Yield findings for objects that are defined more than once, if their kind is used."""
    seen: dict[tuple[str, str, str, str], Document] = {}
    for document in documents:
        manifest = document.manifest
        version, kind, metadata = manifest.get("apiVersion"), manifest.get("kind"), mapping_of(manifest, "metadata")
        if not isinstance(version, str) or not isinstance(kind, str) or not metadata.get("name"):
            continue
        known = structuring.kind_of(manifest)
        if known is None and not has_model(Kind.of(version, kind)):
            continue
        is_namespaced = known is None or known.namespaced
        namespace = str(metadata.get("namespace") or "default") if is_namespaced else ""
        # Without the version: an API server has one object of the name, whichever version it was written in.
        key = (version.rpartition("/")[0], kind, namespace, str(metadata["name"]))
        first = seen.setdefault(key, document)
        if first is not document:
            where = first.text.locate(first.number, (*first.path, "metadata", "name"))
            title = f"{kind.lower()} {namespace}/{key[3]}" if namespace else f"{kind.lower()} {key[3]}"
            yield document.finding(
                "T004",
                f"{title} is defined twice: first at {first.text.name}:{where.line}",
                ("metadata", "name"),
                object=title,
                found=f"{first.text.name}:{where.line}",
                hint="one object of this kind and name",
            )


def _problem(document: Document, message: str, code: str = "J018") -> Finding:
    """Return the finding for a workload that cannot be expanded or grouped; the message contains the field."""
    subject, colon, rest = message.partition(": ")
    field, _, said = rest.partition(": ")
    path = _path_of(field) if said else ()
    return document.finding(code, message, path or ("metadata", "name"), object=subject if colon else document.title)


def _path_of(field: str) -> Path:
    """Return the path in a message's notation ``spec.jobs[0].name``; empty if the words are not a path."""
    if " " in field:
        return ()
    return tuple(int(index) if index else quoted or plain for quoted, index, plain in _STEP.findall(field))


def _text_finding(error: TextError, source: Text) -> Finding:
    code = "T002" if " twice in one object" in error.problem else "T001"
    rows = source.lines(error.line, error.line)
    hint = "two objects need a line with --- between them" if code == "T002" and error.column == 1 else ""
    is_chart = error.line > 0 and "{{" in source.content
    return Finding(
        code=code,
        message=error.problem,
        file=source.name,
        line=error.line,
        column=error.column,
        excerpt=rows,
        hint="this is a template of a chart" if is_chart else hint,
        help="helm template CHART | kai simulate -" if is_chart else "",
    )


def _without(text: str, name: str) -> str:
    return " ".join(text.split()).removeprefix(f"{name}: ")
