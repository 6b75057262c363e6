"""What the model answers: objects, and refusals in the words and codes of a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from kai.cluster.transport.calls import Answer

if TYPE_CHECKING:
    from tests.doubles.rest_server.kinds import Served

_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}


@attrs.define
class RefusedError(Exception):
    """The server says no."""

    code: int
    message: str
    reason: str = ""
    details: Mapping[str, Any] = attrs.field(factory=dict)
    retry_after: str = ""

    def answer(self) -> Answer:
        return Answer(status=self.code, body=msgspec.json.encode(self.status()), retry_after=self.retry_after)

    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason or _REASONS.get(self.code, "Unknown"),
            "code": self.code,
            **({"details": dict(self.details)} if self.details else {}),
        }


def _details(served: Served, name: str) -> dict[str, Any]:
    return {"name": name, "kind": served.plural, **({"group": served.group} if served.group else {})}


def missing(served: Served, name: str) -> RefusedError:
    return RefusedError(404, f'{served.resource} "{name}" not found', details=_details(served, name))


def taken(served: Served, name: str) -> RefusedError:
    details = _details(served, name)
    return RefusedError(409, f'{served.resource} "{name}" already exists', "AlreadyExists", details)


def conflict(served: Served, name: str, why: str) -> RefusedError:
    message = f'Operation cannot be fulfilled on {served.resource} "{name}": {why}'
    return RefusedError(409, message, details=_details(served, name))


def invalid(served: Served, name: str, field: str, why: str) -> RefusedError:
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": field}]
    message = f'{served.kind}.{served.group} "{name}" is invalid: {field}: {why}'
    return RefusedError(422, message, details={**_details(served, name), "causes": causes})


NO_SUCH_PATH: Final = Answer(status=404, body=b"404 page not found\n")


def given(value: object, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(value))


def done(served: Served, name: str, uid: str, status: int = 200) -> Answer:
    details = {**_details(served, name), "uid": uid}
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return given(body, status)
