"""Files to a scene: the workload, the cluster that it runs on, and the names of both in the result.

In a snapshot that serves as the cluster, nodes and queues stay, and running groups are jobs from the start. A snapshot
does not contain their remaining run times, so they run until they are evicted. Waiting and terminating pods cannot
continue in the run: they are left out and counted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from kai.answers.cases.case import Case, cluster_of
from kai.answers.cases.files import files_below
from kai.answers.offline.cluster_reaction import without_user
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.device_claims import consumer_of
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod
from kai.api.scheduling.queue import Queue
from kai.basics.errors import InputError
from kai.basics.parsing import part_of
from kai.basics.wording import counted, first_of, found_by
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.pod import GpuKind
from kai.intake import take_snapshot
from kai.lab.scenarios.shorthand import is_short
from kai.lab.sources.addition import beside_of
from kai.lab.sources.archive import is_archive, read_archive
from kai.lab.sources.text_files import read_documents
from kai.lab.traces.trace_reading import Trace, read_nodes, read_trace
from kai.lab.virtual.scenes.cluster_file import ClusterFile, read_cluster_file
from kai.lab.virtual.scenes.file_kinds import is_trace
from kai.lab.virtual.scenes.from_manifests import NEW_YEAR, read_workload
from kai.lab.virtual.scenes.from_trace import QUEUE, objects_of, plans_of, with_models
from kai.lab.virtual.scenes.job_plans import ALWAYS, Behaviour, JobPlan, PodPlan, TaskPlan, gang_of
from kai.lab.virtual.scenes.scene import Inputs, Scene
from kai.manifests import Document, Finding
from kai.manifests.adoption import NONE, Adoption, adopted_documents
from kai.manifests.lint import Beside, queue_fault
from kai.roles.scheduler.feedback.moved_pods import group_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kai.api.kubernetes.dra import ResourceClaim
    from kai.api.scheduling.pod_group import PodGroup

RUNS_ON: Final = (
    "Pods that run in the snapshot keep their GPUs until they are evicted: how long they work is not known."
)
_WAITS, _LEAVES, _BROUGHT = "that waits", "that is leaving", "that the workload brings itself"
_PLURALS: Final = {_WAITS: "that wait", _LEAVES: "that are leaving", _BROUGHT: _BROUGHT}
QUEUES_MADE: Final = ("Queues that the cluster has not are made: equal parts of all GPUs, without a limit.",)
_MOST_QUEUES: Final = 3
"""Most queues without jobs to name in notes."""


@attrs.frozen(kw_only=True, eq=False)
class Inherited:
    """The part of a snapshot that a run starts with."""

    case: Case
    objects: ClusterObjects
    """The objects without the pods and groups of jobs."""
    plans: tuple[JobPlan, ...]
    """The jobs that run in it."""
    notes: tuple[str, ...]
    """Notes on what was left out."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions about it."""
        return (RUNS_ON,) if self.plans else ()

    def with_brought(self, brought: ClusterObjects) -> tuple[ClusterObjects, tuple[str, ...]]:
        """Return the cluster with the objects of a workload, and notes on those left out: nodes, and duplicates."""
        left: Counter[str] = Counter()
        merged: dict[str, Any] = {}
        for field in attrs.fields(ClusterObjects):
            known, more = getattr(self.objects, field.name), getattr(brought, field.name)
            there = {(type(each), key_of(each)) for each in known}
            # The snapshot has the nodes on which its pods run; further ones of the workload would give it a larger
            # cluster than the one that is asked about.
            fresh = [each for each in more if field.name != "nodes" and (type(each), key_of(each)) not in there]
            merged[field.name] = (*known, *fresh)
            if field.name in {"nodes", "queues"}:
                left[field.name.removesuffix("s")] += len(more) - len(fresh)
        text = " and ".join(counted(count, kind) for kind, count in left.items() if count)
        return ClusterObjects(**merged), (
            (f"Left out of the workload, for the snapshot has its own: {text}.",) if text else ()
        )


def snapshot_in(path: str) -> Case:
    """Return the case in a snapshot.

    Raises: InputError for a damaged archive.
    """
    return cluster_of(read_archive(Path(path), path))


