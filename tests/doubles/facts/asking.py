"""What an API server does, as cases: each is tried on the model and on a real API server.

`FACTS` has them by name. A case gets a way to ask, and a name that no other case uses; it makes what it needs in the
namespace `HOME`, and asserts. First come the facts on which the safety of kai rests, then those that the model needs in
order not to lead a simulation astray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import attrs

from kai.cluster.transport.calls import JSON, STRATEGIC_PATCH

HOME: Final = "facts"
Manifest: TypeAlias = dict[str, Any]
PODS: Final = f"/api/v1/namespaces/{HOME}/pods"
MAPS: Final = f"/api/v1/namespaces/{HOME}/configmaps"
GROUPS: Final = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{HOME}/podgroups"
ORDERS: Final = f"/apis/scheduling.run.ai/v1alpha2/namespaces/{HOME}/bindrequests"
QUEUES: Final = "/apis/scheduling.run.ai/v2/queues"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
BUDGETS: Final = f"/apis/policy/v1/namespaces/{HOME}/poddisruptionbudgets"
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"


class Asked(Protocol):
    """A way to ask an API server."""

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        **query: str | int,
    ) -> tuple[int, Any]:
        """Return status and body of the answer."""
        ...

    def watched(self, path: str, version: str, *, accept: str = JSON, **query: str | int) -> list[tuple[str, Any]]:
        """Return what a watch from a version brings within a moment, bookmarks left out."""
        ...

    def compact(self) -> None:
        """Have the server forget all changes so far."""
        ...


@attrs.frozen
class Server:
    """A way to ask, with what most cases ask for."""

    way: Asked

    def good(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        status, answer = self.way.ask(method, path, body, **options)
        assert 200 <= status < 300, (method, path, status, answer)
        return answer

    def status(self, method: str, path: str, body: object = None, **options: Any) -> int:
        return self.way.ask(method, path, body, **options)[0]

    def pod(self, name: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> Manifest:
        """Create a pod."""
        container = {"name": "main", "image": "none"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec},
        }
        return dict(self.good("POST", PODS, body))

    def bind(self, name: str, node: str = "n1", **metadata: Any) -> tuple[int, Any]:
        """Bind a pod."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": HOME, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return self.way.ask("POST", f"{PODS}/{name}/binding", binding)

    def evict(self, name: str, uid: str = "") -> tuple[int, Any]:
        """Evict a pod."""
        options = {"preconditions": {"uid": uid}} if uid else {}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": HOME},
            "deleteOptions": options,
        }
        return self.way.ask("POST", f"{PODS}/{name}/eviction", eviction)

    def run(self, name: str) -> None:
        """Say that a pod runs, as a kubelet does."""
        ready = {"type": "Ready", "status": "True"}
        self.good(
            "PATCH",
            f"{PODS}/{name}/status",
            {"status": {"phase": "Running", "conditions": [ready]}},
            content_type=STRATEGIC_PATCH,
        )

    def running(self, name: str, **metadata: Any) -> Manifest:
        """Create a pod, bind it, and let it run."""
        self.pod(name, metadata=metadata)
        assert self.bind(name)[0] == 201
        self.run(name)
        return dict(self.good("GET", f"{PODS}/{name}"))

    def map(self, name: str, **metadata: Any) -> Manifest:
        """Create a config map."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "1"}}
        return dict(self.good("POST", MAPS, body))

    def group(self, name: str, **spec: Any) -> Manifest:
        """Create a pod group."""
        body = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": 1, "queue": "q", **spec},
        }
        return dict(self.good("POST", GROUPS, body))

    def version(self) -> str:
        """Return the newest version."""
        return str(self.good("GET", MAPS, limit=1)["metadata"]["resourceVersion"])


Fact: TypeAlias = Callable[[Server, str], None]
FACTS: Final[dict[str, Fact]] = {}


def fact(function: Fact) -> Fact:
    """Add a case."""
    FACTS[function.__name__] = function
    return function


def uid_of(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["uid"])


def version_of(manifest: Mapping[str, Any]) -> int:
    return int(manifest["metadata"]["resourceVersion"])
