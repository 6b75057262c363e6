"""Judging documents as a cluster would: the findings of every rule, and the workloads that it refuses.

``kai.manifests.codes`` defines what each finding means for its object. `kai lint` reports findings; commands that
decide call ``judge``, so that no command starts a workload which another command reports as refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kai.answers.cases.refused import RefusedWorkload
from kai.api import names
from kai.api.kinds import key_of
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.parsing import mapping_of, part_of, place_of
from kai.intake.groups import fault_of_tree
from kai.lab.sources.webhook_refusals import with_refusals
from kai.manifests import Document, Finding, RefusedError, Surroundings, read
from kai.manifests.expansion import is_workload
from kai.manifests.gpus import gpus_of
from kai.manifests.lint import Beside, lint
from kai.manifests.manifest_reading import Reading
from kai.manifests.unused import names_scheduler

if TYPE_CHECKING:
    from kai.manifests.findings import Origin

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
