"""Queues as a tree of quotas: parents that exist, no circles, limits above quotas, children within their parents.

Jobs together with queues that restrict which namespaces may use them.
"""

import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kai.api import names
from kai.api.conventions.budgets import ONCE, bad_budgets, beyond_parents, budgets_in, longest_days
from kai.api.conventions.gpu_sharing import gpu_model, is_model_name, is_of_model, model_of, weighed_model
from kai.api.conventions.queue_rules import (
    RESOURCES,
    UNITS,
    Admits,
    QueueFault,
    QueueShape,
    Rule,
    limits_users,
    queue_faults,
    shape_in,
)
from kai.api.conventions.runtime_limits import runtime_conflicts
from kai.api.fields import EMPTY
from kai.basics.parsing import RECORDED_USAGE, is_number, mapping_of, mappings_of, part_of, seconds_or, text_of
from kai.basics.trees import ancestry
from kai.basics.wording import number_text
from kai.manifests.expansion import Job
from kai.manifests.findings import Document, Finding
from kai.manifests.manifest_reading import Reading

if TYPE_CHECKING:
    from kai.manifests.findings import Path


_AMOUNTS: Final = ("quota", "limit", "overQuotaWeight")
_NAMING: Final = (names.NODE_GPU_MODEL, names.NODE_GPU_PRODUCT)


def queues_of(documents: Sequence[Document]) -> dict[str, Document]:
    """Return the queues of an input by name."""
    return {
        str(document.manifest["metadata"]["name"]): document
        for document in documents
        if document.manifest.get("kind") == "Queue"
        and document.manifest.get("apiVersion") == names.QUEUE_VERSION
        and isinstance(document.manifest.get("metadata"), Mapping)
        and document.manifest["metadata"].get("name")
    }


def parent_of(queue: Document) -> str:
    """Return the name of the parent, "" for a queue at the top."""
    return str(part_of(queue.manifest, "spec", "parentQueue") or "")


def check_queues(documents: Sequence[Document], beside: Mapping[str, str] = EMPTY) -> Iterator[Finding]:
    """Yield the faults of the queues of an input.

    ``beside`` are the queues of the cluster that it is applied to, each with its parent.
    """
    queues = queues_of(documents)
    labels = (
        mapping_of(each.manifest, "metadata", "labels") for each in documents if each.manifest.get("kind") == "Node"
    )
    models = {weighed_model({key: text_of(each, key) for key in _NAMING}) for each in labels} - {""}
    # Which of several schedulers serves a queue is not looked at: the shortest history counts.
    kept = min(_retentions(documents), default=None)
    others = [QueueShape(name=name, parent=parent) for name, parent in beside.items() if name not in queues]
    faults = queue_faults([*others, *(shape_in(queue.manifest) for queue in queues.values())])
    for name, queue in queues.items():
        yield from _check_deletion(name, queue)
        resources = mapping_of(queue.manifest, "spec", "resources")
        for resource in RESOURCES:
            yield from _check_amounts(name, queue, resource, mapping_of(resources, resource))
        for fault in faults.get(name, ()):
            yield from _worded(fault, queue, queues)
        yield from _check_runtimes(name, queues)
        yield from _check_budgets(name, queues, models, kept)


def _check_runtimes(name: str, queues: Mapping[str, Document]) -> Iterator[Finding]:
    """Yield the run times of a queue that are longer than the maximum that holds for it."""
    parents = {each: parent_of(queue) for each, queue in queues.items()}
    # Each once: parents may form a circle, which another check reports.
    chain = [queues[each] for each in dict.fromkeys(ancestry(name, parents)) if each in queues]
    for each in runtime_conflicts(document.manifest for document in chain):
        message = f"queue {name}: {each.field} is {each.found}, and maxRuntime of queue {each.owner} is {each.most}"
        code, hint = ("Q021", "the job ends before") if each.is_promise else ("Q022", "it has no effect")
        yield queues[name].finding(code, message, ("spec", each.field), hint=hint, object=f"queue {name}")


