"""Manifests to a scene: workloads expanded and grouped as in production, with the values of their annotations.

A workload that arrives several times is copied, and one with changing replicas is expanded with the most it will ever
have. ``kai.manifests`` then reads everything at once, so that every mistake has its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.answers.cases.case import newest_time
from kai.answers.offline.cluster_reaction import recreated
from kai.api import names
from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec.structuring import structure_all
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.dra import ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, part_of, place_of
from kai.facts.model.units import GPU_UNIT, amounts
from kai.intake.claims import ClaimedGpus, gpus_wanted
from kai.intake.devices import Devices, read_devices
from kai.lab.sources.judging import judge
from kai.lab.virtual.scenes.annotations import (
    Declared,
    Instant,
    Lognormal,
    Poisson,
    Steps,
    generator,
    idle_annotations,
    read_annotations,
)
from kai.lab.virtual.scenes.job_plans import (
    Behaviour,
    JobPlan,
    Owner,
    PodPlan,
    Replacement,
    Series,
    TaskPlan,
    gang_of,
    identity_of,
    installed_classes,
    is_scaled,
    owner_of,
    with_all_pods,
)
from kai.lab.virtual.scenes.later_pods import LaterPods, Runs, follows, is_repeated, once_note, runs_of, with_later
from kai.manifests import Document, Finding, RefusedError, Surroundings, read
from kai.manifests.codes import WAIT
from kai.manifests.expansion import Job, is_workload, numbered
from kai.manifests.gpus import gpus_of
from kai.manifests.workloads.table import described_kinds

if TYPE_CHECKING:
    from kai.manifests.lint import Beside
    from kai.manifests.manifest_reading import Reading

NEW_YEAR: Final = 1767225600.0
"""2026-01-01: the start of a run whose objects contain no time."""
_STAMPS: Final = (names.LAST_START, names.LAST_EVICTION, names.STALE_SINCE, names.PARTIAL_SINCE)


@attrs.frozen(kw_only=True)
class _Arrival:
    """One arrival of one workload, which is read as a document of its own."""

    declared: Declared
    owner: Owner
    kind: str
    name: str
    at: float
    copy: int = 0
    series: Series | None = None


@attrs.frozen(kw_only=True, eq=False)
class Workload:
    """The content of manifests: the cluster that they describe, and the jobs that arrive at it."""

    objects: ClusterObjects
    plans: tuple[JobPlan, ...]
    began: float
    counts: Mapping[str, int]
    """Number of workloads of each kind."""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    is_dated: bool = False
    """Whether arrivals determine when the run begins."""


def read_workload(
    documents: Sequence[Document],
    seed: int,
    until: float = inf,
    start: float | None = None,
    scheduler: str = names.SCHEDULER_NAME,
    beside: Beside | None = None,
    operators: frozenset[str] = frozenset(),
) -> Workload:
    """Return the workload in manifests; CronJobs start Jobs ``until`` the horizon.

    ``start`` is when the run begins if no arrival determines it, in seconds since the epoch; ``scheduler`` is the name
    to decide under, and ``beside`` describes the cluster. Refused workloads are left out.

    Raises: RefusedError with the place of each mistake where nothing is left, InputError where there is no job.
    """
    documents, declared, findings = _taken(
        documents, Surroundings(scheduler_name=scheduler, operators=operators), beside
    )
    first_arrival = _beginning(declared)
    cron_jobs = [each for each in documents if is_repeated(each.manifest)]
    # The runs of a CronJob depend on the beginning; without any, a second reading of all documents is saved.
    began = first_arrival or (_start(documents, start) if cron_jobs and until < inf else None)
    # Each arrival is read as a document of its own: names, owners and rules of grouping then come out as in a cluster.
    prepared, arrivals, said = _prepare(documents, declared, seed, (began or 0.0, until))
    reading = read(prepared, Surroundings(scheduler_name=scheduler, operators=operators, with_later=True))
    refused = RefusedError.of(reading.findings)
    if refused is not None:
        raise refused
    objects = collect(reading.objects)
    start = began or newest_time(objects) or NEW_YEAR
    plans = sorted(_plans(reading, objects, arrivals, seed), key=lambda plan: plan.arrival)
    if not plans:
        nothing = RefusedError.of(each for each in findings if each.is_refusal)
        if nothing is not None:
            raise nothing
        place = documents[-1].text.name if documents else "workload"
        why = "; ".join([*(str(each) for each in reading.expansion.unused), *said])
        raise InputError(f"{place}: found no workload for this scheduler" + (f" ({why.rstrip('.')})" if why else ""))
    # Pods that a workload never wants, because it has fewer replicas at any time, are left out as well.
    members = {place_of(pod) for job in reading.expansion.jobs if job.at >= 0 for pod in job.pods}
    others = tuple(pod for pod in objects.pods if key_of(pod) not in members)
    counts = Counter(kind for kind, _ in dict.fromkeys((each.kind, each.name) for each in arrivals if each is not None))
    return Workload(
        objects=attrs.evolve(
            objects,
            pods=others,
            pod_groups=(),
            priority_classes=(*objects.priority_classes, *installed_classes(objects.priority_classes)),
        ),
        plans=tuple(plans),
        began=start,
        counts=counts,
        findings=tuple(dict.fromkeys(each for each in (*findings, *reading.findings) if each.meaning != WAIT)),
        notes=(*(str(each) for each in reading.expansion.unused), *said),
        is_dated=first_arrival is not None,
    )


# --- Documents -----------------------------------------------------------------------------------------------------


def _taken(
    documents: Sequence[Document], around: Surroundings, beside: Beside | None
) -> tuple[list[Document], list[Declared], list[Finding]]:
    """Return the accepted documents, the simulation annotations of each, and all findings."""
    judged = judge(documents, around, beside)
    declared, wrong = _declarations(judged.reading.documents)
    faulty = {each.origin for each in wrong if each.is_refusal}
    pairs = zip(judged.reading.documents, declared, strict=True)
    left = [(each, said) for each, said in pairs if each.origin not in faulty]
    return [each for each, _ in left], [said for _, said in left], [*judged.findings, *wrong]


def _declarations(documents: Sequence[Document]) -> tuple[list[Declared], list[Finding]]:
    declared: list[Declared] = []
    findings: list[Finding] = []
    members = _members(documents)
    for document in documents:
        said, wrong = read_annotations(document)
        declared.append(said)
        findings += wrong
        if members.pop(_group_of(document.manifest), None) is not None:  # the first of equal pods stands for all
            findings += idle_annotations(document, ("metadata", "annotations"))
        elif is_workload(document.manifest):
            findings += idle_annotations(document, ("spec",))
    return declared, findings


def _beginning(declared: Sequence[Declared]) -> float | None:
    """Return the first arrival that is a calendar time."""
    # Offsets count from the beginning, so they cannot determine it.
    times = [each.arrival.epoch for each in declared if isinstance(each.arrival, Instant)]
    return min(times) if times else None


def _start(documents: Sequence[Document], start: float | None) -> float:
    """Return when a run without calendar times begins, before CronJobs are expanded."""
    return start or newest_time(collect(read(documents).objects)) or NEW_YEAR


def _prepare(
    documents: Sequence[Document], declared: Sequence[Declared], seed: int, times: tuple[float, float]
) -> tuple[list[Document], list[_Arrival | None], list[str]]:
    """Return a document for each arrival, the arrivals (None for documents without a workload), and notes.

    ``times`` are the beginning, in seconds since the epoch, and the length of the run.
    """
    began, until = times
    notes: list[str] = []
    members = _members(documents)
    kinds = described_kinds(document.manifest for document in documents)
    prepared: list[Document] = []
    arrivals: list[_Arrival | None] = []
    for at, document in enumerate(documents):
        manifest, said = document.manifest, declared[at]
        if _group_of(manifest) in members:
            continue  # the pod arrives with its group
        if not is_workload(manifest, kinds):
            prepared.append(document)
            arrivals.append(None)
            continue
        if is_repeated(manifest):
            if until < inf:
                since = began + next(iter(_instants(said, manifest, seed, began)), 0.0)
                runs = runs_of(manifest, since, began + until)
                notes.append(runs.note)
                repeated = _repeated(document, said, runs, began)
                prepared += [each for each, _ in repeated]
                arrivals += [each for _, each in repeated]
                continue
            notes.append(once_note(manifest))
        # Pods follow their group in the same arrival, since copies of the group need pods with the same number.
        followers = members.get(place_of(manifest), []) if manifest.get("kind") == "PodGroup" else []
        for copy, instant in enumerate(_instants(said, manifest, seed, began)):
            arrival = _Arrival(
                declared=said,
                owner=owner_of(manifest),
                kind=str(manifest.get("kind")),
                name=str(part_of(manifest, "metadata", "name")),
                at=instant,
                copy=copy,
            )
            for each in (document, *followers):
                prepared.append(_copied(each, copy, most_of(said.replicas)))
                arrivals.append(arrival)
    return prepared, arrivals, notes


def _repeated(document: Document, said: Declared, runs: Runs, began: float) -> list[tuple[Document, _Arrival | None]]:
    """Return a CronJob, which is not expanded because it has children, and the Jobs of its runs."""
    found: list[tuple[Document, _Arrival | None]] = [(attrs.evolve(document, manifest=runs.cron_job), None)]
    for at, manifest in runs.jobs:
        arrival = _Arrival(
            declared=said,
            owner=owner_of(manifest),
            kind="CronJob",
            name=str(part_of(runs.cron_job, "metadata", "name")),
            at=at - began,
            series=runs.series,
        )
        found.append((attrs.evolve(document, manifest=with_all_pods(manifest, None)), arrival))
    return found


def _members(documents: Sequence[Document]) -> dict[tuple[str, str], list[Document]]:
    """Return the pods of each group that has a manifest of its own."""
    groups = {place_of(each.manifest) for each in documents if each.manifest.get("kind") == "PodGroup"}
    found: dict[tuple[str, str], list[Document]] = {key: [] for key in groups}
    for document in documents:
        key = _group_of(document.manifest)
        if key in found:
            found[key].append(document)
    return found


def _group_of(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the group that a pod names; ("", "") for none."""
    if manifest.get("kind") != "Pod":
        return "", ""
    metadata = mapping_of(manifest, "metadata")
    name = part_of(metadata, "annotations", names.POD_GROUP)
    return (str(metadata.get("namespace") or "default"), str(name)) if name else ("", "")


