"""The result of a simulation for machines: what conformance cases compare, and everything that the tables show."""

from typing import TYPE_CHECKING, Any

from kai.documents.envelope import enveloped
from kai.documents.queues import queue_values
from kai.model.axis import GPU_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kai.manifests import Unused
    from kai.simulation.comparing.expected_answer import Differences
    from kai.simulation.deciding.run import Cycle
    from kai.simulation.outcomes.overview import Job, Overview
    from kai.simulation.request import Result


def document(result: "Result", differences: "Differences | None", *, explain: bool = False) -> dict[str, Any]:
    """Return the result as plain values, with explanations if they are wanted. Fields are only ever added."""
    out = enveloped("SimulationResult", _answer(result), result.case.origin)
    if result.overview is not None:
        out |= _overview(result.overview, result.refused)
    if explain and result.explained is not None:
        from kai.documents.explanations import documents

        out |= documents(result.explained)
    if result.unused:
        out["unused"] = [_unused(each) for each in result.unused]
    if result.notes:
        out["notes"] = list(result.notes)
    if differences is not None:
        out["check"] = {
            "ok": None if differences.unknown else not differences.found,
            "differences": list(differences.found),
        }
    return out


def _unused(each: "Unused") -> dict[str, Any]:
    group = {"group": each.group} if each.group else {}
    return {"kind": each.kind, **group, "count": each.count, "reason": each.reason}


def _answer(result: "Result") -> dict[str, Any]:
    """Return the answer with pods by ``namespace/name``; conformance calls them by name where that is enough.

    Pods have their state in the words of jobs beside the status, which is that of KAI-Scheduler.
    """
    from kai.simulation.outcomes.answer_document import pod_names
    from kai.simulation.outcomes.pod_states import pod_states

    out, outcome = dict(result.answer), result.outcome
    if outcome is None:
        return out
    keys = {
        name: pod.key for name, pod in zip(pod_names(outcome.last.snapshot), outcome.last.snapshot.pods, strict=True)
    }

    def told(cycle: "Cycle", pods: "Mapping[str, Any]") -> dict[str, Any]:
        states = dict(zip((pod.key for pod in cycle.snapshot.pods), pod_states(cycle), strict=True))
        return {keys[name]: {"state": str(states[keys[name]]), **pod} for name, pod in pods.items()}

    out["pods"] = told(outcome.last, out["pods"])
    if "stable" in out:
        moments = zip(outcome.stable, out["stable"], strict=True)
        out["stable"] = [{**moment, "pods": told(cycle, moment["pods"])} for cycle, moment in moments]
    return out


def _overview(seen: "Overview", refused: "Sequence[Job]") -> dict[str, Any]:
    return {
        "jobs": [_job(job) for job in (*seen.jobs, *refused)],
        "queues": [queue_values(queue) for queue in seen.queues],
        "evictions": [{"pod": pod, "message": message} for pod, message in seen.evictions],
    }


def _job(job: "Job") -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": job.name,
        "namespace": job.namespace,
        "queue": job.queue,
        "priority": job.priority,
        "preemptible": job.preemptible,
        "minMember": job.minimum,
        "pods": {
            "wanted": job.wanted,
            "placed": job.placed,
            "started": job.started,
            "held": job.held,
            "evicted": job.evicted,
        },
        "gpus": job.gpus / GPU_UNIT,
        "nodes": list(job.nodes),
        "state": str(job.state),
        "reason": None,
    }
    if any(job.refusal):
        out["reason"] = {"code": job.refusal[0], "text": job.refusal[1]}
    if job.words is not None:
        out["reason"] = {"code": job.words.code, "text": job.words.text}
        out["message"] = job.message
        out["wireReasons"] = [{"reason": each.reason, "message": each.message} for each in job.explanations]
        out["podMessages"] = dict(job.pod_messages)
    return out