def _worded(fault: QueueFault, queue: Document, queues: Mapping[str, Document]) -> Iterator[Finding]:
    """Yield the finding for one fault of a queue."""
    path: Path = ("spec", "parentQueue")
    about = f"queue {fault.queue}"
    match fault.rule:
        case Rule.ORPHAN:
            yield _orphan(queue, fault.queue, queues)
        case Rule.CYCLE:
            yield queue.finding("Q002", _circle(fault), path, object=about)
        case Rule.TOO_DEEP:
            message = f"queue {fault.queue} has {fault.found - 1:.0f} queues above it, and nothing in it is scheduled"
            hint = f"at most {fault.bound - 1:.0f} may stand above"
            yield queue.finding("Q009", message, path, hint=hint, object=about)
        case Rule.LOW_LIMIT:
            yield _low_limit(fault, queue)
        case Rule.OVERCOMMITTED:
            own, total = (_shown(each, fault.resource) for each in (fault.bound, fault.found))
            message = f"the children of queue {fault.queue} have a quota of {total}, and {fault.queue} has {own}"
            hint = "they cannot all have theirs at once"
            place: Path = ("spec", "resources", fault.resource, "quota")
            yield queue.finding("Q005", message, place, hint=hint, object=about)
        case Rule.NO_COMPUTE:
            limit = part_of(queue.manifest, "spec", "resources", fault.resource, "limit")
            if limit is None or is_number(limit):  # reading reports invalid amounts
                yield _without_compute(fault, queue)
        case Rule.BAD_MODEL | Rule.IDLE_MODEL_LIMIT:
            yield _of_model(fault, queue)
        case Rule.IDLE_USER_LIMIT:
            yield _of_users(fault, queue)
        case Rule.MODEL_LOW_LIMIT | Rule.MODELS_OVERCOMMITTED | Rule.MODEL_OVERCOMMITTED:
            yield _of_model_quota(fault, queue)
        case _:
            yield _of_schedule(fault, queue)


def _of_model(fault: QueueFault, queue: Document) -> Finding:
    """Return the finding for a fault of the bounds of one model of GPU."""
    name, model, path = fault.queue, fault.model, ("spec", "resources", "models", fault.model)
    about = f"queue {name}"
    if fault.rule is Rule.BAD_MODEL:
        message = f"{model} in queue {name} is no name of a model of GPU"
        hint, wanted = f"is it {model_of(model)}?", "lower-case letters, digits, - and ."
        return queue.finding("Q014", message, path, at_key=True, hint=hint, object=about, found=model, expected=wanted)
    whose = "" if fault.owner == name else f" of {model} in queue {fault.owner}"
    found, least = (number_text(each) for each in (fault.found, fault.bound))
    message = f"limit of {model} ({found}) in queue {name} is above the limit{whose or ' of gpu'} ({least})"
    return queue.finding("Q015", message, (*path, "limit"), hint="the lower one holds", object=about)


def _of_users(fault: QueueFault, queue: Document) -> Finding:
    """Return the finding for a limit of users that another limit keeps from having an effect."""
    found, least = (_shown(each, fault.resource) for each in (fault.found, fault.bound))
    whose = "its own limit" if fault.owner == fault.queue else f"what queue {fault.owner} allows"
    window = () if fault.entry < 0 else ("schedules", fault.entry)
    while_open = " in a window" if window else ""
    message = f"queue {fault.queue} lets each user hold {found}{while_open}, and {whose} is {least}"
    path: Path = ("spec", *window, "resources", "perUser", fault.resource, "limit")
    return queue.finding("Q024", message, path, hint="the lower one holds", object=f"queue {fault.queue}")


