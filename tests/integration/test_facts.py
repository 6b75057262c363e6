"""A real API server does what the model of it is held to: the same facts, tried one by one."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import attrs
import pytest

from kai.cluster.transport.calls import JSON
from tests.doubles.facts import FACTS, HOME, Server
from tests.integration.controlplane import ControlPlane
from tests.integration.etcd import compact

if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.frozen
class Real:
    """A real API server, asked as the model is."""

    plane: ControlPlane

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
        api, where = self.plane.admin, f"{path}?{urlencode(query)}" if query else path
        sent = {**_kind_at(path), **body} if method == "POST" and isinstance(body, dict) else body
        headers = {"Authorization": f"Bearer {api.token}", "Accept": accept, "Content-Type": content_type}
        response, data = api._exchange(method, where, None if sent is None else json.dumps(sent), headers)
        return response.status, json.loads(data) if data.startswith(b"{") else data.decode()

    def watched(self, path: str, version: str, *, accept: str = JSON, **query: str | int) -> list[tuple[str, Any]]:
        asked = urlencode({"watch": 1, "resourceVersion": version, "timeoutSeconds": 1, **query})
        api = self.plane.admin
        with closing(api._connected()) as connection:
            headers = {"Authorization": f"Bearer {api.token}", "Accept": accept}
            connection.request("GET", f"{path}?{asked}", headers=headers)
            lines = connection.getresponse().read().splitlines()
        events = [json.loads(line) for line in lines]
        return [(event["type"], event["object"]) for event in events if event["type"] != "BOOKMARK"]

    def compact(self) -> None:
        """Let etcd forget the past, and the API server begin with an empty cache."""
        self.plane.restart_apiserver(kill=True)
        compact(self.plane)


def _kind_at(path: str) -> dict[str, str]:
    """Return what a manifest at a path has to say that it is, where it does not say so itself."""
    kinds = {"configmaps": "ConfigMap", "namespaces": "Namespace", "nodes": "Node", "pods": "Pod"}
    plural = path.rpartition("/")[2]
    return {"apiVersion": "v1", "kind": kinds[plural]} if plural in kinds else {}


@pytest.fixture(scope="module")
def real(control_plane: ControlPlane) -> Iterator[Real]:
    control_plane.admin.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    return Real(control_plane)


@pytest.mark.parametrize("name", FACTS)
def test_an_api_server_does_what_the_model_does(real: Real, name: str) -> None:
    FACTS[name](Server(real), name.replace("_", "-")[:50].rstrip("-"))