def inherited_from(case: Case, brought: Iterable[JobPlan] = ()) -> Inherited:
    """Return the start of a run from a snapshot; jobs of the workload replace those of the same name."""
    arriving = list(brought)
    taken = {key_of(each.group) for each in arriving}
    taken_pods = {key_of(each.pod) for plan in arriving for task in plan.tasks for each in task.pods}
    groups = {key_of(each): each for each in case.objects.pod_groups}
    members: dict[Key, list[Pod]] = {}
    others: list[Pod] = []
    left: Counter[str] = Counter()
    for pod in case.objects.pods:
        # A pod that has ended holds nothing, whatever its node says.
        if pod.status.phase in ENDED:
            continue
        group = group_of(pod)
        if group in taken or key_of(pod) in taken_pods:
            left[_BROUGHT] += 1
        elif not pod.spec.node_name:
            left[_WAITS] += 1
        elif pod.metadata.deletion_timestamp is not None:
            left[_LEAVES] += 1
        elif group in groups:
            members.setdefault(group, []).append(pod)
        else:
            others.append(pod)
    # Claims of pods that are left out would keep their devices for ever, as nothing ends them in the run.
    kept = {consumer_of(pod).uid for pod in (*others, *chain.from_iterable(members.values()))}
    held = _held(case)
    said = ", ".join(counted(count, f"pod {how}", f"pods {_PLURALS[how]}") for how, count in left.items())
    return Inherited(
        case=case,
        objects=attrs.evolve(
            case.objects,
            pods=tuple(others),
            pod_groups=(),
            bind_requests=(),
            resource_claims=tuple(_used_by(kept, each) for each in case.objects.resource_claims),
        ),
        plans=tuple(_plan(groups[key], pods, held) for key, pods in members.items()),
        notes=(f"Left out of the snapshot: {said}.",) if said else (),
    )


def _used_by(kept: Collection[str], claim: ResourceClaim) -> ResourceClaim:
    """Return a claim without users that are left out; ``kept`` are the UIDs of the remaining pods."""
    for user in claim.status.reserved_for:
        if user.resource == "pods" and user.uid not in kept:
            claim = without_user(claim, user.uid)
    return claim