def _instants(said: Declared, manifest: Mapping[str, Any], seed: int, began: float) -> Iterator[float]:
    match said.arrival:
        case Poisson():
            # A generator for each workload: one more document in a file must not move the arrivals of all others.
            yield from said.arrival.draw(generator(seed, "arrival", *place_of(manifest)))
        case Instant():
            yield said.arrival.epoch - began
        case None:
            yield 0.0
        case _:
            yield said.arrival


def _copied(document: Document, copy: int, replicas: int | None) -> Document:
    """Return a document for one arrival: the first under its name, each later one with a number."""
    manifest = with_all_pods(document.manifest, replicas)
    return attrs.evolve(document, manifest=numbered(manifest, copy + 1) if copy else manifest)


# --- Plans ---------------------------------------------------------------------------------------------------------


def _plans(
    reading: Reading, objects: ClusterObjects, arrivals: Sequence[_Arrival | None], seed: int
) -> Iterator[JobPlan]:
    """Yield the jobs of all arrivals."""
    groups = {key_of(each): each for each in reading.objects if isinstance(each, PodGroup)}
    pods = {key_of(each): each for each in reading.objects if isinstance(each, Pod)}
    claims = {key_of(each): each.spec for each in reading.objects if isinstance(each, ResourceClaim)}
    templates = {key_of(each): each.spec.spec for each in reading.objects if isinstance(each, ResourceClaimTemplate)}
    devices = read_devices(objects, Devices(objects=ClusterObjects()))
    wanted = ClaimedGpus(gpus=devices.gpus, classes=devices.classes)
    parts = _parts_by_name(wanted, objects)
    of_place: dict[int, list[Job]] = {}
    for job in reading.expansion.jobs:
        if job.at >= 0 and job.pods:
            of_place.setdefault(job.at, []).append(job)
    later = _later_pods(reading, partial(_claimed_gpus, claims=claims, templates=templates, wanted=wanted), parts)
    for at, jobs in of_place.items():
        arrival = arrivals[at]
        if arrival is None:
            continue
        own: list[JobPlan] = []
        members: dict[Key, list[Mapping[str, str]]] = {}
        for number, job in enumerate(jobs):
            group = groups[place_of(job.group)]
            planned = [
                PodPlan(pod=pod, gpus=gpus_of(each, parts) + _claimed_gpus(pod, claims, templates, wanted))
                for each in job.pods
                for pod in [pods[place_of(each)]]
            ]
            more = later.pop((at, key_of(group)), ())
            plans = _job_plans(arrival, number, group, planned, more, seed, is_replica=len(jobs) > 1)
            members[key_of(group)] = [each.pod.metadata.labels for each in planned]
            own += plans
        coming = {key: each for (place, key), each in later.items() if place == at}
        yield from (attrs.evolve(each, is_followed=True) for each in own) if coming else own
        yield from _followers(arrival, coming, members, seed)


