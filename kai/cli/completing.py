"""Shell completion: names of queues, jobs and namespaces from the source that the command would read.

The shell blocks on the answer: a cluster gets two seconds, and any failure completes to nothing.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

from kai.basics.errors import KaiError

if TYPE_CHECKING:
    from kai.answers.cases.case import Case
    from kai.api.cluster_objects import ClusterObjects
    from kai.api.kinds import ApiObject

_PATIENCE_SECONDS = 2.0

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_queues(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the queues whose names begin with ``begun``."""
    del parameter
    from kai.api.scheduling.queue import Queue

    return _items(_names(context, Queue), begun)


def complete_jobs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the pod groups whose names begin with ``begun``."""
    del parameter
    from kai.api.scheduling.pod_group import PodGroup

    return _items(_names(context, PodGroup), begun)


def complete_subjects(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return jobs, or names after ``job/``, ``queue/``, ``node/`` or the kind of an owner, that begin with ``begun``.

    Owners are completed from files and snapshots only: a cluster would have to list all its pods for them.
    """
    from kai.api.kubernetes.node import Node
    from kai.cli.arguments import KINDS, owner_subject, split_subject

    typed, slash, rest = begun.partition("/")
    if not slash:
        kinds = _items({f"{kind}/" for kind in (*KINDS, *_owners(context))}, begun)
        return [*complete_jobs(context, parameter, begun), *kinds]
    kind = split_subject(f"{typed}/x")[0]
    if kind == "node":
        found = _items(_names(context, Node), rest)
    elif kind == "queue":
        found = complete_queues(context, parameter, rest)
    else:
        owned = _owners(context).get(owner_subject(f"{typed}/x")[0], set())
        jobs = complete_jobs(context, parameter, rest) if kind == "job" else []
        found = _items({*owned, *(item.value for item in jobs)}, rest)
    return [CompletionItem(f"{typed}/{item.value}") for item in found]


def _owners(context: click.Context) -> dict[str, set[str]]:
    """Return the names of owners of jobs in a file or a snapshot, and of their pods, by kind in lower case."""
    if not context.params.get("place"):
        return {}
    from kai.answers.outcomes.owners import owners_in
    from kai.api import names

    case = _case(context)
    found: dict[str, set[str]] = {}
    if case is not None:
        objects = case.objects
        owners = owners_in(objects.pods, objects.pod_groups, case.owners)
        for each in (one for several in owners.values() for one in several):
            found.setdefault(each.kind.lower(), set()).add(each.name)
        pods = {pod.metadata.name for pod in objects.pods if names.POD_GROUP in pod.metadata.annotations}
        if pods:
            found["pod"] = pods
    return found


def complete_namespaces(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the namespaces whose names begin with ``begun``; for a file those of its jobs."""
    del parameter
    from kai.api.kubernetes.meta import Namespace

    if context.params.get("place"):
        return _items({each.metadata.namespace for each in _written(context).pod_groups}, begun)
    return _items(_names(context, Namespace), begun)


def complete_contexts(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the contexts of the kubeconfig whose names begin with ``begun``."""
    del parameter
    from kai.cluster.transport.credentials import Source
    from kai.cluster.transport.kubeconfig import read_contexts

    paths = Source(kubeconfig=context.params.get("kubeconfig") or "").paths
    return _items([each.name for each in read_contexts(paths).known], begun)


def complete_actions(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the installed actions that may follow those before the last comma."""
    del context, parameter
    from importlib.metadata import entry_points

    before, comma, rest = begun.rpartition(",")
    chosen = set(before.split(","))
    names = {point.name for point in entry_points(group="kai.actions")} - chosen
    return [CompletionItem(f"{before}{comma}{item.value}") for item in _items(names, rest)]


def _items(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name and name.startswith(begun)]


def _names(context: click.Context, cls: "type[ApiObject]") -> list[str]:
    """Return the names of a kind in the source that earlier flags choose; none if it cannot be read."""
    from kai.api.cluster_objects import FIELD_OF

    if context.params.get("place"):
        return [each.metadata.name for each in getattr(_written(context), FIELD_OF[cls])]
    from kai.answers.cases.live_cluster import list_names
    from kai.cluster.transport.access import Access

    given = context.params
    access = Access(
        kubeconfig=given.get("kubeconfig") or "",
        context=given.get("context") or "",
        impersonated=given.get("user") or "",
    )
    try:
        return list_names(access, cls, _PATIENCE_SECONDS)
    except KaiError:
        return []


def _written(context: click.Context) -> "ClusterObjects":
    from kai.api.cluster_objects import ClusterObjects

    case = _case(context)
    return ClusterObjects() if case is None else case.objects


def _case(context: click.Context) -> "Case | None":
    """Return the cluster in the file or snapshot that earlier flags choose; None if it cannot be read."""
    from kai.answers.cases.case import Case
    from kai.answers.cases.files import STANDARD_INPUT
    from kai.lab.sources.loading import read_case

    kept: dict[str, Case | None] = context.meta.setdefault(__name__, {})  # one completion needs it several times
    place = context.params["place"]
    if place not in kept:
        kept[place] = None
        if place != STANDARD_INPUT:  # standard input belongs to the shell
            with contextlib.suppress(KaiError):
                case = read_case(place)
                kept[place] = case if isinstance(case, Case) else None
    return kept[place]


def complete_for_kubectl(command: click.Command, words: list[str]) -> str:
    """Return the answer to kubectl for ``command``: a completion a line, then a directive for the shell.

    Source: kubectl's protocol for the program ``kubectl_complete-<plugin>``; the directives are those of cobra.
    """
    from click.shell_completion import ShellComplete

    *before, begun = words or [""]
    found = ShellComplete(command, {}, "kai", "").get_completions(before, begun)
    plain = [item for item in found if item.type == "plain"]
    lines = [f"{item.value}\t{item.help}" if item.help else item.value for item in plain]
    adds_files = len(plain) < len(found)
    return "\n".join([*lines, f":{_FILES if adds_files else _NO_FILES}"])


_FILES, _NO_FILES = 0, 4
