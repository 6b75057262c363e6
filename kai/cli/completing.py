"""Completion of what is typed: names of queues, jobs and namespaces of the very source that the command would read.

A shell waits for the answer: a cluster gets two seconds, and what goes wrong completes to nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

from kai.errors import KaiError

if TYPE_CHECKING:
    from kai.api.kinds import ApiObject
    from kai.api.objects import ClusterObjects

_PATIENCE_SECONDS = 2.0

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_queues(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the queues whose names begin so."""
    del parameter
    from kai.api.queue import Queue

    return _items(_names(context, Queue), begun)


def complete_jobs(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the pod groups whose names begin so."""
    del parameter
    from kai.api.podgroup import PodGroup

    return _items(_names(context, PodGroup), begun)


def complete_subjects(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return jobs, or what stands behind ``job/``, ``queue/`` and ``node/``, whose names begin so."""
    from kai.api.node import Node

    kind, slash, rest = begun.partition("/")
    if not slash:
        kinds = _items(("job/", "queue/", "node/"), begun)
        return [*complete_jobs(context, parameter, begun), *kinds]
    if kind == "node":
        found = _items(_names(context, Node), rest)
    else:
        found = (complete_queues if kind == "queue" else complete_jobs)(context, parameter, rest)
    return [CompletionItem(f"{kind}/{item.value}") for item in found]


def complete_namespaces(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the namespaces whose names begin so: of a file those in which it has jobs."""
    del parameter
    from kai.api.core import Namespace

    if context.params.get("place"):
        return _items({each.metadata.namespace for each in _written(context).pod_groups}, begun)
    return _items(_names(context, Namespace), begun)


def complete_contexts(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the contexts of the kubeconfig whose names begin so."""
    del parameter
    from kai.cluster.contexts import read_contexts
    from kai.cluster.credentials import Source

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
    """Return the names of a kind in the source that the flags before name; none where it cannot be read."""
    from kai.api.objects import FIELD_OF

    if context.params.get("place"):
        return [each.metadata.name for each in getattr(_written(context), FIELD_OF[cls])]
    from kai.cluster.access import Access
    from kai.simulation.live import list_names

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
    from kai.api.objects import ClusterObjects
    from kai.simulation.case import Case
    from kai.simulation.places import STANDARD_INPUT
    from kai.simulation.source import read_case

    place = context.params["place"]
    if place == STANDARD_INPUT:  # it is the shell's
        return ClusterObjects()
    try:
        case = read_case(place)
    except KaiError:
        return ClusterObjects()
    return case.objects if isinstance(case, Case) else ClusterObjects()


def complete_for_kubectl(command: click.Command, words: list[str]) -> str:
    """Return what kubectl asks about ``command``: a completion a line, then a number for what the shell may add.

    Source: kubectl's protocol for the program ``kubectl_complete-<plugin>``; numbers are those of cobra.
    """
    from click.shell_completion import ShellComplete

    *before, begun = words or [""]
    found = ShellComplete(command, {}, "kai", "").get_completions(before, begun)
    plain = [item for item in found if item.type == "plain"]
    lines = [f"{item.value}\t{item.help}" if item.help else item.value for item in plain]
    adds_files = len(plain) < len(found)
    return "\n".join([*lines, f":{_FILES if adds_files else _NO_FILES}"])


_FILES, _NO_FILES = 0, 4
