"""Explanations as values of documents. Names of jobs and pods are ``namespace/name``.

A suggested change also comes as JSON patches (RFC 6902) of the objects that it would edit, and as an edit of the user's
files (``in_file``): the part of a manifest to merge, or the command to type. Changes are tried on pods and on their
group. Users write neither of them: they write a workload with a pod template, and its labels and annotations set fields
of the group.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kinds import key_of
from kai.api.values import instant_text
from kai.basics.wording import first_of
from kai.facts.model.units import GPU_UNIT

if TYPE_CHECKING:
    from kai.answers.outcomes.job_lines import JobLine, Owner
    from kai.answers.outcomes.overview import Job
    from kai.answers.why.evictions import Eviction
    from kai.answers.why.explanation import Explained, Fold
    from kai.answers.why.facts import Evidence
    from kai.answers.why.past_evictions import PastEviction
    from kai.answers.why.trials import ChangeTrial
    from kai.api.cluster_objects import ClusterObjects
    from kai.api.kinds import ApiObject
    from kai.deciding.explain.phrases import Words

_TEMPLATE: Final = "pod template"
_SPEC: Final = {
    "queue": ("labels", names.QUEUE),
    "preemptibility": ("labels", names.PREEMPTIBILITY),
    "minMember": ("annotations", names.MIN_MEMBER),
    "preemptionDelay": ("annotations", names.PREEMPTION_DELAY),
}
"""Fields of a group, with the label or annotation of a workload that sets each."""
_COUNTED_BY_ANNOTATION: Final = "Job"
"""The one kind that sets by annotation how many pods start together; other kinds have fields of their own for that."""
_LEVELS: Final = {
    "requiredTopologyLevel": names.TOPOLOGY_REQUIRED,
    "preferredTopologyLevel": names.TOPOLOGY_PREFERRED,
}
Operation = dict[str, Any]


def in_file(before: "ClusterObjects", after: "ClusterObjects", owner: "Owner | None") -> list[dict[str, Any]]:
    """Return the edit of each file: ``object`` and ``merge``, or a ``command``.

    ``owner`` is the workload that the group was made for; None for a group that a user wrote. The result is empty for
    changes that no file makes, such as nodes becoming ready.
    """
    found: list[dict[str, Any]] = []
    for field, old, new in changed_objects(before, after):
        if new is None:
            return []  # fewer pods: each kind of workload has its own field for that
        found += _said(field, unstructure(old), unstructure(new), owner)
    return [each for at, each in enumerate(found) if each not in found[:at]]


def changed_objects(
    before: "ClusterObjects", after: "ClusterObjects"
) -> "Iterator[tuple[str, ApiObject, ApiObject | None]]":
    """Yield field, old and new form of each object that differs; the new form is None for an object that is gone.

    Objects that are equal must be identical in memory. New objects are not yielded.
    """
    for field in attrs.fields_dict(type(before)):
        olds, news = getattr(before, field), getattr(after, field)
        if olds is news:
            continue
        new_of = {key_of(each): each for each in news}
        for old in olds:
            new = new_of.get(key_of(old))
            if new is not old:
                yield field, old, new


def _said(field: str, old: Any, new: Any, owner: "Owner | None") -> Iterator[dict[str, Any]]:  # noqa: ANN401 - an object as plain values
    merge, name = _merge(old, new), new["metadata"]["name"]
    if field == "nodes":
        if old.get("spec", {}).get("unschedulable") and not new.get("spec", {}).get("unschedulable"):
            yield {"command": f"kubectl uncordon {name}"}
    elif field == "pods" and owner is not None:
        yield {"object": _TEMPLATE, "merge": merge}
    elif field == "pod_groups" and owner is not None:
        yield from _of_workload(merge.get("spec", {}), owner)
    elif merge:
        yield {"object": f"{new.get('kind', '')} {name}".strip(), "merge": merge}


def _of_workload(spec: Mapping[str, Any], owner: "Owner") -> Iterator[dict[str, Any]]:
    """Yield the labels and annotations of a workload that set a group's spec; nothing unless they can set all of it."""
    metadata: dict[str, dict[str, Any]] = {}
    for key, value in spec.items():
        if key == "topologyConstraint":
            levels = {_LEVELS[each]: level or None for each, level in value.items() if each in _LEVELS}
            metadata.setdefault("annotations", {}).update(levels)
        elif key in _SPEC and (key != "minMember" or owner.kind == _COUNTED_BY_ANNOTATION):
            where, name = _SPEC[key]
            metadata.setdefault(where, {})[name] = value if isinstance(value, str) else str(value)
        else:
            return
    if metadata:
        yield {"object": f"{owner.kind} {owner.name}", "merge": {"metadata": metadata}}


