"""The JSON API: the documents of the commands, about the last cycle, within the rights of the reader.

`answer` is CPU-bound and must run in a worker thread; answers are cached by path and scope of a moment.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from kai.answers.documents.document import ABSENT
from kai.answers.documents.evictions import EvictionItem, EvictionList, PastEvictionItem
from kai.answers.documents.explanations import Explanation, ExplanationItem, ExplanationList, jobs_document
from kai.answers.documents.jobs import JobItem, JobList
from kai.answers.documents.listings import CycleItem, CycleList
from kai.answers.documents.nodes import NodeExplanation, NodeItem, NodeList
from kai.answers.documents.queues import QueueExplanation, QueueList, queue_items
from kai.answers.outcomes.job_lines import lines_named
from kai.answers.why.explanation import Fold
from kai.answers.why.past_evictions import SERVICE, PastEviction, rule_of
from kai.api.values import instant_text
from kai.basics.wording import shown
from kai.cluster.process.connections import Response
from kai.dashboard.access import FOREIGN_NAMESPACE, missing_rights
from kai.dashboard.look import History, Look, WholeLook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kai.dashboard.feed import CycleLine, Happening

T = TypeVar("T")
ROOT: Final = "/api/v1"
PATHS: Final = (
    "jobs",
    "jobs/NAMESPACE/NAME",
    "queues",
    "queues/NAME",
    "nodes",
    "nodes/NAME",
    "why",
    "waiting",
    "evictions",
    "cycles",
)
_PAGED: Final = frozenset({"limit", "continue"})
_PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "jobs": frozenset({"namespace", "queue", "state", "pods"}) | _PAGED,
    "queues": frozenset({"queue"}) | _PAGED,
    "nodes": _PAGED,
    "why": frozenset({"name", "namespace"}),
    "waiting": frozenset({"namespace"}) | _PAGED,
    "evictions": frozenset({"namespace"}),
    "cycles": frozenset(),
}
_LONGEST_NUMBER: Final = 9
_BODY: Final = "application/json"


@attrs.frozen(kw_only=True)
class Question:
    """A parsed request: the parts of the path below the root, and its known parameters."""

    parts: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def namespace(self) -> str:
        """The one namespace in question; "" for all."""
        if self.parts[:1] == ("jobs",) and len(self.parts) == 3:
            return self.parts[1]
        return dict(self.parameters).get("namespace", "")

    @property
    def queue(self) -> str:
        """The one queue in question; "" for none."""
        if self.parts[:1] == ("queues",) and len(self.parts) == 2:
            return self.parts[1]
        return dict(self.parameters).get("queue", "")

    @property
    def decides(self) -> bool:
        """Whether the answer needs further decisions on the cluster, to try changes."""
        return self.parts == ("why",) or (self.parts[:1] == ("jobs",) and len(self.parts) == 3)


def question_of(path: str, query: Mapping[str, str]) -> Question | Response:
    """Return the question of a request, or the error response for an invalid one."""
    parts = tuple(part for part in path.removeprefix(ROOT).split("/") if part)
    if not parts:
        return as_json({"paths": [f"{ROOT}/{each}" for each in PATHS]})
    known = _PARAMETERS.get(parts[0])
    if known is None or len(parts) > 3 or (len(parts) > 1 and parts[0] not in {"jobs", "queues", "nodes"}):
        return problem(404, f"found {path}, expected one of {', '.join(f'{ROOT}/{each}' for each in PATHS)}")
    if parts[0] in {"queues", "nodes"} and len(parts) == 3:
        return problem(404, f"found {path}, expected {ROOT}/{parts[0]}/NAME")
    if parts[0] == "jobs" and len(parts) == 2:
        return problem(404, f"found {path}, expected {ROOT}/jobs/NAMESPACE/NAME")
    # An unknown parameter is refused: a filter that is misspelt would show everything.
    unknown = sorted(set(query) - known)
    if unknown:
        wanted = f"one of {', '.join(sorted(known))}" if known else "none"
        return problem(400, f"parameter: found {shown(unknown[0][:80])}, expected {wanted}")
    for name in sorted(_PAGED & set(query)):
        if not (query[name].isdecimal() and 0 < len(query[name]) <= _LONGEST_NUMBER and int(query[name])):
            return problem(400, f"parameter {name}: found {shown(query[name][:80])}, expected a number above 0")
    if len(parts) > 1 and (_PAGED & set(query)):
        return problem(400, f"parameter: found {min(_PAGED & set(query))}, expected it with a list only")
    # Sorted, since answers are kept by question, whatever the order of its parameters.
    return Question(parts=parts, parameters=tuple(sorted((name, query[name]) for name in known & set(query))))


def answer(look: Look, question: Question, history: History | None = None) -> Response:
    """Return the answer to a question about one moment. Cost: seconds in a large cluster; not for the event loop."""
    past = look.history(history or History())
    parameters = dict(question.parameters)
    match question.parts:
        case ("jobs",):
            return _jobs(look, parameters)
        case ("jobs", namespace, name):
            return _job(look, namespace, name)
        case ("queues", *rest):
            return _queue(look, rest[0]) if rest else _queues(look, parameters)
        case ("nodes", *rest):
            return _node(look, rest[0]) if rest else _nodes(look, parameters)
        case ("evictions",):
            return _evictions(look, parameters, past.happenings)
        case ("why",):
            return _why(look, parameters)
        case ("waiting",):
            return _waiting(look, parameters)
        case _:
            return as_json(look.document(CycleList(items=tuple(map(cycle_item, reversed(past.cycles))))))


def _jobs(look: Look, parameters: Mapping[str, str]) -> Response:
    namespace, queue, state = (parameters.get(each, "") for each in ("namespace", "queue", "state"))
    if refused := _refused(look, namespace):
        return refused
    below = look.below(queue) if queue else frozenset[str]()
    with_pods = parameters.get("pods") == "true"
    owners = look.owners if with_pods else {}
    chosen = [
        line
        for line in look.lines
        if namespace in {"", line.job.namespace}
        and (not queue or line.job.queue in below)
        and (not state or line.job.state.lower() == state.lower() or (state == "waiting" and line.waits))
    ]
    lines, more = _page(chosen, parameters)
    items = tuple(
        JobItem.of(line, with_pods=with_pods, owners=owners.get(line.job.key, ()) if with_pods else None)
        for line in lines
    )
    return as_json(look.document(JobList(items=items, continue_=more)))


def _page(items: Sequence[T], parameters: Mapping[str, str]) -> tuple[Sequence[T], str | None]:
    """Return the requested items and where the next page begins: None after the last, `ABSENT` without a ``limit``.

    The position is a number of items, so on a later moment the page continues after as many items.
    """
    limit, first = int(parameters.get("limit", "0")), int(parameters.get("continue", "0"))
    if not limit:
        return items[first:], ABSENT
    end = first + limit
    return items[first:end], str(end) if end < len(items) else None


def _job(look: Look, namespace: str, name: str) -> Response:
    if not look.scope.sees(namespace):
        return problem(403, f"not allowed to list podgroups.scheduling.run.ai in namespace {namespace[:80]}")
    document = explanation_of(look, namespace, name)
    if document is None:
        return problem(404, f"found no job {name[:80]} in namespace {namespace[:80]}")
    return as_json(look.document(document))


def _why(look: Look, parameters: Mapping[str, str]) -> Response:
    """Return the output of ``kai why NAME``, for readers who may see everything; others ask job by job."""
    name, namespace = (parameters.get(each, "") for each in ("name", "namespace"))
    if not name:
        return problem(400, "parameter: found no name, expected that of a job, of its owner or of a pod")
    if not isinstance(look, WholeLook):
        return problem(403, "not allowed to list podgroups.scheduling.run.ai and nodes, and to get queues, everywhere")
    lines = lines_named(name, [line for line in look.lines if namespace in {"", line.job.namespace}])
    if not lines:
        return problem(404, f"found no job {name[:80]}")
    if len({line.job.namespace for line in lines}) > 1:
        return problem(409, f"found jobs {name[:80]} in several namespaces, expected a namespace")
    return as_json(look.document(jobs_document(look.explained(lines), look.untried)))


def explanation_of(look: Look, namespace: str, name: str) -> Explanation | None:
    """Return the explanation of a job, as in ``kai why``; None for one that the reader may not see."""
    line = look.find(namespace, name)
    if line is None:
        return None
    explained = look.explain(line)
    item = ExplanationItem.of_settled(line) if explained is None else ExplanationItem.of(Fold(explanation=explained))
    mine = tuple(EvictionItem.of(each) for each in look.evictions if each.job == line.job.key)
    return Explanation.of_item(item, evicted=mine, assumptions=tuple(look.assumptions(line)), untried=look.untried)


def _queues(look: Look, parameters: Mapping[str, str]) -> Response:
    queue = parameters.get("queue", "")
    if refused := _refused_queue(look, queue):
        return refused
    below = look.below(queue) if queue else frozenset[str]()
    lines, more = _page([line for line in look.queues if not queue or line.name in below], parameters)
    items = queue_items(lines, look.queue_facts(), labels=look.queue_labels())
    return as_json(look.document(QueueList(items=items, continue_=more)))


def _queue(look: Look, queue: str) -> Response:
    if refused := _refused_queue(look, queue):
        return refused
    found = look.entitlement(queue)
    if found is None:
        return problem(404, f"found no queue {queue[:80]}")
    below = look.below(queue)
    waiting = [line.job for line in look.lines if line.waits and line.job.queue in below]
    return as_json(look.document(QueueExplanation.of(found, waiting)))


def _refused_queue(look: Look, queue: str) -> Response | None:
    if refused := missing_rights(look.scope, ["queues"]):
        return problem(403, f"not allowed to {refused}")
    if queue and not look.scope.reads(queue):
        return problem(403, f"not allowed to get queue {queue[:80]}")
    return None


def _nodes(look: Look, parameters: Mapping[str, str]) -> Response:
    if refused := missing_rights(look.scope, ["nodes"]):
        return problem(403, f"not allowed to {refused}")
    nodes, more = _page(look.nodes, parameters)
    return as_json(look.document(NodeList(items=tuple(map(NodeItem.of, nodes)), continue_=more)))


def _node(look: Look, name: str) -> Response:
    if refused := missing_rights(look.scope, ["nodes"]):
        return problem(403, f"not allowed to {refused}")
    found = look.occupancy(name)
    if found is None:
        return problem(404, f"found no node {name[:80]}")
    return as_json(look.document(NodeExplanation.of(found)))


def _evictions(look: Look, parameters: Mapping[str, str], happenings: Sequence[Happening]) -> Response:
    """Return evictions of the reader's pods; for readers who may see everything, also evictions in favour of a job."""
    namespace = parameters.get("namespace", "")
    if refused := _refused(look, namespace):
        return refused

    def is_asked(*namespaces: str) -> bool:
        return any(each and namespace in {"", each} for each in namespaces)

    now = [each for each in look.evictions if is_asked(each.job.partition("/")[0], each.beneficiary.partition("/")[0])]
    before = [
        PastEvictionItem.of(one)
        for each in happenings
        if each.kind == "evicted" and each.number < look.number and is_asked(each.namespace, each.for_namespace)
        for one in _past(each)
    ]
    document = EvictionList(
        items=tuple(map(EvictionItem.of, now)),
        unused_evictions=() if namespace else tuple(look.unused),
        past=tuple(before),
        looked_at=(SERVICE,),
    )
    return as_json(look.document(document))


