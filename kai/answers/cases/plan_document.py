"""A plan as a document: its digest, and its differences from another plan.

A snapshot may carry the decisions that were made from it, so this module does not depend on the code that decides.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs

from kai.basics.parsing import mappings_of

KINDS = ("place", "evict", "move", "hold")


@attrs.frozen(kw_only=True)
class Place:
    """A pod that starts."""

    cycle: int
    pod: str
    job: str
    queue: str
    node: str
    gpus: float
    """Whole and shared GPUs, and MIG slices as quotas count them."""
    sliced: float = 0.0
    """The part of ``gpus`` that consists of MIG slices."""
    slots: tuple[str, ...]
    """The devices that it shares; a leading + means that the device is opened for it."""
    share: float | None
    """The fraction of each of them; None for a pod with whole GPUs or none."""


@attrs.frozen(kw_only=True)
class Hold:
    """A pod that is promised a place which others have still to leave."""

    cycle: int
    pod: str
    job: str
    queue: str
    node: str
    gpus: float
    sliced: float = 0.0


@attrs.frozen(kw_only=True)
class Departure:
    """A pod that has to go."""

    cycle: int
    pod: str
    job: str
    queue: str
    node: str
    gpus: float
    sliced: float = 0.0
    cause: str
    rule: str
    aggressor: str | None
    to: str | None
    """The node that it is promised in exchange; such a pod moves."""


def digest_of(plan: Mapping[str, Any]) -> str:
    """Return a digest of the decisions in a plan's document, whatever their order.

    The digest includes that a device is opened, but not its temporary name.
    """
    lines = sorted(
        json.dumps({"kind": kind, **_comparable(each)}, sort_keys=True) for kind in KINDS for each in plan[kind]
    )
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


@attrs.frozen(kw_only=True)
class Difference:
    """One decision that differs, or that only one of two plans has."""

    kind: str
    """place, hold, evict or move."""
    cycle: int
    pod: str
    job: str
    recorded: Mapping[str, Any] | None
    now: Mapping[str, Any] | None


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the differences of two plans, as documents: by kind, then in the order of cycles and pods."""
    out: list[Difference] = []
    for kind in KINDS:
        before, after = _by_pod(recorded.get(kind)), _by_pod(now.get(kind))
        for key in sorted(before.keys() | after.keys()):
            one, other = before.get(key), after.get(key)
            if one is None or other is None or _comparable(one) != _comparable(other):
                known = one or other or {}
                job = str(known.get("job", ""))
                out.append(Difference(kind=kind, cycle=key[0], pod=key[1], job=job, recorded=one, now=other))
    return tuple(sorted(out, key=lambda each: (each.cycle, each.pod, each.kind)))


def _by_pod(items: object) -> dict[tuple[int, str], Mapping[str, Any]]:
    return {(int(each.get("cycle", 1)), str(each.get("pod", ""))): each for each in mappings_of(items)}


def _comparable(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parts of a decision that identify it.

    GPUs of MIG slices are left out, because older recordings do not count them. Nothing is lost: the request of a pod
    is not a decision.
    """
    values = {**item, "slots": comparable_slots(item)}
    gpus, sliced = item.get("gpus"), values.pop("sliced", 0.0)
    if isinstance(gpus, int | float) and isinstance(sliced, int | float) and sliced:
        values["gpus"] = round(gpus - sliced, 3)
    return values


def comparable_slots(item: Mapping[str, Any]) -> list[str]:
    """Return the devices of a decision, in order. An opened one has only a temporary name and becomes ``+``."""
    return sorted("+" if str(name).startswith("+") else str(name) for name in item.get("slots") or ())