def _followers(
    arrival: _Arrival,
    coming: Mapping[Key, Sequence[LaterPods]],
    members: dict[Key, list[Mapping[str, str]]],
    seed: int,
) -> Iterator[JobPlan]:
    """Yield the jobs of a workload that have no pods at first; ``members`` are the labels of the pods of the others."""
    for key, parts in coming.items():
        members[key] = [each.pod.metadata.labels for part in parts for each in part.pods]
    for number, (first, *rest) in enumerate(coming.values()):
        conditions = follows(first.conditions, members)
        for plan in _job_plans(arrival, number, first.group, first.pods, rest, seed, is_replica=True):
            yield attrs.evolve(plan, follows=conditions, is_followed=True)


def _later_pods(
    reading: Reading, claimed: Callable[[Pod], float], parts: Mapping[str, float]
) -> dict[tuple[int, Key], list[LaterPods]]:
    """Return the pods that controllers create later, by the position of the workload and its group."""
    found: dict[tuple[int, Key], list[LaterPods]] = {}
    for each in reading.expansion.later:
        group, *pods = structure_all([each.group, *each.pods]).objects
        planned = tuple(
            PodPlan(pod=pod, gpus=gpus_of(manifest, parts) + claimed(pod))
            for pod, manifest in zip(pods, each.pods, strict=True)
            if isinstance(pod, Pod)
        )
        if isinstance(group, PodGroup):
            one = LaterPods(conditions=each.conditions, pods=planned, group=group)
            found.setdefault((each.at, key_of(group)), []).append(one)
    return found