def _merge(old: Any, new: Any) -> Any:  # noqa: ANN401 - objects as plain values
    """Return a merge patch that turns ``old`` into ``new``; null removes a field."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        changed = {key: _merge(old[key], new[key]) for key in new if key in old and old[key] != new[key]}
        more = {key: new[key] for key in new if key not in old}
        return {**changed, **more, **{key: None for key in old if key not in new}}
    if isinstance(old, list) and isinstance(new, list) and _names(old) == _names(new) != []:
        parts = zip(old, new, strict=True)
        return [{"name": new_part["name"], **_merge(part, new_part)} for part, new_part in parts if part != new_part]
    return new


def _names(parts: list[Any]) -> list[str]:
    """Return the names of list elements, such as containers; empty if any has none."""
    found = [each.get("name") if isinstance(each, Mapping) else None for each in parts]
    return [each for each in found if each] if all(found) else []


__all__ = ["changed_objects", "in_file"]


@attrs.frozen(kw_only=True)
class Fate:
    """The fate of a job that has no pods at an instant: it has ended, or is still to come."""

    namespace: str
    name: str
    queue: str
    state: str
    pods: int
    gpus: float
    summary: str


def patches_of(before: "ClusterObjects", after: "ClusterObjects") -> list[dict[str, Any]]:
    """Return a patch for each object that differs; objects that are equal must be identical in memory.

    For an object that is gone, the patch is a single operation that removes it.
    """
    found = []
    for _, old, new in changed_objects(before, after):
        operations = [_operation("remove", "")] if new is None else _difference(old, new)
        if operations:
            found.append(_patch(old, operations))
    return found


def _patch(obj: "ApiObject", operations: list[Operation]) -> dict[str, Any]:
    namespace, name = key_of(obj)
    kind = str(unstructure(obj).get("kind", ""))
    return {"kind": kind, "namespace": namespace or None, "name": name, "patch": operations}


def _difference(old: "ApiObject", new: "ApiObject") -> list[Operation]:
    return list(_changes(unstructure(old), unstructure(new), ""))


def _changes(old: object, new: object, path: str) -> Iterator[Operation]:
    """Yield the operations that turn one value into another.

    Lists are changed element by element where possible: a container in the cluster has fields that kai does not read,
    and replacing the whole list would drop them.
    """
    if old == new:
        return
    if isinstance(old, list) and isinstance(new, list) and new[: len(old)] != old and len(old) != len(new):
        yield _operation("replace", path, new)
        return
    if isinstance(old, list) and isinstance(new, list):
        for at, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _changes(one, other, f"{path}/{at}")
        yield from (_operation("add", f"{path}/-", each) for each in new[len(old) :])
        return
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield _operation("replace", path, new)
        return
    for key in sorted({*old, *new}):
        place = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield _operation("remove", place)
        elif key not in old:
            yield _operation("add", place, new[key])
        else:
            yield from _changes(old[key], new[key], place)


def _operation(name: str, path: str, value: object = None) -> Operation:
    return {"op": name, "path": path} if name == "remove" else {"op": name, "path": path, "value": value}


_UNITS = {"gpu": GPU_UNIT}
_MOST_NAMED = 6
_WAITS_FOR_NOTHING: Final[Mapping[str, Any]] = {
    "reason": None,
    "also": [],
    "evidence": [],
    "suggestions": [],
    "allChangesTried": None,
    "waiting": None,
    "position": None,
    "waitingSince": None,
    "waitingSeconds": None,
    "since": None,
    "eta": None,
    "etaUnknown": None,
    "evictedBy": [],
    "alike": [],
}
"""The fields of an explanation that are empty for a job without waiting pods."""


def documents(found: "Explained") -> dict[str, Any]:
    """Return explanations and evictions. Jobs that wait for the same reason are listed with the explained one."""
    return {
        "explanations": [explanation(fold) for fold in found.folds],
        "evicted": [eviction(each) for each in found.evictions],
        "unusedEvictions": list(found.unused),
        "assumptions": list(found.assumptions),
    }


def jobs_document(found: "Explained", untried: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the kind and the fields of an answer about jobs: waiting jobs first, then the others.

    ``untried`` says why no change was tried; None where changes were.
    """
    items = [explanation(fold) for fold in found.folds] + [settled_values(line) for line in found.settled]
    more: dict[str, Any] = {"evicted": [eviction(each) for each in found.evictions]}
    more |= {"assumptions": list(found.assumptions), "untried": untried}
    if len(items) == 1:
        return "Explanation", {**items[0], **more}
    return "ExplanationList", {"items": items, **more}


