"""Says in what an answer differs from what a case expects. What is compared, and how, is in the README beside this.

Clusters and divisions are judged by `kai.lab.comparing.expected_answer`, which is also behind
`kai simulate --check`; here are the components around the scheduler.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import yaml

from kai.api import values as quantity
from kai.api.values import BadValue
from kai.lab.comparing.expected_answer import compare

Values = Mapping[str, Any]

OWNER_ANNOTATION = "kai.scheduler/top-owner-metadata"
SERVER_FIELDS = ("creationTimestamp", "resourceVersion", "managedFields", "generation")
GENERATED = re.compile("@{5,}")
KEEPS_EMPTY_TEXT = ("labels", "annotations", "data")


def differences(case: Values, answer: Values) -> list[str]:
    """Return in what `answer` differs from what `case` expects, nothing if it does not."""
    if "error" in answer:
        return [f"error: {answer['error']}"]
    kind = case.get("kind", "scheduling")
    if kind in JUDGES:
        return list(JUDGES[kind](case["expected"], answer))
    return list(compare(case["expected"], answer, stable_cycles=case.get("stableCycles", 0)).found)


# ----------------------------------------------------------------------------------------------------------- components


def judge_podgrouping(expected: Values, answer: Values) -> Iterator[str]:
    yield from _failed(expected, answer)
    wanted, found = _group(expected.get("podGroup")), _group(answer["podGroup"])
    if (wanted is None) is not (found is None):
        yield f"podGroup: {'one' if found else 'none'}, expected {'one' if wanted else 'none'}"
    elif wanted is not None:
        yield from Tree().compare("podGroup", wanted, found)
    yield from Tree().compare("podPatch", _bare(expected.get("podPatch")), _bare(answer["podPatch"]))


def judge_admission(expected: Values, answer: Values) -> Iterator[str]:
    if answer["allowed"] is not expected["allowed"]:
        yield f"allowed: {answer['allowed']}, expected {expected['allowed']}: {expected.get('message', '')}"
        return
    if bool(answer.get("warnings")) is not bool(expected.get("warnings")):
        yield f"warnings: {answer.get('warnings')}, expected {expected.get('warnings')}"
    if "object" in expected:
        yield from Tree().compare("object", _manifest(expected["object"]), _manifest(answer.get("object")))


def judge_binding(expected: Values, answer: Values) -> Iterator[str]:
    yield from _failed(expected, answer)
    if "gpuIndex" in expected and str(answer.get("gpuIndex")) != expected["gpuIndex"]:
        yield f"gpuIndex: {answer.get('gpuIndex')}, expected {expected['gpuIndex']}"
    wanted, found = expected.get("changes") or {}, answer["changes"]
    for kind in ("created", "updated"):
        yield from Tree().compare(f"changes.{kind}", _manifests(wanted.get(kind)), _manifests(found.get(kind)))
    gone, expected_gone = sorted(found.get("deleted") or []), sorted(wanted.get("deleted") or [])
    if gone != expected_gone:
        yield f"changes.deleted: {gone}, expected {expected_gone}"


def judge_status(expected: Values, answer: Values) -> Iterator[str]:
    yield from _failed(expected, answer)
    yield from Tree(quantities=True).compare("status", _bare(expected.get("status")), _bare(answer["status"]))


JUDGES: dict[str, Callable[[Values, Values], Iterator[str]]] = {
    "podgrouping": judge_podgrouping,
    "admission": judge_admission,
    "binding": judge_binding,
    "status": judge_status,
}


def _failed(expected: Values, answer: Values) -> Iterator[str]:
    if bool(answer.get("failed")) is not bool(expected.get("failed")):
        yield f"failed: {bool(answer.get('failed'))}, expected {bool(expected.get('failed'))}"


# ---------------------------------------------------------------------------------------------------------------- trees


class Tree:
    """Compares two trees of plain values. A run of @ in the wanted one stands for as many generated characters."""

    def __init__(self, *, quantities: bool = False) -> None:
        self._quantities = quantities
        self._generated: dict[int, str] = {}

    def compare(self, place: str, wanted: Any, found: Any) -> Iterator[str]:
        """Yield every place in which `found` is not what is wanted."""
        if isinstance(wanted, Mapping) and isinstance(found, Mapping):
            for key in sorted({*wanted, *found}):
                if key not in wanted or key not in found:
                    has, lacks = ("expected", "missing") if key in wanted else ("found", "not expected")
                    yield f"{place}.{key}: {has} {(wanted if key in wanted else found)[key]!r}, {lacks}"
                elif key == OWNER_ANNOTATION:
                    yield from self.compare(f"{place}.{key}", yaml.safe_load(wanted[key]), yaml.safe_load(found[key]))
                else:
                    yield from self.compare(f"{place}.{key}", wanted[key], found[key])
        elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
            for at, (one, other) in enumerate(zip(wanted, found, strict=True)):
                yield from self.compare(f"{place}[{at}]", one, other)
        elif not self._same(wanted, found):
            yield f"{place}: {found!r}, expected {wanted!r}"

    def _same(self, wanted: Any, found: Any) -> bool:
        if isinstance(wanted, str) and isinstance(found, str) and GENERATED.search(wanted):
            return self._matches(wanted, found)
        if wanted == found and isinstance(wanted, bool) is isinstance(found, bool):
            return True
        return self._quantities and _amount(wanted) is not None and _amount(wanted) == _amount(found)

    def _matches(self, wanted: str, found: str) -> bool:
        """Return whether `found` fits the pattern with the same generated characters as everywhere before."""
        pattern = "".join(
            f"([a-z0-9]{{{len(part)}}})" if GENERATED.fullmatch(part) else re.escape(part)
            for part in re.split("(@{5,})", wanted)
        )
        match = re.fullmatch(pattern, found)
        return match is not None and all(self._generated.setdefault(len(text), text) == text for text in match.groups())


def _amount(value: Any) -> Fraction | None:
    try:
        return None if isinstance(value, bool | None) else Fraction(quantity.amount(str(value), 10**6), 10**6)
    except BadValue:
        return None


def _bare(value: Any) -> Any:
    """Return `value` without nulls and empty containers, which say the same as a missing field."""
    if isinstance(value, Mapping):
        cleaned = {key: _bare(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in (None, {}, [])}
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value]
    return {} if value is None else value


def _unblank(value: Any, key: str = "") -> Any:
    """Return `value` without empty texts, except in maps whose values are the user's own."""
    if isinstance(value, Mapping):
        keep = key in KEEPS_EMPTY_TEXT
        return {name: _unblank(item, name) for name, item in value.items() if keep or item != ""}
    if isinstance(value, list | tuple):
        return [_unblank(item) for item in value]
    return value


def _manifest(value: Any) -> Any:
    cleaned = _bare(_unblank(value or {}))
    for field in SERVER_FIELDS:
        cleaned.get("metadata", {}).pop(field, None)
    return cleaned


def _manifests(values: Any) -> list[Any]:
    def key(manifest: Any) -> tuple[str, str, str]:
        metadata = manifest.get("metadata", {})
        return manifest.get("kind", ""), metadata.get("namespace", ""), metadata.get("name", "")

    return sorted((_manifest(value) for value in values or []), key=key)


def _group(value: Any) -> Any:
    """Return those parts of a pod group that the pod grouper answers for, sub-groups by name; None for none."""
    if not value:
        return None
    metadata, spec = value.get("metadata") or {}, dict(value.get("spec") or {})
    spec["subGroups"] = sorted(spec.get("subGroups") or [], key=lambda subgroup: subgroup.get("name", ""))
    owners = [
        {key: owner.get(key) for key in ("apiVersion", "kind", "name", "uid")}
        for owner in metadata.get("ownerReferences") or []
    ]
    kept = {key: metadata.get(key) for key in ("name", "namespace", "labels", "annotations")}
    return _bare({"metadata": {**kept, "ownerReferences": owners}, "spec": spec})
