"""A small synchronous client of an API server, for what tests do themselves: create, look, take away.

It is not what kai talks with, on purpose: a test that watched kai through kai's own eyes would share its mistakes.
"""

import http.client
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import attrs

from tests.integration.connection import Connection

Manifest = dict[str, Any]

# How long anything may take before it counts as never: machines that run tests can be very busy.
PATIENCE = float(os.environ.get("KAI_TEST_PATIENCE", "120"))

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """The API server said no."""

    def __init__(self, request: str, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(f"{request}: {code} {status.get('reason', '')}: {status.get('message', '')}")
        self.code = code
        self.reason = status.get("reason", "")
        self.message = status.get("message", "")
        self.status = status


@attrs.define(eq=False)
class Api:
    """One user's view of an API server."""

    url: str
    ca_file: Path
    token: str
    warnings: "list[str]" = attrs.field(factory=list, init=False)
    """What the server warned of, oldest first."""
    _local: threading.local = attrs.field(factory=threading.local, init=False, repr=False)
    _closers: "list[weakref.finalize[..., Api]]" = attrs.field(factory=list, init=False, repr=False)
    _places: dict[tuple[str, str], tuple[str, bool]] = attrs.field(factory=dict, init=False, repr=False)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        **query: str | int,
    ) -> Any:
        """Return what the server answers: decoded JSON, or text where it answers with text.

        Raises: Refused for every status from 400 on.
        """
        where = f"{path}?{urlencode(query)}" if query else path
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": content_type}
        response, data = self._exchange(method, where, None if body is None else json.dumps(body), headers)
        self.warnings += response.headers.get_all("Warning") or ()
        is_json = (response.getheader("Content-Type") or "").startswith(JSON)
        answer = json.loads(data) if is_json and data else data.decode()
        if response.status >= http.client.BAD_REQUEST:
            status = answer if isinstance(answer, dict) else {"message": answer}
            raise Refused(f"{method} {where}", response.status, status)
        return answer

    def _exchange(
        self,
        method: str,
        where: str,
        body: str | None,
        headers: Mapping[str, str],
    ) -> tuple[http.client.HTTPResponse, bytes]:
        for attempt in (1, 2):
            connection = self._connection()
            try:
                connection.request(method, where, body=body, headers=headers)
                response = connection.getresponse()
                return response, response.read()
            except (http.client.HTTPException, OSError):
                # A kept connection may have been closed meanwhile; a new one fails for a reason of today.
                connection.close()
                self._local.connection = None
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connected()
            # Kept open between requests, of each thread, for as long as this view of the server lives.
            self._closers.append(weakref.finalize(self, connection.close))
        return connection

    def _connected(self) -> Connection:
        at = urlsplit(self.url)
        return Connection(at.hostname or "", at.port or 443, ca_file=self.ca_file, timeout=60)

    def close(self) -> None:
        """Close what is open; the next request opens it again."""
        for closer in self._closers:
            closer()
        self._closers.clear()

    # --- Where objects are ---------------------------------------------------------------------------------------

    def collection(self, api_version: str, kind: str, namespace: str = "") -> str:
        """Return the path of the objects of a kind; the server is asked how it calls them."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        plural, namespaced = self._place(api_version, kind)
        place = f"/namespaces/{quote(namespace)}" if namespaced and namespace else ""
        return f"{root}{place}/{plural}"

    def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Return whether objects of a kind lie in namespaces."""
        return self._place(api_version, kind)[1]

    def _place(self, api_version: str, kind: str) -> tuple[str, bool]:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._places:
            for resource in self.request("GET", root)["resources"]:
                if "/" not in resource["name"]:
                    self._places[api_version, resource["kind"]] = (resource["name"], resource["namespaced"])
        if (api_version, kind) not in self._places:
            raise LookupError(f"{kind} is not among the resources of {api_version}")
        return self._places[api_version, kind]

    def path(self, manifest: Manifest, subresource: str = "") -> str:
        """Return the path of an object."""
        metadata = manifest["metadata"]
        at = self.collection(manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""))
        return f"{at}/{quote(metadata['name'])}" + (f"/{subresource}" if subresource else "")

    # --- What to do with them ------------------------------------------------------------------------------------

    def create(self, manifest: Manifest, **query: str | int) -> Manifest:
        """Create an object."""
        namespace = manifest.get("metadata", {}).get("namespace", "")
        at = self.collection(manifest["apiVersion"], manifest["kind"], namespace)
        created: Manifest = self.request("POST", at, manifest, **query)
        return created

    def ensure(self, manifest: Manifest) -> Manifest:
        """Create an object, or return the one that is there."""
        try:
            return self.create(manifest)
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
            return self.get(manifest)

    def apply(self, manifest: Manifest, **query: str | int) -> Manifest:
        """Create an object or bring it into this form, as ``kubectl apply --server-side`` does."""
        query = {"fieldManager": "tests", "force": "true", **query}
        applied: Manifest = self.request("PATCH", self.path(manifest), manifest, content_type=APPLY, **query)
        return applied

    def get(self, manifest: Manifest) -> Manifest:
        """Return the present form of an object that has the kind, namespace and name of this one."""
        found: Manifest = self.request("GET", self.path(manifest))
        return found

    def find(self, manifest: Manifest) -> Manifest | None:
        """Return the present form of an object like `get`, None if it is not there."""
        try:
            return self.get(manifest)
        except Refused as refusal:
            if refusal.code != http.client.NOT_FOUND:
                raise
            return None

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str | int) -> "list[Manifest]":
        """Return the objects of a kind, in all namespaces or one, complete with what a list leaves out of its items."""
        answer = self.request("GET", self.collection(api_version, kind, namespace), **query)
        return [{"apiVersion": api_version, "kind": kind, **item} for item in answer["items"]]

    def listed(self, api_version: str, kind: str) -> "tuple[list[Manifest], str]":
        """Return the objects of a kind in all namespaces like `list`, and the version from which on to watch them."""
        answer = self.request("GET", self.collection(api_version, kind))
        items = [{"apiVersion": api_version, "kind": kind, **item} for item in answer["items"]]
        return items, str(answer["metadata"]["resourceVersion"])

    def watch(self, api_version: str, kind: str, *, seconds: int = 10, **query: str | int) -> Iterator[Manifest]:
        """Yield what happens to the objects of a kind in all namespaces, for a while.

        Those that are there come first, unless the query names the version from which on to watch.
        """
        asked = urlencode({"watch": 1, "timeoutSeconds": seconds, **query})
        where = f"{self.collection(api_version, kind)}?{asked}"
        with closing(self._connected()) as connection:
            connection.request("GET", where, headers={"Authorization": f"Bearer {self.token}", "Accept": JSON})
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise Refused(f"GET {where}", response.status, {"message": response.read().decode()})
            while (line := response.readline()).endswith(b"\n"):  # what is cut off is no event
                yield json.loads(line)

    def patch(
        self,
        manifest: Manifest,
        patch: Manifest,
        *,
        subresource: str = "",
        content_type: str = MERGE,
        **query: str | int,
    ) -> Manifest:
        """Merge a patch into an object."""
        at = self.path(manifest, subresource)
        patched: Manifest = self.request("PATCH", at, patch, content_type=content_type, **query)
        return patched

    def replace(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Put an object in place of its present form."""
        replaced: Manifest = self.request("PUT", self.path(manifest, subresource), manifest)
        return replaced

    def delete(self, manifest: Manifest, *, uid: str = "", **options: str | int) -> None:
        """Delete an object that may be gone already; one of its name with another ``uid`` is refused."""
        only = {"preconditions": {"uid": uid}} if uid else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **only, **options}
        try:
            self.request("DELETE", self.path(manifest), body)
        except Refused as refusal:
            if refusal.code != http.client.NOT_FOUND:
                raise


def until(condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE, every: float = 0.05) -> Any:
    """Return the first true value of a condition.

    It is asked ``every`` so many seconds at first, then less and less often down to three times a second: several tests
    wait at a time, and their questions would cost the machine more than what they wait for.

    Raises: TimeoutError, saying what was waited for, when it does not come true.
    """
    end = time.monotonic() + seconds
    slowest = max(every, 0.3)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what}; last seen: {value!r}")
        time.sleep(every)
        every = min(1.3 * every, slowest)