def _parts_by_name(wanted: ClaimedGpus, objects: ClusterObjects) -> Mapping[str, float]:
    """Return the part of a GPU that a pod may get for each resource that a class serves with partitions, the largest.

    A name that a device plugin offers on some node is left out: there it is a whole GPU, or a slice of the plugin's.
    """
    offered = [amounts(tuple(node.status.allocatable.items())) for node in objects.nodes]
    served = wanted.parts_by_name.items()
    return {name: most / GPU_UNIT for name, (_, most) in served if not any(each.get(name) for each in offered)}


def _claimed_gpus(
    pod: Pod,
    claims: Mapping[Key, ResourceClaimSpec],
    templates: Mapping[Key, ResourceClaimSpec],
    wanted: ClaimedGpus,
) -> float:
    """Return the GPUs that the claims of a pod request, partitions as parts; a claim with two names counts once."""
    namespace = pod.metadata.namespace
    named = {(namespace, each.resource_claim_name) for each in pod.spec.resource_claims if each.resource_claim_name}
    made = [(namespace, each.resource_claim_template_name or "") for each in pod.spec.resource_claims]
    specs = [*map(claims.get, sorted(named)), *map(templates.get, made)]
    found = [gpus_wanted(spec, wanted) for spec in specs if spec is not None]
    return sum(each.gpus - each.not_had[0] / GPU_UNIT for each in found)