def check_notes(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield the queues that limit users where kai is installed by the input, and installed without notes of users."""
    hooks = {
        str(part_of(each.manifest, "metadata", "name"))
        for each in documents
        if each.manifest.get("kind") == "MutatingWebhookConfiguration"
    }
    # Files without kai itself say nothing about how it is installed.
    if "kai-pod-mutation" not in hooks or "kai-user-notes" in hooks:
        return
    for name, queue in queues_of(documents).items():
        if limits_users(queue.manifest):
            message = f"queue {name} limits users, and the installation notes no users"
            hint = "all jobs of a namespace count for one user"
            path: Path = ("spec", "resources", "perUser")
            if not mapping_of(queue.manifest, "spec", "resources", "perUser"):
                path = ("spec", "schedules")
            yield queue.finding("Q025", message, path, at_key=True, hint=hint, object=f"queue {name}")


def _of_model_quota(fault: QueueFault, queue: Document) -> Finding:
    """Return the finding for quotas of models of GPUs that cannot all be met."""
    name, model, path, about = fault.queue, fault.model, ("spec", "resources", "models"), f"queue {fault.queue}"
    found, bound = (number_text(each) for each in (fault.found, fault.bound))
    if fault.rule is Rule.MODEL_LOW_LIMIT:
        message = f"limit of {model} ({found}) in queue {name} is below its quota ({bound})"
        return queue.finding("Q017", message, (*path, model, "limit"), hint="the limit holds", object=about)
    if fault.rule is Rule.MODELS_OVERCOMMITTED:
        message = f"the quotas of models in queue {name} add up to {found}, and its quota of gpu is {bound}"
        hint = "quotas of models are parts of the quota of gpu"
        return queue.finding("Q018", message, path, hint=hint, object=about)
    message = f"the children of queue {name} have a quota of {model} of {found}, and {name} has {bound}"
    return queue.finding("Q019", message, (*path, model, "quota"), hint="each gets a part of its own", object=about)


def check_models(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield the models in queues that no node of the input has; nothing where no node has GPUs."""
    nodes = [each.manifest for each in documents if each.manifest.get("kind") == "Node"]
    there = {
        gpu_model({key: str(value) for key, value in labels.items()}, has_gpus=False)
        for labels in (mapping_of(node, "metadata", "labels") for node in nodes)
    } - {""}
    # Files without nodes say nothing about the models of the cluster.
    if not there:
        return
    for name, queue in queues_of(documents).items():
        for model in mapping_of(queue.manifest, "spec", "resources", "models"):
            if is_model_name(model) and model not in there:
                near = difflib.get_close_matches(model, there, n=1)
                message = f"no node has GPUs of the model {model} that queue {name} names"
                hint = f"is it {near[0]}?" if near else f"nodes have {', '.join(sorted(there))}"
                path: Path = ("spec", "resources", "models", model)
                yield queue.finding("Q016", message, path, at_key=True, hint=hint, object=f"queue {name}")


def _of_schedule(fault: QueueFault, queue: Document) -> Finding:
    """Return the finding for a fault of the schedules of a queue."""
    name, about = fault.queue, f"queue {fault.queue}"
    path: Path = ("spec", "schedules") if fault.entry < 0 else ("spec", "schedules", fault.entry)
    own, other = (_shown(each, fault.resource) if fault.resource else "" for each in (fault.bound, fault.found))
    match fault.rule:
        case Rule.BAD_SCHEDULE if fault.bad is not None:
            bad, entries = fault.bad, mappings_of(queue.manifest, "spec", "schedules")
            message = f"{bad.field} of a schedule of queue {name} is {bad.found}"
            place: Path = (*path, bad.field) if bad.field in entries[fault.entry] else path
            return queue.finding("Q010", message, place, hint=f"expected {bad.wanted}", object=about)
        case Rule.NEVER_OPENS:
            return queue.finding("Q011", f"a window of queue {name} never opens", (*path, "start"), object=about)
        case Rule.STARTS_AGAIN:
            message = f"queue {name} may hold {other} outside of the window, and its quota there is {own}"
            return queue.finding("Q013", message, (*path, "onClose"), hint="evicted jobs start again", object=about)
        case _:
            when = f"while {_windows(fault.windows)}"
            if fault.rule is Rule.WINDOW_LOW_LIMIT:
                message = f"{when}, queue {name} has a limit of {other} and a quota of {own}"
            else:
                message = f"{when}, the children of queue {name} have a quota of {other}, and {name} has {own}"
            return queue.finding("Q012", message, path, object=about)


def _windows(names: Sequence[str]) -> str:
    """Return which windows are open, as a part of a sentence."""
    shown = names[:_MOST_WINDOWS]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown)}{more} {'is' if len(names) == 1 else 'are'} open"


