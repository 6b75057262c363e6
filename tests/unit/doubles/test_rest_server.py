"""The model of the API server does what a real one does; `tests.integration.test_facts` tries that one."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec
import pytest

from kai.cluster.transport.calls import JSON, Call
from tests.doubles.facts import FACTS, HOME
from tests.doubles.facts.asking import Server as Asking
from tests.doubles.rest_server.server import Server
from tests.doubles.rest_server.watch import Watch


@attrs.frozen
class Modelled:
    """The model, asked as a real API server is."""

    server: Server

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
        call = Call(
            method=method,
            path=path,
            query=tuple((key, str(value)) for key, value in query.items()),
            body=None if body is None else msgspec.json.encode(body),
            content_type=content_type,
            accept=accept,
        )
        answer = self.server.answer(call)
        return answer.status, json.loads(answer.body) if answer.body.startswith(b"{") else answer.body.decode()

    def watched(self, path: str, version: str, *, accept: str = JSON, **query: str | int) -> list[tuple[str, Any]]:
        asked = (("resourceVersion", version), *((key, str(value)) for key, value in query.items()))
        watch = Watch.begin(self.server, Call(method="GET", path=path, query=asked, accept=accept))
        assert watch is not None
        data = watch.expiry() if watch.is_expired else watch.take(watch.pending())
        events = [json.loads(line) for line in data.splitlines()]
        return [(event["type"], event["object"]) for event in events]

    def compact(self) -> None:
        self.server.storage.compact()


def home() -> Modelled:
    """Return a model with a namespace."""
    modelled = Modelled(Server())
    assert modelled.ask("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})[0] == 201
    return modelled


@pytest.mark.parametrize("name", FACTS)
def test_the_model_does_what_an_api_server_does(name: str) -> None:
    FACTS[name](Asking(home()), name.replace("_", "-")[:50].rstrip("-"))


def test_there_are_enough_facts() -> None:
    assert len(FACTS) >= 60
