"""An API server on a real socket that only lists: what is in a folder of manifests, or what a test gives it."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import yaml

from kai.api.codec.manifest_text import load_documents
from kai.api.kinds import BY_NAME


@attrs.define(eq=False)
class ListServer:
    """What is listed, and what was asked."""

    address: str
    lists: dict[str, list[Mapping[str, Any]]]
    refusals: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    """Status and message for the lists of these plurals."""
    tenant: str = ""
    """A user who may list pods, pod groups and what else there is in namespaces, and nothing in the whole cluster."""
    hidden: set[str] = attrs.field(factory=set)
    """Plurals that the tenant may not list in namespaces either."""
    requests: list[tuple[str, str, Mapping[str, str]]] = attrs.field(factory=list)
    """Method, path and headers."""

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the document for a path."""
        key = path.removeprefix("/apis/").removeprefix("/api/")
        head, _, plural = key.rpartition("/")
        version, _, namespace = head.partition("/namespaces/")
        status, message = self.refusals.get(plural, (200, ""))
        if self.tenant and (not namespace or plural in self.hidden):
            place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            group = version.rpartition("/")[0]
            status = 403
            message = f'User "{self.tenant}" cannot list resource "{plural}" in API group "{group}" {place}'
        if status != 200:
            return status, {"kind": "Status", "code": status, "message": message}
        found = self.lists.get(f"{version}/{plural}", [])
        items = [each for each in found if not namespace or each["metadata"].get("namespace") == namespace]
        return 200, {"metadata": {"resourceVersion": "7"}, "items": items}

    def kubeconfig(self, folder: Path, **context: str) -> str:
        """Write a kubeconfig file whose current context is ``prod``, and return its path."""
        path = folder / "kubeconfig"
        fields = {"cluster": "c", "user": "u", **context}
        document = {
            "current-context": "prod",
            "contexts": [{"name": "prod", "context": fields}, {"name": "staging", "context": fields}],
            "clusters": [{"name": "c", "cluster": {"server": self.address}}],
            "users": [{"name": "u", "user": {"token": "abc"}}],
        }
        path.write_text(yaml.safe_dump(document))
        return str(path)


class _Quiet(ThreadingHTTPServer):
    """A server that says nothing about connections that are cut."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def listing(manifests: Iterable[Mapping[str, Any]]) -> Iterator[ListServer]:
    """Serve lists of manifests on the loopback."""
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for manifest in manifests:
        kind = BY_NAME[manifest["apiVersion"], manifest["kind"]]
        lists.setdefault(f"{manifest['apiVersion']}/{kind.plural}", []).append(manifest)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer with a list."""
            path = self.path.partition("?")[0]
            server.requests.append((self.command, path, dict(self.headers)))
            status, body = server.answer(path)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with _Quiet(("127.0.0.1", 0), Handler) as http:
        server = ListServer(f"http://127.0.0.1:{http.server_address[1]}", lists)
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def manifests_of(folder: Path) -> list[Mapping[str, Any]]:
    """Return the manifests in a folder, as a server has them: those without a namespace are in ``default``."""
    found: list[Mapping[str, Any]] = []
    for path in sorted(folder.glob("*.yaml")):
        for manifest in load_documents(path.read_bytes(), str(path)):
            kind = BY_NAME.get((manifest["apiVersion"], manifest["kind"]))
            if kind is not None:
                place = {"namespace": "default"} if kind.namespaced else {}
                found.append({**manifest, "metadata": {**place, **manifest["metadata"]}})
    return found
