"""A webhook request and its response as values, their AdmissionReview JSON, settings, and a reader of manifests.

The network shell decodes a body with `read_review`, passes the request to `kai.roles.admission.webhooks` and sends the
result of `write_review`. Neither needs HTTP.

`AdmissionSettings` are the settings that an administrator makes for admission.

`Piece` reads a manifest one value at a time, each with its path. A webhook must keep unknown fields, so it works on the
manifest itself and not on an api object. An invalid value is refused with its path; no input JSON ends in a traceback.
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
    """The runtime class for pods that share GPUs and name none; if it is empty, such pods are not changed."""
    queue_quota_validation: bool = False


@attrs.frozen
class Piece:
    """A value inside a manifest; absent and null are the same."""

    value: object
    subject: str = ""
    path: tuple[str | int, ...] = ()

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    def bad(self, wanted: str) -> BadValue:
        """Return the exception for this value and the form that was ``wanted``."""
        return BadValue(self.value, wanted, subject=self.subject, path=self.path)

    def __getitem__(self, key: str) -> Piece:
        """Return the value of a field.

        Raises: BadValue if this is not a mapping.
        """
        return Piece(self.mapping().get(key), self.subject, (*self.path, key))

    def mapping(self) -> Mapping[str, Any]:
        """Return the fields; none if absent.

        Raises: BadValue if this is not a mapping.
        """
        return self.mapping_or_none() or {}

    def mapping_or_none(self) -> Mapping[str, Any] | None:
        """Return the fields, or None if absent.

        Raises: BadValue if this is not a mapping.
        """
        if self.value is None:
            return None
        # The class first: nearly all are dicts, and asking an abstract class takes ten times as long.
        if type(self.value) is not dict and not isinstance(self.value, Mapping):
            raise self.bad("an object")
        return self.value

    def each(self) -> Iterator[Piece]:
        """Yield the entries of a list; none if absent.

        Raises: BadValue if this is not a list, or contains a null.
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
        """Return a string; empty if absent.

        Raises: BadValue if this is not a string.
        """
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self.bad("a string")
        return self.value

    def texts(self) -> dict[str, str]:
        """Return a mapping from string to string, such as labels.

        Raises: BadValue if this is not one.
        """
        return {key: self[key].text() for key in self.mapping()}

    def integer(self) -> int | None:
        """Return a 32-bit integer; None if absent.

        Raises: BadValue if this is not one.
        """
        if self.value is None:
            return None
        # `isinstance` would take true for 1.
        if type(self.value) is not int or not -INT32_MAX - 1 <= self.value <= INT32_MAX:
            raise self.bad("a 32-bit integer")
        return self.value

    def number(self) -> float:
        """Return a number; 0 if absent.

        Raises: BadValue if this is not a number, or too large for a float.
        """
        if self.value is None:
            return 0.0
        if type(self.value) not in {int, float}:
            raise self.bad("a number")
        try:
            number = float(self.value)  # type: ignore[arg-type]  # the line above says what it is, mypy cannot follow `type()`
        except OverflowError:
            raise self.bad("a smaller number") from None
        # Python reads NaN and Infinity in JSON, which are no JSON.
        if not math.isfinite(number):
            raise self.bad("a finite number")
        return number


def piece_of(manifest: object, kind: str) -> Piece:
    """Return a whole manifest as a piece, with its kind, namespace and name as subject."""
    return Piece(manifest, subject_of(manifest, kind))


Manifest: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
PatchOperation: TypeAlias = dict[str, Any]

_OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")

API_VERSION: Final = "admission.k8s.io/v1"
# The status that a client sees of a refused request: a denied permission, or a malformed object.
_FORBIDDEN: Final = {"code": 403, "reason": "Forbidden"}
_BAD_REQUEST: Final = {"code": 400, "reason": "BadRequest"}


@attrs.frozen(kw_only=True)
class AdmissionRequest:
    """A user's request to create, change or delete an object.

    `object` is the requested state, `old_object` the present one; a deletion has only the latter.
    """

    operation: Operation
    kind: str
    object: Manifest | None = None
    old_object: Manifest | None = None
    namespace: str = ""
    uid: str = ""
    user: str = ""
    """The name of the account that makes the request."""
    sub_resource: str = ""
    """The subresource that is changed; "" for the object itself."""


@attrs.frozen(kw_only=True)
class AdmissionResponse:
    """A webhook's decision.

    `object` is the changed object and `patch` the changes; both are absent if there are none. `malformed` distinguishes
    the refusal of an unreadable object from a refusal by a rule.
    """

    allowed: bool = True
    message: str = ""
    warnings: tuple[str, ...] = ()
    malformed: bool = False
    object: Manifest | None = None
    patch: tuple[PatchOperation, ...] = ()


ALLOWED: Final = AdmissionResponse()


def refused(message: str, *, warnings: tuple[str, ...] = (), malformed: bool = False) -> AdmissionResponse:
    """Return the response that refuses an object."""
    return AdmissionResponse(allowed=False, message=message, warnings=warnings, malformed=malformed)


def read_review(review: object) -> AdmissionRequest:
    """Return the request inside an AdmissionReview.

    Raises: BadValue if it is not an AdmissionReview.
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
        user=request["userInfo"]["username"].text(),
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
