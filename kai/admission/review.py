"""A request to a webhook and the answer to it, as values, and as the AdmissionReview JSON around them.

The network shell decodes a body with `read_review`, gives the request to `kai.admission.webhooks` and sends what
`write_review` makes of the response. Neither side of it knows HTTP.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from kai.admission.reading import Piece
from kai.api.values.bad_value import BadValue

Manifest: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
PatchOperation: TypeAlias = dict[str, Any]

_OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")

API_VERSION: Final = "admission.k8s.io/v1"
# What the API server shows a client whose request a webhook refused: as a refused permission, or as a malformed object.
_FORBIDDEN: Final = {"code": 403, "reason": "Forbidden"}
_BAD_REQUEST: Final = {"code": 400, "reason": "BadRequest"}


@attrs.frozen(kw_only=True)
class AdmissionRequest:
    """A user wants to create, change or delete an object.

    `object` is the object as it would be, `old_object` as it is; of a deletion only the latter is known.
    """

    operation: Operation
    kind: str
    object: Manifest | None = None
    old_object: Manifest | None = None
    namespace: str = ""
    uid: str = ""
    sub_resource: str = ""
    """What part of the object is changed by itself; "" for the object."""


@attrs.frozen(kw_only=True)
class AdmissionResponse:
    """What a webhook says.

    `object` is what the webhook made of the object and `patch` the way there; both are absent where it changed nothing.
    `malformed` tells a refusal of something unreadable from a refusal by a rule.
    """

    allowed: bool = True
    message: str = ""
    warnings: tuple[str, ...] = ()
    malformed: bool = False
    object: Manifest | None = None
    patch: tuple[PatchOperation, ...] = ()


ALLOWED: Final = AdmissionResponse()


def refused(message: str, *, warnings: tuple[str, ...] = (), malformed: bool = False) -> AdmissionResponse:
    """Return the response that keeps an object out."""
    return AdmissionResponse(allowed=False, message=message, warnings=warnings, malformed=malformed)


def read_review(review: object) -> AdmissionRequest:
    """Return the request inside an AdmissionReview.

    Raises: BadValue if it is none.
    """
    request = Piece(review, "AdmissionReview")["request"]
    if not request.present:
        raise request.bad("a request to decide on")
    operation = request["operation"]
    known = next((name for name in _OPERATIONS if name == operation.value), None)
    if known is None:
        raise operation.bad("one of " + ", ".join(_OPERATIONS))
    return AdmissionRequest(
        operation=known,
        kind=request["kind"]["kind"].text(),
        object=request["object"].mapping_or_none(),
        old_object=request["oldObject"].mapping_or_none(),
        namespace=request["namespace"].text(),
        uid=request["uid"].text(),
        sub_resource=request["subResource"].text(),
    )


def write_review(request: AdmissionRequest, response: AdmissionResponse) -> dict[str, Any]:
    """Return the AdmissionReview that carries a response to the API server."""
    answer: dict[str, Any] = {"uid": request.uid, "allowed": response.allowed}
    if not response.allowed:
        answer["status"] = {
            "status": "Failure",
            "message": response.message,
            **(_BAD_REQUEST if response.malformed else _FORBIDDEN),
        }
    if response.warnings:
        answer["warnings"] = list(response.warnings)
    if response.patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(json.dumps(response.patch).encode()).decode("ascii")
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": answer}


def unreadable(error: BadValue) -> AdmissionResponse:
    """Return the refusal of an object that cannot be read."""
    return refused(str(error), malformed=True)