def _past(each: Happening) -> list[PastEviction]:
    """Return one past eviction for each pod of a happening; the names of the pods were not kept."""
    one = PastEviction(
        time=instant_text(each.time),
        pod="",
        job=f"{each.namespace or FOREIGN_NAMESPACE}/{each.job}",
        queue=each.queue,
        gpus=round(each.gpus / each.pods, 3),
        cause=each.cause,
        rule=rule_of(each.cause),
        gainer=f"{each.for_namespace or FOREIGN_NAMESPACE}/{each.for_job}" if each.for_job else "",
        gainer_queue="",
        because="",
        source=SERVICE,
    )
    return [one] * each.pods


def _waiting(look: Look, parameters: Mapping[str, str]) -> Response:
    namespace = parameters.get("namespace", "")
    if refused := _refused(look, namespace):
        return refused
    folds, more = _page(look.folds(namespace), parameters)
    items = tuple(map(ExplanationItem.of, folds))
    return as_json(look.document(ExplanationList(items=items, assumptions=(), continue_=more)))


def _refused(look: Look, namespace: str) -> Response | None:
    """Return the refusal for a reader who may not list the jobs of a namespace, or with "" those of any; else None."""
    if namespace and not look.scope.sees(namespace):
        return problem(403, f"not allowed to list podgroups.scheduling.run.ai in namespace {namespace[:80]}")
    missing = missing_rights(look.scope, ["podgroups"])
    return problem(403, f"not allowed to {missing} in any namespace") if missing else None


def cycle_item(line: CycleLine) -> CycleItem:
    """Return one cycle as an item of a document."""
    return CycleItem(
        number=line.number,
        time=instant_text(line.time),
        seconds=round(line.took, 6),
        phases={name: round(seconds, 6) for name, seconds in line.phases.items()},
        decisions=line.counts,
    )


def as_json(document: Mapping[str, Any], status: int = 200) -> Response:
    """Return a document as a response."""
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return Response(status=status, body=body, content_type=_BODY)


def problem(status: int, why: str) -> Response:
    """Return an error as a response."""
    return as_json({"error": why}, status)
