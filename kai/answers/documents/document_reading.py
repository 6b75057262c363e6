"""Parse documents of the service back into the values that the commands print.

This is the inverse of the rest of this package, for documents of this version or a later one: unknown fields are
ignored, and a document with a missing field counts as no answer.
"""

from collections.abc import Mapping
from typing import Any

from kai.answers.outcomes.entitlement import Entitlement, Gains, Part, Step
from kai.answers.outcomes.gpu_slots import NodeSlots, Slices, SliceUser, Slot, User
from kai.answers.outcomes.job_lines import JobLine, OrderKey, Owner, PodLine
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.node_occupancy import Occupancy, Tenant
from kai.answers.outcomes.overview import Job
from kai.answers.outcomes.owners import Above
from kai.answers.outcomes.queue_lines import ModelUse, QueueLine, Share
from kai.answers.why.evictions import Eviction
from kai.answers.why.past_evictions import PastEviction
from kai.api import values as times
from kai.deciding.explain.phrases import Words
from kai.facts.model.axis import GPU_UNIT

Values = Mapping[str, Any]
_RESOURCES = (("cpuMillis", 1), ("memoryBytes", 1), ("gpus", GPU_UNIT))


# --- Jobs ----------------------------------------------------------------------------------------------------------


def job_lines(document: Values) -> tuple[JobLine, ...]:
    """Return the jobs of a JobList."""
    return tuple(_job_line(item) for item in document["items"])


def owners_of_jobs(document: Values) -> dict[str, tuple[Above, ...]]:
    """Return the owners of jobs in a JobList, by key of the job; empty where an older service omits them."""
    return {
        f"{item['namespace']}/{item['name']}": tuple(Above(each["kind"], each["name"]) for each in item["owners"])
        for item in document["items"]
        if "owners" in item
    }


def _job_line(item: Values) -> JobLine:
    reason, owner, pods = item["reason"], item["owner"], item["pods"]
    state = _state(item["state"])
    waits = reason is not None and reason["code"] != "Evicted"
    counted = pods["wanted"] is not None
    least = item["minMember"]
    job = Job(
        name=item["name"],
        title=item["name"],
        namespace=item["namespace"],
        uid=item["uid"] or "",
        state=state,
        queue=item["queue"],
        priority=item["priority"],
        preemptible=item["preemptible"],
        wanted=pods["wanted"] if counted else least,
        placed=pods["running"] if counted else 0,
        minimum=least,
        gpus=round(item["gpus"] * GPU_UNIT),
        gpu_memory=item["gpuMemoryBytes"] // 2**20,
        gpus_by_memory=round(item["gpusByMemory"] * GPU_UNIT),
        gpus_held=_thousandths(item["gpusHeld"]),
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
        ends_in=item.get("endsInSeconds"),
        counted=counted,
    )


def _pod_line(item: Values) -> PodLine:
    return PodLine(
        name=item["name"],
        state=item["state"],
        node=item["node"] or "",
        gpus=round(item["gpus"] * GPU_UNIT),
        gpu_memory=item["gpuMemoryBytes"] // 2**20,
        gpus_held=_thousandths(item["gpusHeld"]),
    )


def _thousandths(gpus: float | None) -> int | None:
    return None if gpus is None else round(gpus * GPU_UNIT)


def _state(text: str) -> State:
    """Return a state; an unknown one of a later version counts as waiting."""
    known = {str(state): state for state in State}
    return known.get(text, State.WAITS)


# --- Queues --------------------------------------------------------------------------------------------------------


def queue_lines(document: Values) -> tuple[QueueLine, ...]:
    """Return the queues of a QueueList as a tree; a queue whose parent is not included is at the top."""
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
        models=tuple(_model_use(each) for each in item.get("models", ())),
    )


def _model_use(values: Values) -> ModelUse:
    limit = values["limit"]
    return ModelUse(
        model=values["model"], limit=None if limit is None else limit * GPU_UNIT, used=values["used"] * GPU_UNIT
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
    """Return the entitlement in a QueueExplanation."""
    unit = GPU_UNIT if document["resource"] == "gpu" else 1
    return Entitlement(
        queue=document["subject"]["name"],
        parent=document["parent"] or "",
        resource=document["resource"],
        total=None if document["total"] is None else document["total"] * unit,
        share=document["fairShare"] * unit,
        used=document["used"] * unit,
        asks=document["requested"] * unit,
        siblings=tuple(_part(each, unit) for each in document["siblings"]),
        steps=tuple(
            Step(step=each["step"], total=each["total"] * unit, given=each["given"] * unit, formula=each["formula"])
            for each in document["fairShareSteps"]
        ),
        with_history=document["pastUsageCounts"],
        gains=_gains(document.get("getsMoreBy")),
    )


def _gains(values: Values | None) -> Gains:
    if values is None:
        return Gains(are_known=False)
    return Gains(siblings=tuple(values["siblings"]), bounds=tuple(values["bounds"]))


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
    """Return the waiting jobs of a QueueExplanation."""
    names = [(each["name"], each["namespace"]) for each in document["waiting"]]
    return tuple(Job(name=name, title=name, namespace=namespace, state=State.WAITS) for name, namespace in names)


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
        slices=_slices(item),
    )


def _slices(item: Values) -> tuple[Slices, ...]:
    """Return the MIG slices of a node; empty where an older service omits them."""
    return tuple(
        Slices(resource=each["resource"], total=each["total"], users=tuple(map(_slice_user, each["users"])))
        for each in item.get("migSlices", ())
    )


def _slice_user(values: Values) -> SliceUser:
    return SliceUser(**_holder(values), count=values["count"])


def _user(values: Values) -> User:
    return User(**_holder(values), share=round(values["share"] * GPU_UNIT))


def _holder(values: Values) -> dict[str, str]:
    """Return the fields of a user of a GPU or slice, for any class with these fields."""
    kept = {name: values[name] for name in ("job", "namespace", "pod", "state")}
    return {**kept, "queue": values["queue"] or ""}


def occupancy(document: Values) -> Occupancy:
    """Return the occupancy in a NodeExplanation."""
    return Occupancy(
        node=document["subject"]["name"],
        gpus=round(document["gpus"] * GPU_UNIT),
        idle=round(document["idleGpus"] * GPU_UNIT),
        partly=round(document["partlyIdleGpus"] * GPU_UNIT),
        ready=document["ready"],
        closed=document.get("closed") or ("" if document["ready"] else "not ready"),
        closed_for=document.get("closedSeconds"),
        failed=round(document.get("failedGpus", 0.0) * GPU_UNIT),
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
        slices=_slices(document),
    )


# --- Evictions -----------------------------------------------------------------------------------------------------


def evictions(document: Values) -> tuple[Eviction, ...]:
    """Return the evictions of the last cycle in an EvictionList."""
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
    """Return the evictions of past cycles in an EvictionList."""
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
