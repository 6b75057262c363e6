"""Reads of the binder that its store answers by an index instead of walking over all pods of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from kai.api.conventions import gpu_sharing
from kai.api.conventions.grants import grant_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, List
from kai.binder.settings import BinderSettings
from kai.binder.sharers import misses_grant
from kai.cluster.port import Api, Index, Store, Term
from kai.cluster.requests import Request


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _gpu_labels(pod: Pod) -> Iterable[str]:
    labels = pod.metadata.labels
    return tuple(f"{key}={labels[key]}" for key in gpu_sharing.group_labels(labels))


def _namespace(pod: Pod) -> Iterable[str]:
    return (pod.metadata.namespace,)


SHARING: Final = "pods that may use or hold shared GPUs"
UNGRANTED: Final = "pods of ours that run without a grant"
UNBOUND: Final = "pods of ours without a node"


def swept_pods(settings: BinderSettings) -> Index[Pod]:
    """Return an index of the pods that sweeps look at: a few, among those of other schedulers."""

    def keys(pod: Pod) -> Iterable[str]:
        grant = grant_of(pod)
        if (grant is not None and grant.gpus) or gpu_sharing.group_labels(pod.metadata.labels):
            yield SHARING
        if misses_grant(pod, settings):
            yield UNGRANTED
        if pod.spec.scheduler_name == settings.scheduler_name and not pod.spec.node_name:
            yield UNBOUND

    return Index(Pod, f"binder: sweeps for {settings.scheduler_name}", keys)


NODES: Final = Index(Pod, "binder: node", _node)
GPU_GROUPS: Final = Index(Pod, "binder: label of a GPU group", _gpu_labels)
NAMESPACES: Final = Index(Pod, "binder: namespace", _namespace)


@attrs.frozen
class IndexedApi:
    """An `Api` that answers lists of pods on a node, of a GPU group, in a namespace or for a sweep from the store.

    What takes room on a node is sent only if it still fits the pods that the store shows on the node then.
    """

    inner: Api
    store: Store
    swept: Index[Pod]
    """The pods that sweeps look at (`swept_pods`)."""

    def fenced(self, term: Term) -> IndexedApi:
        """Return this, refusing writes once the term is over."""
        return IndexedApi(self.inner.fenced(term), self.store, self.swept)

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - what each request is answered with, it says
        """Return the reply to a request, or a `Refusal`."""
        if isinstance(request, List) and request.cls is Pod and not request.fresh:
            found = self._found(request)
            if found is not None:
                return tuple(pod for pod in found if _matches(request, pod))
        if isinstance(request, Bind | Create) and request.node:
            fits, node = request.fits, request.node
            request = attrs.evolve(request, fits=lambda now, _: fits(now, self.store.find(NODES, node)))
        return await self.inner.perform(request)

    def _found(self, request: List) -> tuple[Pod, ...] | None:
        if request.among:
            return self.store.find(self.swept, request.among)
        if request.node:
            return self.store.find(NODES, request.node)
        for key, value in sorted(request.labels.items()):
            if gpu_sharing.group_labels({key: value}):
                return self.store.find(GPU_GROUPS, f"{key}={value}")
        return self.store.find(NAMESPACES, request.namespace) if request.namespace else None


def _matches(request: List, pod: Pod) -> bool:
    labels = pod.metadata.labels
    return (
        request.namespace in {"", pod.metadata.namespace}
        and request.node in {"", pod.spec.node_name}
        and all(labels.get(key) == value for key, value in request.labels.items())
    )