def eviction(each: "Eviction") -> dict[str, Any]:
    """Return why one pod must be evicted."""
    return {
        "pod": each.pod,
        "job": each.job,
        "queue": each.queue,
        "node": each.node or None,
        "gpus": each.gpus / GPU_UNIT,
        "cause": each.cause,
        "beneficiary": each.beneficiary or None,
        "rule": each.rule,
        "movedTo": each.moved_to or None,
        "because": list(each.because),
    }


def past_eviction(each: "PastEviction") -> dict[str, Any]:
    """Return why one pod was evicted, as far as that is on record."""
    return {
        "time": each.time or None,
        "pod": each.pod or None,
        "job": each.job,
        "queue": each.queue or None,
        "gpus": each.gpus,
        "cause": each.cause,
        "beneficiary": each.gainer or None,
        "beneficiaryQueue": each.gainer_queue or None,
        "rule": each.rule,
        "because": each.because or None,
        "source": each.source,
    }


def explanation(fold: "Fold") -> dict[str, Any]:
    """Return why a job waits, and the other jobs that wait for the same reason."""
    each = fold.explanation
    return {
        **_place(each.job),
        "summary": each.summary,
        "reason": {**reason(each.reason), "wireReason": each.wire_reason or None},
        "also": [reason(words) for words in each.also],
        "evidence": [evidence_values(one) for one in each.evidence],
        "suggestions": [_suggestion(trial, each.owner) for trial in each.suggestions.changes],
        "allChangesTried": each.suggestions.all_tried,
        "waiting": each.waiting,
        "position": each.position,
        "waitingSince": None if each.since is None else instant_text(each.since),
        "waitingSeconds": each.waited,
        "since": None,
        "eta": None
        if each.eta is None
        else {"seconds": each.eta.seconds, "basis": each.eta.basis, "assumptions": list(each.eta.assumptions)},
        "etaUnknown": each.waiting if each.eta is None else None,
        "evictedBy": list(each.evicted_by),
        "alike": [{**subject(job), "title": job.title, **_size(job)} for job in fold.alike],
    }


def evidence_values(one: "Evidence") -> dict[str, Any]:
    """Return one piece of evidence for a reason."""
    return {"label": one.label, "text": one.text, "values": dict(one.values)}


def settled_values(line: "JobLine") -> dict[str, Any]:
    """Return the state of a job without waiting pods, in the form of an explanation."""
    job = line.job
    return {
        **_place(job),
        "summary": settled(job),
        **_WAITS_FOR_NOTHING,
        "evidence": [{"label": "nodes", "text": ", ".join(job.nodes), "values": {"nodes": [*job.nodes]}}],
        "since": None if line.since is None else instant_text(line.since),
        "evictedBy": list(job.lost_to),
    }


