"""A request to a webhook and the answer to it, as values, and as the AdmissionReview JSON around them.

The network shell decodes a body with `read_review`, gives the request to `kai.admission.webhooks` and sends what
`write_review` makes of the response. Neither side of it knows HTTP.

What an administrator decides about admission.

Manifests read one piece at a time, each piece knowing where it was found.

A webhook must keep what it does not know, so it works on the manifest itself and not on an api object made of it. A
piece that is not what it must be is refused with its path; nothing here ends in a traceback, whatever the JSON holds.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from kai.api import names
from kai.api.codec.structuring import subject_of
from kai.api.fields import INT32_MAX
from kai.api.values import BadValue


@attrs.frozen(kw_only=True)
class AdmissionSettings:
    """Switches of the webhooks, with the defaults of the peer's flags."""

    scheduler_name: str = names.SCHEDULER_NAME
    gpu_sharing_enabled: bool = False
    hami_core_enabled: bool = False
    block_nvidia_visible_devices: bool = False
    gpu_fraction_runtime_class_name: str = "nvidia"
    """The runtime class of pods that share GPUs and name none; empty leaves them alone."""
    queue_quota_validation: bool = False


@attrs.frozen
class Piece:
    """A value inside a manifest; absent and null are the same."""

    value: object
    subject: str = ""
    path: tuple[str | int, ...] = ()

    @property
    def present(self) -> bool:
        """Whether there is anything here."""
        return self.value is not None

    def bad(self, wanted: str) -> BadValue:
        """Return the exception that says what is wrong here."""
        return BadValue(self.value, wanted, subject=self.subject, path=self.path)

    def __getitem__(self, key: str) -> Piece:
        """Return the value of a field.

        Raises: BadValue if this is no mapping.
        """
        return Piece(self.mapping().get(key), self.subject, (*self.path, key))

    def mapping(self) -> Mapping[str, Any]:
        """Return the fields; none if absent.

        Raises: BadValue if this is no mapping.
        """
        return self.mapping_or_none() or {}

    def mapping_or_none(self) -> Mapping[str, Any] | None:
        """Return the fields, or None if absent.

        Raises: BadValue if this is no mapping.
        """
        if self.value is None:
            return None
        if not isinstance(self.value, Mapping):
            raise self.bad("an object")
        return self.value

    def each(self) -> Iterator[Piece]:
        """Yield the entries of a list; none if absent.

        Raises: BadValue if this is no list, or has a null in it.
        """
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.bad("a list")
        for index, entry in enumerate(self.value):
            piece = Piece(entry, self.subject, (*self.path, index))
            if entry is None:
                raise piece.bad("an entry")
            yield piece

    def text(self) -> str:
        """Return a text; empty if absent.

        Raises: BadValue if this is no text.
        """
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self.bad("a string")
        return self.value

    def texts(self) -> dict[str, str]:
        """Return a mapping from text to text, such as labels.

        Raises: BadValue if this is none.
        """
        return {key: self[key].text() for key in self.mapping()}

    def integer(self) -> int | None:
        """Return a 32-bit integer; None if absent.

        Raises: BadValue if this is none.
        """
        if self.value is None:
            return None
        if type(self.value) is not int or not -INT32_MAX - 1 <= self.value <= INT32_MAX:
            raise self.bad("a 32-bit integer")
        return self.value

    def number(self) -> float:
        """Return a number; 0 if absent.

        Raises: BadValue if this is none, or none that a float can hold.
        """
        if self.value is None:
            return 0.0
        if type(self.value) not in {int, float}:
            raise self.bad("a number")
        try:
            number = float(self.value)  # type: ignore[arg-type]  # the line above says what it is, mypy cannot follow `type()`
        except OverflowError:
            raise self.bad("a smaller number") from None
        if not math.isfinite(number):
            raise self.bad("a finite number")
        return number


def piece_of(manifest: object, kind: str) -> Piece:
    """Return a whole manifest as a piece, known by its kind, namespace and name."""
    return Piece(manifest, subject_of(manifest, kind))


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
