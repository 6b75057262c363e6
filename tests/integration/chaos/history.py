"""What kai asked of the API server, read from its audit log: who wrote what, when, and who led at that time.

Each life of a process has a token of its own, and the log names it. So the log tells the replicas apart, which all run
under one account, and tells the lives of one replica apart.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.integration.client import Api

_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_WRITES = {"create", "update", "patch", "delete"}
LEASE = "leases"
_FENCED = {"pods/binding", "pods/eviction"}
"""What names its term, so that the API server refuses it in a later one; bind requests do when they are created."""


def life_of(api: Api) -> str:
    """Return how the audit log names whoever uses this token."""
    part = api.token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return f"JTI={claims['jti']}"


@attrs.frozen(kw_only=True)
class Write:
    """A write that the API server did. Times are its own, as text that sorts like time."""

    life: str
    received: str
    done: str
    what: str
    """The plural of a kind, with a subresource behind a slash."""
    key: tuple[str, str]
    verb: str
    uid: str = ""
    """That of the object, where the write names it."""

    @property
    def decides(self) -> bool:
        """Whether the write decides about a pod. Others prepare or report what the next leader does anew."""
        return self.what in _FENCED or (self.what, self.verb) == ("bindrequests", "create")


@attrs.frozen
class Term:
    """One life's time as leader, from the moment in which its lease was written."""

    life: str
    since: str


@attrs.define
class History:
    """The writes of kai so far."""

    log: Path
    writes: list[Write] = attrs.field(factory=list)
    calls: Counter[int] = attrs.field(factory=Counter)
    """How many calls of kai were answered, by status."""
    _offset: int = 0
    _begun: int = 0
    """How many of the writes were done to objects that the server remembers no more."""

    def begin_anew(self) -> None:
        """Take it that the server was put back to an earlier state: what was bound since may be bound again."""
        self.read()
        self._begun = len(self.writes)

    def read(self) -> None:
        """Read what was added to the log."""
        with self.log.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._offset += len(line)
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["stage"] != "ResponseComplete" or not event.get("userAgent", "").startswith("kai/"):
            return
        code = event["responseStatus"]["code"]
        self.calls[code] += 1
        if event["verb"] not in _WRITES or code >= 300:
            return
        ref = event["objectRef"]
        subresource = ref.get("subresource")
        self.writes.append(
            Write(
                life=event["user"]["extra"][_CREDENTIAL][0],
                received=event["requestReceivedTimestamp"],
                done=event["stageTimestamp"],
                what=f"{ref['resource']}/{subresource}" if subresource else ref["resource"],
                key=(ref.get("namespace", ""), ref.get("name", "")),
                verb=event["verb"],
                uid=ref.get("uid", "") or _expected_uid(event),
            )
        )

    # --- What must not be ----------------------------------------------------------------------------------------

    def bound_twice(self) -> list[str]:
        """Return the pods that were bound more than once; one that has the name of an earlier one is another."""
        bindings = [each for each in self.writes[self._begun :] if each.what == "pods/binding"]
        counts = Counter((*each.key, each.uid) for each in bindings)
        return ["/".join(key) for key, count in counts.items() if count > 1]

    def bindings(self) -> int:
        """Return how many pods were bound."""
        return sum(each.what == "pods/binding" for each in self.writes)

    def terms(self) -> list[Term]:
        """Return who led since when."""
        found: list[Term] = []
        for each in sorted(self.writes, key=lambda write: write.done):
            if each.what == LEASE and (not found or found[-1].life != each.life):
                found.append(Term(each.life, each.done))
        return found

    def late(self) -> Iterator[Write]:
        """Return what was written by a life that did not lead when the server received it."""
        terms = self.terms()
        for each in self.writes:
            if each.what == LEASE:
                continue
            leader = next((term.life for term in reversed(terms) if term.since <= each.received), "")
            if leader != each.life:
                yield each


def _expected_uid(event: dict[str, Any]) -> str:
    """Return the UID that an eviction expects of its pod; empty for writes whose bodies the log leaves out."""
    options = (event.get("requestObject") or {}).get("deleteOptions") or {}
    return str((options.get("preconditions") or {}).get("uid", ""))
