"""What may vary from cluster to cluster, how often it does, and how a person chooses among it."""

from random import Random
from types import MappingProxyType
from typing import Final

from attrs import frozen

FREQUENCIES: Final = MappingProxyType(
    {
        # What pods ask for.
        "whole-gpus": 0.95,
        "cpu-only": 0.5,
        "fractions": 0.45,
        "gpu-memory": 0.3,
        "multi-device": 0.3,
        "mig": 0.2,
        "dra": 0.25,
        "dra-shared": 0.5,
        "dra-all": 0.4,
        "dra-cel": 0.5,
        "containers": 0.15,
        "best-effort": 0.15,
        # How pods belong together.
        "gangs": 0.7,
        "elastic": 0.5,
        "subgroups": 0.35,
        "topology": 0.4,
        "roles": 0.15,
        # Who is entitled to what.
        "limits": 0.35,
        "weights": 0.5,
        "cpu-quota": 0.2,
        "queue-priority": 0.3,
        "flat-queues": 0.1,
        "deep-queues": 0.3,
        "unknown-queue": 0.08,
        "priorities": 0.8,
        "preemptibility": 0.3,
        "preemption-delay": 0.15,
        "min-runtime": 0.25,
        # In what state the cycle finds them.
        "running": 0.9,
        "releasing": 0.3,
        "stuck": 0.12,
        "stale": 0.3,
        "gated": 0.2,
        "finished": 0.15,
        "bind-requests": 0.25,
        "foreign": 0.2,
        "nominated": 0.1,
        # Where pods may go.
        "selectors": 0.3,
        "node-affinity": 0.3,
        "taints": 0.25,
        "cordoned": 0.15,
        "not-ready": 0.15,
        "few-pods": 0.15,
        "ports": 0.2,
        "pod-affinity": 0.25,
        "pod-anti-affinity": 0.25,
        "volumes": 0.25,
        "storage-capacity": 0.5,
        "numa": 0.2,
        # How the scheduler is set up.
        "cycles": 0.25,
        "keep-terminating": 0.3,
        "settings": 0.4,
        "strategies": 0.1,
    }
)
"""Every feature, and the part of all scenarios that may have it."""

_NEEDS: Final = MappingProxyType(
    {
        "dra-shared": "dra",
        "dra-all": "dra",
        "dra-cel": "dra",
        "storage-capacity": "volumes",
        "releasing": "running",
        "stuck": "running",
        "stale": "running",
        "keep-terminating": "cycles",
    }
)
"""A feature without the one it is a part of means nothing and is dropped."""


class UnknownFeatureError(ValueError):
    """A feature was named that does not exist."""


@frozen
class Chosen:
    """Which features every scenario has, and which each draws at its own frequency."""

    always: frozenset[str] = frozenset()
    sometimes: frozenset[str] = frozenset(FREQUENCIES)


def parse_features(text: str) -> Chosen:
    """Read a list such as ``all``, ``all,-dra``, ``gangs,mig`` or ``all,+dra``.

    A bare name or one with ``+`` is in every scenario, ``all`` means each at its own frequency, and ``-`` takes a name
    away again. What a named feature is a part of comes with it.

    Raises: UnknownFeatureError for a name that does not exist.
    """
    always: set[str] = set()
    sometimes: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        name = word.lstrip("+-")
        if name != "all" and name not in FREQUENCIES:
            raise UnknownFeatureError(f'feature "{name}": unknown; known are all, {", ".join(FREQUENCIES)}')
        names = set(FREQUENCIES) if name == "all" else {name}
        if word.startswith("-"):
            always -= names
            sometimes -= names
        elif name == "all" and not word.startswith("+"):
            sometimes |= names
        else:
            always |= names | {_NEEDS[each] for each in names if each in _NEEDS}
    return Chosen(frozenset(always), frozenset(sometimes))


def draw_features(random: Random, chosen: Chosen) -> frozenset[str]:
    """Draw what one scenario has."""
    drawn = {
        name
        for name, frequency in FREQUENCIES.items()
        if name in chosen.always or (random.random() < frequency and name in chosen.sometimes)
    }
    return frozenset(name for name in drawn if _NEEDS.get(name, name) in drawn)