_MOST_WINDOWS: Final = 3


def _orphan(queue: Document, name: str, queues: Mapping[str, Document]) -> Finding:
    parent = parent_of(queue)
    near = difflib.get_close_matches(parent, queues, n=1)
    return queue.finding(
        "Q001" if near else "Q006",
        f"the parent of queue {name}, {parent}, is not in this input",
        ("spec", "parentQueue"),
        hint=f"is it {near[0]}?" if near else "it must exist in the cluster",
        help=f"parentQueue: {near[0]}" if near else "",
        object=f"queue {name}",
        found=parent,
    )


def _circle(fault: QueueFault) -> str:
    """Return the message that parents form a circle; a queue of the circle is named first."""
    circle, name = fault.circle, fault.queue
    if name not in circle:
        return f"the parents of queue {name} lead in a circle: {' -> '.join([*circle, circle[0]])}"
    at = circle.index(name)
    return f"queue {name} is its own ancestor: {' -> '.join([*circle[at:], *circle[:at], name])}"


def _low_limit(fault: QueueFault, queue: Document) -> Finding:
    at = ("spec", "resources", fault.resource)
    limit, quota, name = number_text(fault.found), number_text(fault.bound), fault.queue
    if part_of(queue.manifest, *at, "limit") is None:
        return queue.finding(
            "Q003",
            f"limit of {fault.resource} is missing, which is 0 and below quota ({quota}) in queue {name}",
            (*at, "quota"),
            hint="add a limit of this or more, or -1 for no limit",
            help="limit: -1",
            object=f"queue {name}",
        )
    return queue.finding(
        "Q003",
        f"limit of {fault.resource} ({limit}) is below quota ({quota}) in queue {name}",
        (*at, "limit"),
        also=(*at, "quota"),
        hint=f"must be {quota} or more, or -1 for no limit",
        help="limit: -1",
        object=f"queue {name}",
        found=limit,
        expected=f"{quota} or more, or -1",
    )


def _without_compute(fault: QueueFault, queue: Document) -> Finding:
    resource, at = fault.resource, ("spec", "resources")
    is_given = part_of(queue.manifest, *at, resource) is not None
    what = f"limit of {resource} is 0" if is_given else f"{resource} is missing, which is a limit of 0,"
    return queue.finding(
        "Q008",
        f"{what} in queue {fault.queue}: nothing that asks for {resource} starts in it",
        (*at, resource) if is_given else at,
        at_key=True,
        hint="-1 is no limit",
        help=f"{resource}: {{quota: -1, limit: -1}}",
        object=f"queue {fault.queue}",
    )


def _shown(value: float, resource: str) -> str:
    return f"{'unlimited' if value == math.inf else number_text(value)} {UNITS[resource]}"


def _check_deletion(name: str, queue: Document) -> Iterator[Finding]:
    since = part_of(queue.manifest, "metadata", "deletionTimestamp")
    if since:
        yield queue.finding(
            "Q007",
            f"queue {name} is being deleted",
            ("metadata", "deletionTimestamp"),
            hint="its jobs start until it is gone; jobs that still wait then find no queue of its name",
            object=f"queue {name}",
            found=str(since),
        )


