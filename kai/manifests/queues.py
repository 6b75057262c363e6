"""Queues as a tree of quotas: parents that exist, no circles, limits above quotas, children within their parents."""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kai.api import names
from kai.lenient import mapping_of, part_of
from kai.manifests.findings import Document, Finding
from kai.numerals import is_number
from kai.wording import number_text

_RESOURCES: Final = ("gpu", "cpu", "memory")
_AMOUNTS: Final = ("quota", "limit", "overQuotaWeight")


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


def check_queues(documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield what is wrong with the queues of an input."""
    queues = queues_of(documents)
    for name, queue in queues.items():
        yield from _check_parent(name, queue, queues)
        yield from _check_deletion(name, queue)
        resources = mapping_of(queue.manifest, "spec", "resources")
        for resource in _RESOURCES:
            yield from _check_amounts(name, queue, resource, mapping_of(resources, resource))
    yield from _check_sums(queues)


def _check_parent(name: str, queue: Document, queues: Mapping[str, Document]) -> Iterator[Finding]:
    parent, path = parent_of(queue), ("spec", "parentQueue")
    if not parent:
        return
    if parent not in queues:
        near = difflib.get_close_matches(parent, queues, n=1)
        code = "Q001" if near else "Q006"
        yield queue.finding(
            code,
            f"the parent of queue {name}, {parent}, is not in this input",
            path,
            hint=f"is it {near[0]}?" if near else "it must exist in the cluster",
            help=f"parentQueue: {near[0]}" if near else "",
            object=f"queue {name}",
            found=parent,
        )
        return
    seen, above = [name], parent
    while above and above in queues and above not in seen:
        seen.append(above)
        above = parent_of(queues[above])
    if above == name:
        circle = " -> ".join([*seen, name])
        yield queue.finding("Q002", f"queue {name} is its own ancestor: {circle}", path, object=f"queue {name}")


def _check_deletion(name: str, queue: Document) -> Iterator[Finding]:
    since = part_of(queue.manifest, "metadata", "deletionTimestamp")
    if since:
        yield queue.finding(
            "Q007",
            f"queue {name} is being deleted",
            ("metadata", "deletionTimestamp"),
            hint="its jobs start until it is gone; those that wait then find no queue of its name",
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
    quota, limit = _number(amounts.get("quota")), _number(amounts.get("limit"))
    if quota is None or quota <= 0 or (limit is not None and (limit < 0 or limit >= quota)):
        return
    if limit is None:
        yield queue.finding(
            "Q003",
            f"limit of {resource} is missing, which is 0 and below quota ({number_text(quota)}) in queue {name}",
            (*at, "quota"),
            hint="add a limit of this or more, or -1 for no limit",
            help="limit: -1",
            object=f"queue {name}",
        )
        return
    yield queue.finding(
        "Q003",
        f"limit of {resource} ({number_text(limit)}) is below quota ({number_text(quota)}) in queue {name}",
        (*at, "limit"),
        also=(*at, "quota"),
        hint=f"must be {number_text(quota)} or more, or -1 for no limit",
        help="limit: -1",
        object=f"queue {name}",
        found=number_text(limit),
        expected=f"{number_text(quota)} or more, or -1",
    )


def _check_sums(queues: Mapping[str, Document]) -> Iterator[Finding]:
    for name, queue in queues.items():
        own = _quota(queue)
        children = [child for child in queues.values() if parent_of(child) == name]
        quotas = [quota for child in children if (quota := _quota(child)) is not None]
        if own is None or own < 0 or any(quota < 0 for quota in quotas) or sum(quotas) <= own:
            continue
        total = number_text(sum(quotas))
        message = f"the children of queue {name} have a quota of {total} GPUs, and {name} has {number_text(own)}"
        path = ("spec", "resources", "gpu", "quota")
        yield queue.finding("Q005", message, path, hint="they cannot all have theirs at once", object=f"queue {name}")


def _quota(queue: Document) -> float | None:
    resources = mapping_of(queue.manifest, "spec", "resources")
    return _number(part_of(resources, "gpu", "quota"))


def _number(value: object) -> float | None:
    """Return a value as a number; None for what is none, or none that a float can hold: reading it says so."""
    try:
        return float(value) if is_number(value) else None
    except OverflowError:
        return None
