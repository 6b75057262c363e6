"""Jobs together with queues that restrict which namespaces may use them."""

from collections.abc import Iterator, Mapping

from kai.api import names
from kai.api.conventions.queue_access import Admits
from kai.basics.parsing import mapping_of, part_of
from kai.manifests.expansion import Job
from kai.manifests.findings import Document, Finding
from kai.manifests.queues import queues_of
from kai.manifests.reading import Reading

_KEYS = (names.ALLOWED_NAMESPACES, names.ALLOWED_NAMESPACE_LABELS)


def check_access(reading: Reading) -> Iterator[Finding]:
    """Yield findings for jobs in queues that do not admit their namespaces.

    Queues without the annotations are not checked: files do not show whether a scheduler requires permission. Nor are
    jobs that name no namespace, or labels of namespaces that are not in the input.
    """
    said = {name: _said(queue) for name, queue in queues_of(reading.documents).items()}
    admitting = {name: Admits.of(texts) for name, texts in said.items() if texts}
    if not admitting:
        return
    labels = dict(_labels(reading))
    seen: set[int] = set()
    for job in reading.expansion.jobs:
        queue = str(part_of(job.group, "spec", "queue") or "")
        if job.at in seen or job.at < 0 or queue not in admitting:
            continue
        seen.add(job.at)
        namespace = str(part_of(reading.documents[job.at].manifest, "metadata", "namespace") or "")
        admits = admitting[queue]
        is_judged = bool(namespace) and (namespace in labels or not admits.terms)
        if is_judged and not admits.admits(namespace, labels.get(namespace, {})):
            yield _refused(reading.documents[job.at], job, queue, namespace)


def _refused(document: Document, job: Job, queue: str, namespace: str) -> Finding:
    kind, name = document.manifest.get("kind"), part_of(job.group, "metadata", "name")
    return document.finding(
        "J022",
        f"queue {queue} does not allow namespace {namespace}",
        ("metadata", "namespace"),
        hint="it waits where permission is required",
        help=f"{names.ALLOWED_NAMESPACES}: {namespace}    in the annotations of queue {queue}",
        found=namespace,
        object=f"{kind} {namespace}/{name}",
    )


def _said(queue: Document) -> Mapping[str, str]:
    annotations = mapping_of(queue.manifest, "metadata", "annotations")
    return {key: str(annotations[key]) for key in _KEYS if key in annotations}


def _labels(reading: Reading) -> Iterator[tuple[str, Mapping[str, str]]]:
    for document in reading.documents:
        if document.manifest.get("kind") == "Namespace":
            metadata = mapping_of(document.manifest, "metadata")
            found = mapping_of(metadata, "labels")
            yield str(metadata.get("name")), {key: str(value) for key, value in found.items()}