def _check_amounts(name: str, queue: Document, resource: str, amounts: Mapping[str, Any]) -> Iterator[Finding]:
    at = ("spec", "resources", resource)
    for key in _AMOUNTS:
        value = _number(amounts.get(key))
        allows_unlimited = key != "overQuotaWeight"
        if value is not None and (value < 0 or not math.isfinite(value)) and not (allows_unlimited and value == -1):
            yield queue.finding(
                "Q004",
                f"{key} of {resource} ({number_text(value)}) is no amount in queue {name}",
                (*at, key),
                hint="must be 0 or more" + (", or -1 for unlimited" if allows_unlimited else ""),
                help=f"{key}: {-1 if allows_unlimited else 1}",
                object=f"queue {name}",
                found=number_text(value),
            )


def _number(value: object) -> float | None:
    """Return a value as a float; None for an invalid or too large number, which reading reports."""
    try:
        return float(value) if is_number(value) else None
    except OverflowError:
        return None


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
        # One manifest may make several pod groups, all in its namespace; one finding is enough.
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


RETENTION_DAYS: Final = 90
"""For how many days the history of usage is kept by default."""
_DAY: Final = 86_400.0


def _retentions(documents: Sequence[Document]) -> Iterator[float]:
    """Yield for how many days each scheduler of the input keeps the history of usage."""
    for each in documents:
        if each.manifest.get("kind") == "SchedulingShard":
            usage = mapping_of(each.manifest, "spec", "usageDBConfig")
            text = part_of(usage, "usageParams", "extraParams", "retention")
            if usage.get("clientType") in RECORDED_USAGE:
                # Years are no duration elsewhere; the scheduler refuses what is none at all.
                yield RETENTION_DAYS if text is None else seconds_or(text, math.inf) / _DAY


def _check_budgets(
    name: str, queues: Mapping[str, Document], models: Collection[str], kept: float | None
) -> Iterator[Finding]:
    """Yield the faults of a queue's budgets: what cannot be read, and what contradicts a budget above or the nodes.

    ``kept`` is for how many days the history is kept; None where the input does not say it.
    """
    queue, about = queues[name], f"queue {name}"
    budgets = budgets_in(queue.manifest)
    entries = mappings_of(queue.manifest, "spec", "budgets")
    bad = set()
    for each in bad_budgets(budgets):
        bad.add(each.at)
        path: Path = ("spec", "budgets", each.at)
        # The index of a weight is no key of the manifest, so the finding points at the list.
        field = each.field.partition("[")[0]
        message = f"{each.field} of a budget of queue {name} is {each.found}"
        place = (*path, field) if field in entries[each.at] else path
        yield queue.finding("Q030", message, place, hint=f"expected {each.wanted}", object=about)
    parents = {each: parent_of(found) for each, found in queues.items()}
    above = {
        each: budgets_in(queues[each].manifest) for each in ancestry(name, parents) if each in queues and each != name
    }
    for at, budget in enumerate(budgets):
        place = ("spec", "budgets", at)
        if at in bad:
            continue
        for _, parent, other in beyond_parents([budget], above):
            message = (
                f"the budget {budget.name} of queue {name} has {number_text(budget.amount, 9)} GPU-hours, and"
                f" {other.name} of {parent} above it has {number_text(other.amount, 9)}"
            )
            yield queue.finding("Q031", message, (*place, "amount"), object=about)
        if (days := longest_days(budget)) > (RETENTION_DAYS if kept is None else kept):
            keeps = f"{RETENTION_DAYS} by default" if kept is None else number_text(kept)
            what = f"a period of the budget {budget.name} of queue {name} has {days:.0f} days"
            message = f"{what}, and the history keeps {keeps}"
            field = "until" if budget.period == ONCE else "period"
            yield queue.finding("Q033", message, (*place, field), object=about)
        for row, weight in enumerate(budget.weights):
            # Without nodes in the input, any model may exist.
            if models and not any(is_of_model(model, weight.model) for model in models):
                message = f"no node has a GPU of model {weight.model}, which a budget of queue {name} weighs"
                yield queue.finding("Q032", message, (*place, "weights", row, "model"), object=about)
