"""A watch of the model: the changes of one kind after a version, as a client sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from kai.cluster.transport.calls import Call
from tests.doubles.rest_server.selecting import Selects, selector
from tests.doubles.rest_server.server import Server, outline, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.rest_server.storage import Change

EXPIRED = "too old resource version"


@attrs.define(eq=False)
class Watch:
    """How far one client has come."""

    server: Server
    call: Call
    version: int
    namespace: str
    served: Any
    selects: Selects
    is_partial: bool
    is_over: bool = False

    @classmethod
    def begin(cls, server: Server, call: Call) -> Watch | None:
        """Return a watch; None for a kind that is not served."""
        target, query = target_of(call.path), dict(call.query)
        if target is None:
            return None
        selects = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        version = int(query.get("resourceVersion") or 0)
        partial = "PartialObject" in call.accept
        return cls(server, call, version, target.namespace, target.served, selects, partial)

    def pending(self) -> list[Change]:
        """Return the changes that this client has not seen, oldest first."""
        return [
            each
            for each in self.server.storage.changes_after(self.served, self.version)
            if self.namespace in {"", each.place[0]}
        ]

    @property
    def is_expired(self) -> bool:
        """Whether changes that this client has not seen are forgotten."""
        return self.version < self.server.storage.compacted

    def take(self, changes: list[Change]) -> bytes:
        """Return changes as lines, and go on after them."""
        lines = []
        for each in changes:
            self.version = each.version
            lines += list(self._lines(each))
        return b"".join(lines)

    def bookmark(self, version: int) -> bytes:
        """Return the line that says how far the watch has come."""
        self.version = max(self.version, version)
        kind, api_version = self.served.kind, self.served.api_version
        if self.is_partial:
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
        metadata = {"resourceVersion": str(self.version), "creationTimestamp": None}
        return line("BOOKMARK", {"kind": kind, "apiVersion": api_version, "metadata": metadata})

    def expiry(self) -> bytes:
        """Return the line that ends a watch which is too far behind."""
        self.is_over = True
        message = f"{EXPIRED}: {self.version} ({self.server.storage.version})"
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return line("ERROR", {**status, "message": message, "reason": "Expired", "code": 410})

    def _lines(self, change: Change) -> Iterator[bytes]:
        was = change.before is not None and self.selects(change.before)
        selected = change.after is not None and self.selects(change.after)
        if not was and not selected:
            return
        kind = ("MODIFIED" if selected else "DELETED") if was else "ADDED"
        if self.is_partial or (kind == "DELETED" and change.after is not None):
            present = dict(change.present)
            yield line(kind, outline(present) if self.is_partial else present)
            return
        yield b'{"type":"%s","object":%s}\n' % (kind.encode(), change.encoded)


def line(kind: str, obj: object) -> bytes:
    """Return an event of a stream."""
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"
