"""The rights without which a role does not work; ``docs/security.md`` has all of them, with the reason for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kai.api.fields import EMPTY
from kai.doctor.seen import Right

_FOLLOW: Final = ("list", "watch")
_READ: Final = ("get", *_FOLLOW)
_OURS: Final = "scheduling.run.ai"
_CLASSES: Final = "scheduling.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_DRA: Final = "resource.k8s.io"
_RESERVATION: Final = "kai-resource-reservation"
_SCALE: Final = "kai-scale-adjust"

_PLACES: Final = {"resource-reservation-namespace": _RESERVATION, "scale-adjust-namespace": _SCALE}
"""Which flag names another namespace than these."""

_Row = tuple[str, tuple[str, ...], tuple[str, ...], str]
TABLE: Final[dict[str, tuple[_Row, ...]]] = {
    "scheduler": (
        ("", ("nodes", "pods"), _READ, ""),
        ("", ("namespaces", "configmaps", "persistentvolumes", "persistentvolumeclaims"), _FOLLOW, ""),
        ("", ("pods", "pods/status"), ("patch",), ""),
        ("", ("pods/eviction",), ("create",), ""),
        ("", ("events",), ("create",), ""),
        ("policy", ("poddisruptionbudgets",), _FOLLOW, ""),
        (_CLASSES, ("priorityclasses",), _FOLLOW, ""),
        (_STORAGE, ("storageclasses", "csidrivers", "csistoragecapacities"), _FOLLOW, ""),
        (_DRA, ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"), _FOLLOW, ""),
        ("topology.node.k8s.io", ("noderesourcetopologies",), _FOLLOW, ""),
        ("kai.scheduler", ("topologies",), _FOLLOW, ""),
        (_OURS, ("queues", "podgroups", "bindrequests"), _READ, ""),
        (_OURS, ("podgroups", "podgroups/status", "queues/status"), ("patch",), ""),
        (_OURS, ("bindrequests",), ("create", "delete"), ""),
        (_OURS, ("podgroups", "bindrequests"), ("override",), ""),
    ),
    "binder": (
        ("", ("nodes", "pods", "persistentvolumes", "persistentvolumeclaims"), _READ, ""),
        (_STORAGE, ("storageclasses",), _READ, ""),
        (_DRA, ("resourceclaims",), _READ, ""),
        ("", ("pods/binding",), ("create",), ""),
        ("", ("pods", "pods/status"), ("patch",), ""),
        (_OURS, ("bindrequests",), (*_READ, "delete"), ""),
        (_OURS, ("bindrequests/status",), ("patch",), ""),
        (_OURS, ("bindrequests",), ("override",), ""),
        ("", ("pods",), ("create",), _RESERVATION),
    ),
    "podgrouper": (
        ("", ("pods",), _READ, ""),
        ("", ("namespaces",), _FOLLOW, ""),
        (_CLASSES, ("priorityclasses",), _FOLLOW, ""),
        ("", ("pods",), ("patch",), ""),
        (_OURS, ("podgroups",), (*_READ, "create", "patch", "override"), ""),
        ("batch", ("jobs",), ("get",), ""),
        ("apps", ("replicasets",), ("get",), ""),
    ),
    "podgroup-controller": (
        ("", ("pods", "nodes"), _FOLLOW, ""),
        (_CLASSES, ("priorityclasses",), _FOLLOW, ""),
        (_DRA, ("resourceclaims",), _FOLLOW, ""),
        (_OURS, ("podgroups",), _READ, ""),
        (_OURS, ("podgroups/status",), ("patch",), ""),
        (_OURS, ("podgroups",), ("override",), ""),
    ),
    "queue-controller": (
        ("", ("pods", "nodes"), _FOLLOW, ""),
        (_DRA, ("resourceclaims",), _FOLLOW, ""),
        (_OURS, ("queues",), _READ, ""),
        (_OURS, ("podgroups",), _FOLLOW, ""),
        (_OURS, ("queues/status",), ("patch",), ""),
    ),
    "node-scale-adjuster": (
        ("", ("pods",), _READ, ""),
        (_OURS, ("bindrequests",), _FOLLOW, ""),
        ("", ("pods",), ("create", "delete"), _SCALE),
    ),
    "admission": ((_OURS, ("queues",), _FOLLOW, ""),),
}
READER: Final[tuple[_Row, ...]] = (
    ("", ("nodes", "pods", "namespaces"), ("list",), ""),
    (_OURS, ("queues", "podgroups"), ("list",), ""),
)
"""What a person needs whose commands are to see a whole cluster."""


def rights_of(roles: Iterable[str], flags: Mapping[str, str] = EMPTY) -> Iterator[Right]:
    """Yield what these roles need, each once; in the namespaces that their flags name."""
    places = {default: flags.get(flag) or default for flag, default in _PLACES.items()}
    seen: set[tuple[str, str, str, str]] = set()
    for role in roles:
        rows = ((group, what, verbs, places.get(where, where)) for group, what, verbs, where in TABLE.get(role, ()))
        for right in _spread(role, rows):
            key = (right.verb, right.group, right.resource, right.namespace)
            if key not in seen:
                seen.add(key)
                yield right


def rights_of_readers() -> Iterator[Right]:
    """Yield what commands that only read need for whole answers."""
    yield from _spread("", READER)


def _spread(role: str, rows: Iterable[_Row]) -> Iterator[Right]:
    for group, resources, verbs, namespace in rows:
        for resource in resources:
            for verb in verbs:
                yield Right(role=role, verb=verb, group=group, resource=resource, namespace=namespace)