def _held(case: Case) -> dict[Key, float]:
    """Return the GPUs that each pod on a node holds, parts of devices as parts.

    Only a snapshot as a cycle takes it has this: GPU memory is a part of the node's GPUs, and claims are other objects.
    """
    snapshot = take_snapshot(case.objects, case.now, case.settings)
    asked = (snapshot.requests @ snapshot.axis.gpu_weights()).tolist()
    found: dict[Key, float] = {}
    for row in np.flatnonzero(snapshot.pod_node >= 0).tolist():
        pod, shape = snapshot.pods[row], int(snapshot.pod_shape[row])
        gpu = snapshot.shapes[shape].gpu
        share = gpu.portion
        if gpu.kind is GpuKind.MEMORY:
            device = snapshot.nodes[int(snapshot.pod_node[row])].gpu_memory
            share = max(1, GPU_UNIT * gpu.memory // device) / GPU_UNIT  # as cycles count it
        whole = (asked[shape] - gpu.not_had) / GPU_UNIT
        found[pod.namespace, pod.name] = gpu.devices * share if gpu.shared else whole
    return found


def _plan(group: PodGroup, pods: list[Pod], held: dict[Key, float]) -> JobPlan:
    """Return a running group as a job that is present from the start."""
    planned = tuple(PodPlan(pod=each, gpus=held.get(key_of(each), 0.0)) for each in pods)
    task = TaskPlan(pods=planned, needed=gang_of(group.spec, len(pods)), arrival=0.0)
    return JobPlan(
        arrival=0.0, group=group, tasks=(task,), behaviour=Behaviour(restarts=ALWAYS), owner=group.metadata.name
    )


@attrs.frozen(kw_only=True)
class Loaded:
    """A scene, and doubts about its files."""

    scene: Scene
    findings: tuple[Finding, ...] = ()


def load(
    workload: str,
    cluster: str | None,
    seed: int = 0,
    *,
    until: float = inf,
    skips_bad_rows: bool = False,
    since: float | None = None,
    adoption: Adoption = NONE,
) -> Loaded:
    """Return the scene of a trace, or of a workload in manifests, up to a horizon.

    ``adoption`` selects the workloads of other schedulers to adopt; the jobs of a trace name no scheduler.

    Raises: RefusedError with the place of each mistake, InputError where there is no job or no node.
    """
    if is_trace(workload):
        return load_trace(workload, cluster, seed, skips_bad_rows=skips_bad_rows, since=since)
    return load_scene(workload, cluster, seed, until, adoption)


def load_trace(
    workload: str, cluster: str | None, seed: int, *, skips_bad_rows: bool, since: float | None = None
) -> Loaded:
    """Return the scene of a trace, on the nodes of another file; with ``since``, of the jobs present from then on.

    Raises: as ``load``.
    """
    if cluster is None:
        read_trace(workload, skips_bad_rows=skips_bad_rows, since=since)  # faults of the trace are reported first
        raise InputError(f"{workload}: a trace has no nodes; give them with --cluster FILE: a cluster file, or a CSV")
    trace = read_trace(workload, skips_bad_rows=skips_bad_rows, since=since)
    nodes = read_nodes(cluster) if is_trace(cluster) else ()
    file = ClusterFile(documents=()) if is_trace(cluster) else _cluster_file(cluster)
    inherited = inherited_from(snapshot_in(cluster)) if _is_snapshot(cluster) else None
    around = ClusterObjects() if inherited is None else inherited.objects
    objects, made_queues = objects_of(file.documents, nodes, trace, around)
    # Windows of quotas, periods of budgets and reports go by the dates of the trace.
    more: dict[str, Any] = {"began": trace.began or NEW_YEAR, "starts": trace.began}
    there: tuple[JobPlan, ...] = ()
    if inherited is not None:
        more, there = {**_of_snapshot(inherited), "starts": trace.began}, inherited.plans
        objects, _ = inherited.with_brought(objects)
    if not objects.nodes and not _has_nodes(file):
        raise InputError(f"{cluster}: found no node, expected some for the jobs of {workload}")
    come = (node for event in file.events for node in event.added)
    trace, unmatched = with_models(trace, (*objects.nodes, *come, *(each.make(0) for each in file.autoscale)))
    scene = Scene(
        title=Path(workload).stem,
        objects=objects,
        arrivals=lambda: chain(there, plans_of(trace.jobs)),
        jobs=len(there) + len(trace.jobs),
        span=trace.jobs[-1].arrival,
        seed=seed,
        events=file.events,
        faults=file.faults,
        autoscale=file.autoscale,
        inputs=attrs.evolve(_inputs(workload, cluster), since=since, skips_bad_rows=skips_bad_rows),
        counts={"rows": trace.rows},
        dropped=trace.dropped,
        notes=(
            *unmatched,
            *trace.notes,
            *_unknown_classes(trace, objects),
            *_idle_queues(objects, (job.queue or QUEUE for job in trace.jobs)),
            *more.pop("notes", ()),
        ),
        assumptions=(
            *trace.assumptions,
            *(QUEUES_MADE if made_queues else ()),
            *(inherited.assumptions if inherited is not None else ()),
        ),
        **more,
    )
    return Loaded(scene=scene)


def load_scene(
    workload: str, cluster: str | None, seed: int = 0, until: float = inf, adoption: Adoption = NONE
) -> Loaded:
    """Return the scene of a workload in manifests, on the cluster of a file if one is given.

    Raises: RefusedError with the place of each mistake, InputError where there is no job or no node.
    """
    texts = read_documents(workload, elsewhere="--cluster")
    documents = list(texts.documents)
    if any(is_short(each.manifest) for each in documents):
        raise InputError(f"{workload}: found a scenario, which is of one moment, expected manifests for virtual time")
    # Parents of queues in the cluster file may be defined by the workload.
    queues = {_name_of(each) for each in documents if each.manifest.get("kind") == Queue.__name__}
    file = ClusterFile(documents=()) if cluster is None else _cluster_file(cluster, queues)
    case = snapshot_in(cluster) if cluster is not None and _is_snapshot(cluster) else None
    taken, _, said = adopted_documents([*file.documents, *documents], adoption)
    beside = Beside() if case is None else beside_of(case.objects)
    start = None if case is None else case.now
    found = read_workload(taken, seed, until, start, adoption.ours, beside, adoption.operators)
    objects, plans, notes = found.objects, found.plans, (*found.notes, *said)
    more: dict[str, Any] = {"began": found.began, "starts": found.began if found.is_dated else None}
    if case is not None:
        inherited = inherited_from(case, found.plans)
        objects, left = inherited.with_brought(found.objects)
        plans = (*inherited.plans, *found.plans)
        # Calendar times in the workload win over the time of the snapshot: its jobs arrive when they say.
        more = _of_snapshot(inherited) | ({"began": found.began, "starts": found.began} if found.is_dated else {})
        more |= {"assumptions": inherited.assumptions}
        notes = (*notes, *more.pop("notes"), *left)
    if not objects.nodes and not _has_nodes(file):
        raise InputError(f"{cluster or workload}: found no node; give a cluster with --cluster FILE")
    if cluster is not None and case is None and not _has_nodes(file):
        _refuse_strangers(file, objects, cluster, workload)
        notes = (*notes, f"{cluster} has no node: the nodes are those of {workload}.")
    notes = (*notes, *_idle_queues(objects, (plan.queue for plan in plans)))
    scene = Scene(
        title=Path(workload).resolve().stem,
        objects=objects,
        arrivals=lambda: plans,
        jobs=len(plans),
        span=plans[-1].arrival,
        seed=seed,
        events=file.events,
        faults=file.faults,
        autoscale=file.autoscale,
        inputs=_inputs(workload, cluster),
        counts=found.counts,
        notes=notes,
        **more,
    )
    return Loaded(scene=scene, findings=(*texts.findings, *found.findings))


def _idle_queues(objects: ClusterObjects, names: Iterable[str]) -> Iterator[str]:
    """Yield notes on the first queues that jobs name and that cannot run jobs."""
    parents = {queue.metadata.name: queue.spec.parent_queue or "" for queue in objects.queues}
    faults = [fault for name in sorted(set(names)) if (fault := queue_fault(name, parents)) is not None]
    for fault in faults[:_MOST_QUEUES]:
        said = f"Jobs never start: {fault.message}" + (f"; {fault.hint}" if fault.hint else "")
        yield said if said.endswith("?") else f"{said}."
    if len(faults) > _MOST_QUEUES:
        yield f"So it is with {counted(len(faults) - _MOST_QUEUES, 'more queue')}."


def _unknown_classes(trace: Trace, objects: ClusterObjects) -> tuple[str, ...]:
    """Return a note on priorities that are no priority classes of the cluster."""
    known = {each.metadata.name for each in objects.priority_classes}
    unknown = sorted({job.priority for job in trace.jobs if job.priority} - known)
    if not unknown:
        return ()
    return (f"No priority class is called {first_of(unknown)}: jobs of such a priority have the default one.",)


def _inputs(workload: str, cluster: str | None) -> Inputs:
    return Inputs(
        workload=workload,
        workload_sha256=sha256_of(Path(workload)),
        cluster=cluster,
        cluster_sha256=None if cluster is None else sha256_of(Path(cluster)),
    )


def _has_nodes(file: ClusterFile) -> bool:
    come = bool(file.autoscale) or any(each.added for each in file.events)
    return come or any(each.manifest.get("kind") == Node.__name__ for each in file.documents)


def _refuse_strangers(file: ClusterFile, objects: ClusterObjects, cluster: str, workload: str) -> None:
    """Refuse events for nodes that do not exist: they come from the workload where the cluster file has none."""
    # A cluster file with nodes is checked as it is read; without any, only the workload says which there are.
    known = {each.metadata.name for each in objects.nodes}
    for name in (each for event in file.events for each in event.nodes if each not in known):
        wanted = f"the name of a node of {workload}, such as {first_of(sorted(known), 1)}"
        raise InputError.about(cluster, "events: node", found=name, wanted=wanted)


def _name_of(document: Document) -> str:
    return str(part_of(document.manifest, "metadata", "name"))


def _cluster_file(path: str, queues: Collection[str] = ()) -> ClusterFile:
    """Return the cluster file at a path; ``queues`` come with the workload."""
    place = Path(path)
    if _is_snapshot(path):
        return ClusterFile(documents=())
    if place.is_dir():
        return ClusterFile(documents=read_documents(path).documents)
    try:
        return read_cluster_file(place.read_bytes(), path, queues)
    except OSError as error:
        raise InputError(f"{path}: found {found_by(error)}, expected a cluster file") from None


def _is_snapshot(path: str) -> bool:
    return is_archive(Path(path))


def _of_snapshot(inherited: Inherited) -> dict[str, Any]:
    """Return the fields of a scene that come from a snapshot, beside its objects."""
    case = inherited.case
    return {
        "began": case.now or NEW_YEAR,
        "starts": case.now or None,
        "configuration": case.configuration,
        "document": case.document,
        "settings": case.settings,
        "notes": inherited.notes,
    }


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, or of all manifests of a folder; None for anything else."""
    files = files_of(path)
    if not files and not path.is_dir():
        return None
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


def files_of(path: Path) -> Sequence[Path]:
    """Return a file, or all manifests of a folder, in the order in which they count; empty for anything else."""
    if path.is_dir():
        return files_below(path)
    return [path] if path.is_file() else []
