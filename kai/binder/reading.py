"""Reads of the binder that its store answers by an index instead of walking over all pods of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from kai.api import sharing
from kai.api.plans import List
from kai.api.pod import Pod
from kai.cluster.port import Api, Index, Store, Term
from kai.cluster.requests import Request


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _gpu_labels(pod: Pod) -> Iterable[str]:
    labels = pod.metadata.labels
    return tuple(f"{key}={labels[key]}" for key in sharing.group_labels(labels))


def _namespace(pod: Pod) -> Iterable[str]:
    return (pod.metadata.namespace,)


NODES: Final = Index(Pod, "binder: node", _node)
GPU_GROUPS: Final = Index(Pod, "binder: label of a GPU group", _gpu_labels)
NAMESPACES: Final = Index(Pod, "binder: namespace", _namespace)


@attrs.frozen
class IndexedApi:
    """An `Api` that answers lists of pods on a node, of a GPU group or in a namespace from the store."""

    inner: Api
    store: Store

    def fenced(self, term: Term) -> IndexedApi:
        """Return this, refusing writes once the term is over."""
        return IndexedApi(self.inner.fenced(term), self.store)

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - what each request is answered with, it says
        """Return the reply to a request, or a `Refusal`."""
        if isinstance(request, List) and request.cls is Pod and not request.fresh:
            found = self._found(request)
            if found is not None:
                return tuple(pod for pod in found if _matches(request, pod))
        return await self.inner.perform(request)

    def _found(self, request: List) -> tuple[Pod, ...] | None:
        if request.node:
            return self.store.find(NODES, request.node)
        for key, value in sorted(request.labels.items()):
            if sharing.group_labels({key: value}):
                return self.store.find(GPU_GROUPS, f"{key}={value}")
        return self.store.find(NAMESPACES, request.namespace) if request.namespace else None


def _matches(request: List, pod: Pod) -> bool:
    labels = pod.metadata.labels
    return (
        request.namespace in {"", pod.metadata.namespace}
        and request.node in {"", pod.spec.node_name}
        and all(labels.get(key) == value for key, value in request.labels.items())
    )