def _job_plans(
    arrival: _Arrival,
    number: int,
    group: PodGroup,
    pods: Sequence[PodPlan],
    later: Sequence[LaterPods],
    seed: int,
    *,
    is_replica: bool,
) -> Iterator[JobPlan]:
    said, owner = arrival.declared, arrival.owner
    # Manifests from a running cluster have nodes, grants and stamps. A job that arrives anew has none of these.
    if said.arrival is not None or said.replicas is not None:
        pods = [attrs.evolve(each, pod=recreated(each.pod)) for each in pods]
        group = _unstamped(group)
    behaviour = _behaviour(said, owner, seed, f"{group.metadata.namespace}/{group.metadata.name}")
    common: dict[str, Any] = {"behaviour": behaviour, "kind": arrival.kind, "owner": arrival.name}
    common |= {"series": arrival.series, "user": _user_of(group, pods)}
    by_job = is_replica or owner.replacement is Replacement.NEW_GROUP
    gang = gang_of(group.spec, len(pods))
    together = owner.progresses_together and not (group.spec.min_member == 0 and not group.spec.sub_groups)
    together = together or (arrival.kind == "Job" and gang > 1)
    # Replicas that come and go are tasks of one job here, as their group stays; where each replica
    # has a group of its own, they are jobs, below.
    if said.replicas is not None and is_scaled(arrival.kind) and not by_job:
        tasks = tuple(
            TaskPlan(pods=(_renamed_pod(each, turn),), needed=1, arrival=arrival.at + start, leaves=arrival.at + end)
            for index, each in enumerate(pods)
            for turn, (start, end) in enumerate(windows(said.replicas, index))
        )
        ordered = tuple(sorted(tasks, key=lambda task: task.arrival))
        if ordered:
            at = ordered[0].arrival
            yield JobPlan(arrival=at, group=group, tasks=ordered, replacement=owner.replacement, **common)
        return
    spans = windows(said.replicas, number) if said.replicas is not None else ((0.0, inf),)
    for turn, (start, end) in enumerate(spans):
        at, leaves = arrival.at + start, arrival.at + end
        mine = [_renamed_pod(each, turn, with_group=True) for each in pods]
        shares = [tuple(mine)] if together else [(each,) for each in mine]
        needed = gang if together else 1
        parts = tuple(TaskPlan(pods=each, needed=needed, arrival=at, leaves=leaves) for each in shares)
        yield JobPlan(
            arrival=at,
            group=_renamed_group(group, turn),
            tasks=with_later(parts, _renamed_later(later, turn), at) if later else parts,
            at_once=0 if together else owner.at_once,
            replacement=owner.replacement,
            **common,
        )


def _user_of(group: PodGroup, pods: Sequence[PodPlan]) -> str:
    """Return the user in the label that the pod grouper and the history of usage take it from; "" for none."""
    labels = [group.metadata.labels, *(each.pod.metadata.labels for each in pods[:1])]
    return next((each[names.USER] for each in labels if names.USER in each), "")


def _behaviour(said: Declared, owner: Owner, seed: int, key: str) -> Behaviour:
    duration = said.duration
    if isinstance(duration, Lognormal):
        # By the name of the job and not by its turn: the same job takes as long under every policy that is compared.
        duration = duration.draw(generator(seed, "duration", key))
    return Behaviour(
        duration=duration,
        startup=said.startup,
        checkpoint_every=said.checkpoint_every,
        fails_at=said.fails_at,
        restarts=owner.restarts if said.restarts is None else said.restarts,
    )


def most_of(steps: Steps | None) -> int | None:
    """Return the highest number of replicas."""
    return None if steps is None else max(count for _, count in steps)


def windows(steps: Steps, replica: int) -> tuple[tuple[float, float], ...]:
    """Return the intervals in which a replica, counted from 0, is wanted."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for at, count in steps:
        # Replicas go from the highest number down, as controllers remove them.
        if count > replica and since is None:
            since = at
        elif count <= replica and since is not None:
            found.append((since, at))
            since = None
    if since is not None:
        found.append((since, inf))
    return tuple(found)


def _renamed_pod(plan: PodPlan, turn: int, *, with_group: bool = False) -> PodPlan:
    """Return a pod with a new name from its second turn on: the pod of the turn before may still be terminating."""
    if not turn:
        return plan
    metadata = plan.pod.metadata
    annotations = dict(metadata.annotations)
    if with_group and names.POD_GROUP in annotations:
        annotations[names.POD_GROUP] += f"-t{turn + 1}"
    fresh = attrs.evolve(
        metadata,
        name=f"{metadata.name}-t{turn + 1}",
        uid=f"{identity_of(plan.pod)}-t{turn + 1}",
        annotations=annotations,
    )
    return attrs.evolve(plan, pod=attrs.evolve(plan.pod, metadata=fresh))


def _renamed_later(later: Sequence[LaterPods], turn: int) -> list[LaterPods]:
    return [
        attrs.evolve(each, pods=tuple(_renamed_pod(pod, turn, with_group=True) for pod in each.pods)) for each in later
    ]


def _renamed_group(group: PodGroup, turn: int) -> PodGroup:
    if not turn:
        return group
    metadata = group.metadata
    fresh = attrs.evolve(metadata, name=f"{metadata.name}-t{turn + 1}", uid=f"{identity_of(group)}-t{turn + 1}")
    return attrs.evolve(group, metadata=fresh)


def _unstamped(group: PodGroup) -> PodGroup:
    """Return a group without the annotations of an earlier run."""
    annotations = {key: text for key, text in group.metadata.annotations.items() if key not in _STAMPS}
    return attrs.evolve(group, metadata=attrs.evolve(group.metadata, annotations=annotations))
