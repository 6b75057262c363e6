"""Documents read back: what a service answered, as the values that the commands print.

It is the inverse of the rest of this package, for documents of this version or a later one: fields that are not known
are passed over, and a document that lacks one is no answer.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from kai.api import times
from kai.api.bad_value import BadValue
from kai.api.objects import ClusterObjects
from kai.errors import UnreachableError
from kai.explain.phrases import Words
from kai.model.axis import GPU_UNIT
from kai.simulation.changes import Change
from kai.simulation.entitlement import Entitlement, Part, Step
from kai.simulation.evictions import Eviction
from kai.simulation.evidence import Evidence
from kai.simulation.explanation import Fold, JobExplanation
from kai.simulation.jobs import JobLine, OrderKey, Owner, PodLine
from kai.simulation.occupancy import Occupancy, Tenant
from kai.simulation.overview import Job
from kai.simulation.past_evictions import PastEviction
from kai.simulation.queue_lines import QueueLine, Share
from kai.simulation.slots import NodeSlots, Slot, User
from kai.simulation.starts import Eta
from kai.simulation.states import State
from kai.simulation.suggestions import Suggestions
from kai.simulation.trials import ChangeTrial, Loss, Result

Values = Mapping[str, Any]
R = TypeVar("R")
_RESOURCES = (("cpuMillis", 1), ("memoryBytes", 1), ("gpus", GPU_UNIT))
_NO_OBJECTS = ClusterObjects()


def read(document: object, kind: str, reader: Callable[[Any], R]) -> R:
    """Return what ``reader`` makes of a document of a kind.

    Raises: UnreachableError for a document that is another one, or lacks something: that is no answer.
    """
    found = document.get("kind") if isinstance(document, Mapping) else None
    if found != kind:
        raise UnreachableError(f"service: kind: found {found!r}, expected {kind}")
    try:
        return reader(document)
    except (KeyError, TypeError, ValueError, AttributeError, BadValue) as error:
        text = f"{type(error).__name__}: {error}"
        raise UnreachableError(f"service: {kind}: found {text}, expected a document of output.kai/v1") from None


# --- Jobs ----------------------------------------------------------------------------------------------------------


def job_lines(document: Values) -> tuple[JobLine, ...]:
    """Return the jobs of a JobList."""
    return tuple(_job_line(item) for item in document["items"])


def _job_line(item: Values) -> JobLine:
    reason, owner, pods = item["reason"], item["owner"], item["pods"]
    state = _state(item["state"])
    waits = reason is not None and reason["code"] != "Evicted"
    counted = pods["wanted"] is not None
    least = item["minMember"]
    job = _job(
        item["namespace"],
        item["name"],
        item["uid"] or "",
        state,
        queue=item["queue"],
        priority=item["priority"],
        preemptible=item["preemptible"],
        wanted=pods["wanted"] if counted else least,
        placed=pods["running"] if counted else 0,
        minimum=least,
        gpus=round(item["gpus"] * GPU_UNIT),
        nodes=tuple(item["nodes"]),
        words=Words(reason["code"], reason["text"]) if waits else None,
        lost_to=() if reason is None or waits else (reason["text"],),
    )
    return JobLine(
        job=job,
        uid=job.uid,
        labels=item.get("labels") or {},
        owner=None if owner is None else Owner(owner["kind"], owner["name"], ""),
        since=None if item["since"] is None else times.instant(item["since"]),
        position=item["position"],
        keys=tuple(OrderKey(key["name"], float(key["value"])) for key in item["orderKeys"]),
        pods=tuple(map(_pod_line, item.get("podList") or ())),
        counted=counted,
    )


def _pod_line(item: Values) -> PodLine:
    gpus = round(item["gpus"] * GPU_UNIT)
    return PodLine(name=item["name"], state=item["state"], node=item["node"] or "", gpus=gpus)


def _job(namespace: str, name: str, uid: str, state: State, **more: Any) -> Job:  # noqa: ANN401 - fields of a job
    facts = {"queue": "", "priority": None, "preemptible": None, "wanted": 0, "placed": 0, "minimum": 0, "gpus": 0}
    return Job(
        name=name,
        namespace=namespace,
        uid=uid,
        title=name,
        state=state,
        started=0,
        held=0,
        evicted=0,
        **{"nodes": (), **facts, **more},
    )


def _state(text: str) -> State:
    """Return a state; one that is not known yet counts as waiting."""
    known = {str(state): state for state in State}
    return known.get(text, State.WAITS)


# --- Queues --------------------------------------------------------------------------------------------------------


def queue_lines(document: Values) -> tuple[QueueLine, ...]:
    """Return the queues of a QueueList as a tree; what is below a queue that is not shown stands at the top."""
    items = document["items"]
    names = {item["name"] for item in items}
    children: dict[str, list[Values]] = {}
    for item in items:
        parent = item["parent"] or ""
        children.setdefault(parent if parent in names else "", []).append(item)
    found: list[QueueLine] = []
    waiting: list[tuple[Values, tuple[bool, ...]]] = [(top, ()) for top in reversed(children.get("", []))]
    while waiting:
        item, last = waiting.pop()
        below = children.get(item["name"], [])
        found.append(_queue_line(item, last))
        waiting += [(child, (*last, child is below[-1])) for child in reversed(below)]
    return tuple(found)


def _queue_line(item: Values, last: tuple[bool, ...]) -> QueueLine:
    cpu, memory, gpu = (_share(item[key], unit) for key, unit in _RESOURCES)
    return QueueLine(
        name=item["name"],
        parent=item["parent"] or "",
        leaf=item["leaf"],
        priority=item["priority"],
        depth=len(last),
        last=last,
        running=item["jobsRunning"],
        waiting=item["jobsWaiting"],
        shares=(cpu, memory, gpu),
    )


def _share(values: Values, unit: int) -> Share:
    quota, limit = values["quota"], values["limit"]
    return Share(
        quota=None if quota is None else quota * unit,
        limit=None if limit is None else limit * unit,
        fair_share=values["fairShare"] * unit,
        used=values["used"] * unit,
        used_non_preemptible=values["usedNonPreemptible"] * unit,
        wanted=values["requested"] * unit,
    )


def entitlement(document: Values) -> Entitlement:
    """Return how the share of a queue came about, of a QueueExplanation."""
    unit = GPU_UNIT if document["resource"] == "gpu" else 1
    return Entitlement(
        queue=document["subject"]["name"],
        parent=document["parent"] or "",
        resource=document["resource"],
        total=document["total"] * unit,
        share=document["fairShare"] * unit,
        used=document["used"] * unit,
        asks=document["requested"] * unit,
        siblings=tuple(_part(each, unit) for each in document["siblings"]),
        steps=tuple(
            Step(step=each["step"], total=each["total"] * unit, given=each["given"] * unit, formula=each["formula"])
            for each in document["fairShareSteps"]
        ),
        with_history=document["pastUsageCounts"],
    )


def _part(values: Values, unit: int) -> Part:
    quota, limit = values["quota"], values["limit"]
    return Part(
        name=values["name"],
        asks=values["requested"] * unit,
        quota=None if quota is None else quota * unit,
        limit=None if limit is None else limit * unit,
        weight=values["weight"],
        priority=values["priority"],
        usage=values["usage"],
        used=values["used"] * unit,
        given=values["fairShare"] * unit,
    )


def waiting_jobs(document: Values) -> tuple[Job, ...]:
    """Return the jobs that wait in the queue of a QueueExplanation."""
    return tuple(_job(each["namespace"], each["name"], "", State.WAITS) for each in document["waiting"])


# --- Nodes ---------------------------------------------------------------------------------------------------------


def node_slots(document: Values) -> tuple[NodeSlots, ...]:
    """Return the nodes of a NodeList."""
    return tuple(_node(item) for item in document["items"])


def _node(item: Values) -> NodeSlots:
    slots = tuple(Slot(state=gpu["state"], users=tuple(map(_user, gpu["users"]))) for gpu in item["gpus"])
    return NodeSlots(
        name=item["name"],
        labels=item["labels"],
        ready=item["ready"],
        gpus=len(slots),
        slots=slots,
        domains=item["domains"],
    )


def _user(values: Values) -> User:
    return User(
        job=values["job"],
        namespace=values["namespace"],
        queue=values["queue"] or "",
        pod=values["pod"],
        share=round(values["share"] * GPU_UNIT),
        state=values["state"],
    )


def occupancy(document: Values) -> Occupancy:
    """Return what is on a node, of a NodeExplanation."""
    return Occupancy(
        node=document["subject"]["name"],
        gpus=round(document["gpus"] * GPU_UNIT),
        idle=round(document["idleGpus"] * GPU_UNIT),
        ready=document["ready"],
        taints=tuple(document["taints"]),
        tenants=tuple(
            Tenant(
                job=each["job"],
                title=each["job"].rpartition("/")[2],
                queue=each["queue"] or "",
                pods=each["pods"],
                gpus=round(each["gpus"] * GPU_UNIT),
                state=each["state"],
            )
            for each in document["users"]
        ),
        kept_away=tuple((each["reason"], tuple(each["jobs"])) for each in document["keptAway"]),
    )


# --- Evictions -----------------------------------------------------------------------------------------------------


def evictions(document: Values) -> tuple[Eviction, ...]:
    """Return the evictions of the last cycle, of an EvictionList."""
    return tuple(
        Eviction(
            pod=each["pod"],
            job=each["job"],
            queue=each["queue"],
            node=each["node"] or "",
            gpus=round(each["gpus"] * GPU_UNIT),
            cause=each["cause"],
            rule=each["rule"],
            beneficiary=each["beneficiary"] or "",
            moved_to=each["movedTo"] or "",
            because=tuple(each["because"]),
        )
        for each in document["items"]
    )


def past_evictions(document: Values) -> tuple[PastEviction, ...]:
    """Return the evictions of cycles before, of an EvictionList."""
    return tuple(
        PastEviction(
            time=each["time"] or "",
            pod=each["pod"] or "",
            job=each["job"],
            queue=each["queue"] or "",
            gpus=each["gpus"],
            cause=each["cause"],
            rule=each["rule"],
            gainer=each["beneficiary"] or "",
            gainer_queue=each["beneficiaryQueue"] or "",
            because=each["because"] or "",
            source=each["source"],
        )
        for each in document["past"]
    )


# --- Explanations --------------------------------------------------------------------------------------------------


def folds(document: Values, lines: Iterable[JobLine] = ()) -> tuple[Fold, ...]:
    """Return the reasons of an ExplanationList; ``lines`` are jobs of a list, which says how large they are."""
    known = {line.job.key: line for line in lines}
    found = (
        fold(item, known.get(f"{item['subject']['namespace']}/{item['subject']['name']}")) for item in document["items"]
    )
    return tuple(attrs.evolve(each, alike=tuple(_listed(job, known) for job in each.alike)) for each in found)


def _listed(job: Job, known: Mapping[str, JobLine]) -> Job:
    """Return a job as a list of jobs has it; itself if it is in none."""
    line = known.get(job.key)
    return job if line is None else line.job


def fold(item: Values, line: JobLine | None = None) -> Fold:
    """Return why a job waits; ``line`` is the job in a list of jobs, which says what an explanation leaves out."""
    about, reason = item["subject"], item["reason"]
    job = line.job if line is not None else _job(about["namespace"], about["name"], about["uid"], _state(item["state"]))
    if line is None:
        job = _with_size(job, item)
    eta = item["eta"]
    told = JobExplanation(
        job=job,
        summary=item["summary"],
        reason=_words(reason),
        wire_reason=reason["wireReason"] or "",
        also=tuple(map(_words, item["also"])),
        evidence=tuple(
            Evidence(label=each["label"], text=each["text"], values=each["values"]) for each in item["evidence"]
        ),
        suggestions=Suggestions(told=tuple(map(_trial, item["suggestions"])), all_tried=bool(item["allChangesTried"])),
        waiting=item["waiting"],
        position=item["position"],
        since=None if item["waitingSince"] is None else times.instant(item["waitingSince"]),
        waited=item["waitingSeconds"],
        eta=None
        if eta is None
        else Eta(seconds=eta["seconds"], basis=eta["basis"], assumptions=tuple(eta["assumptions"])),
        evicted_by=tuple(item["evictedBy"]),
    )
    alike = tuple(_job(each["namespace"], each["name"], each["uid"], State.WAITS) for each in item["alike"])
    return Fold(explanation=told, alike=alike)


def _with_size(job: Job, item: Values) -> Job:
    """Return a job with what its reason says of it."""
    needs: Values = next((each["values"] for each in item["evidence"] if each["label"] == "needs"), {})
    return attrs.evolve(
        job,
        queue=item["reason"]["queue"] or "",
        wanted=needs.get("pods") or 0,
        gpus=round((needs.get("gpus") or 0) * GPU_UNIT),
    )


def _words(values: Values) -> Words:
    facts = {key: value for key, value in values.items() if isinstance(value, str | int | float)}
    return Words(values["code"], values["detail"], facts)


def _trial(values: Values) -> ChangeTrial:
    placement = tuple((each["pod"], each["node"]) for each in values["placement"])
    losses = []
    for each in values["losses"]:
        namespace, _, name = each["job"].rpartition("/")
        losses.append(Loss(name=name, namespace=namespace, pods=each["pods"], evicted=each["evicted"]))
    return ChangeTrial(
        change=Change(
            field=values["field"],
            old=values["from"] or "",
            new=values["to"] or "",
            text=values["text"],
            objects=_NO_OBJECTS,
        ),
        result=Result(values["outcome"]),
        started=len(placement),
        waiting=values["podsStillWaiting"],
        placement=placement,
        reason=None if values["nextReason"] is None else _words(values["nextReason"]),
        losses=tuple(losses),
    )