def fate_values(fate: Fate) -> dict[str, Any]:
    """Return the outcome of a job without pods in a run over virtual time, in the form of an explanation."""
    return {
        "subject": {"kind": "PodGroup", "namespace": fate.namespace, "name": fate.name, "uid": ""},
        "state": fate.state,
        "queue": fate.queue,
        "pods": fate.pods,
        "gpus": fate.gpus,
        "summary": fate.summary,
        **_WAITS_FOR_NOTHING,
        "evicted": [],
        "assumptions": [],
    }


def settled(job: "Job") -> str:
    """Return the state of a job without waiting pods, in one sentence."""
    from kai.answers.outcomes.job_states import MEANINGS, State  # noqa: PLC0415 - importing it loads the whole engine

    nodes = first_of(job.nodes, _MOST_NAMED)
    match job.state:
        case State.RUNNING:
            return f"{job.title} runs on {nodes}."
        case State.STARTS:
            return f"{job.title} starts now on {nodes}."
        case State.EVICTED:
            return f"{job.title} is evicted: {', '.join(job.lost_to)}."
        case State.PARTIAL:
            lost = f": {', '.join(job.lost_to)}" if job.lost_to else ""
            return f"{job.title} keeps {job.placed} of {job.wanted} pods, on {nodes}{lost}."
        case State.REFUSED:
            code, text = job.refusal
            return f"{job.title} is refused: {code} {text}."
        case State.LOST:
            return f"{job.title} does not run: {job.reason[1]}."
        case _:
            meaning = MEANINGS[job.state]
            return f"{job.title}: {meaning[0].lower()}{meaning[1:]}"


def subject(job: "Job") -> dict[str, Any]:
    """Return the subject of an answer about a job."""
    return {"kind": "PodGroup", "namespace": job.namespace, "name": job.name, "uid": job.uid}


def _place(job: "Job") -> dict[str, Any]:
    """Return the subject, state, queue and size of a job."""
    return {"subject": subject(job), "state": str(job.state), "queue": job.queue, **_size(job)}


def _size(job: "Job") -> dict[str, Any]:
    return {"pods": job.wanted, "gpus": job.gpus / GPU_UNIT}


def reason(words: "Words") -> dict[str, Any]:
    """Return a reason with its numbers. Units: GPUs in devices, CPU in millicores, memory in bytes; None is unknown."""
    facts = words.facts
    limit, used, requested, share = (_amount(facts, key) for key in ("bound", "used", "requested", "fair_share"))
    allowed = share if limit is None else limit
    excess = None if allowed is None or used is None or requested is None else used + requested - allowed
    return {
        "code": words.code,
        "detail": words.text,
        "queue": facts.get("queue"),
        "resource": facts.get("resource"),
        "limit": limit,
        "fairShare": share,
        "used": used,
        "requested": requested,
        "excess": excess,
    }


def _amount(facts: Mapping[str, object], key: str) -> float | None:
    value = facts.get(key)
    return float(value) / _UNITS.get(str(facts.get("resource")), 1) if isinstance(value, int | float) else None


def _suggestion(trial: "ChangeTrial", owner: "Owner | None") -> dict[str, Any]:
    change = trial.change
    return {
        "field": change.field,
        "from": change.old or None,
        "to": change.new or None,
        "text": change.text,
        "verified": True,
        "outcome": str(trial.result),
        "patch": [] if trial.before is None else patches_of(trial.before, change.objects),
        "inFile": [] if trial.before is None else in_file(trial.before, change.objects, owner),
        "nextReason": None if trial.reason is None else reason(trial.reason),
        "placement": [{"pod": pod, "node": node} for pod, node in trial.placement],
        "podsStillWaiting": trial.waiting,
        "podsKept": 0 if trial.placement else trial.started,
        "losses": [{"job": each.key, "pods": each.pods, "evicted": each.evicted} for each in trial.losses],
    }
