"""The owners of jobs, from the pods up to the objects that users submitted.

A pod names its nearest owner, a group its own, and an annotation of the group the topmost one. The owners in between
are known where the input has the objects. A ReplicaSet belongs to a Deployment where its name is the Deployment's name
followed by the pod-template hash in the labels of its pods.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import yaml

from kai.api import names
from kai.api.kubernetes.meta import OwnerReference
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup

_HASH: Final = "pod-template-hash"
_OWN: Final = frozenset({"Pod", "PodGroup"})
"""Kinds that are requested by their own names."""


@attrs.frozen
class Above:
    """One owner of a job."""

    kind: str
    name: str


def owners_in(
    pods: Iterable[Pod], groups: Iterable[PodGroup], above: Mapping[str, Sequence[tuple[str, str, str]]] | None = None
) -> dict[str, tuple[Above, ...]]:
    """Return the owners of each job by its key, ``namespace/name``, the nearest first.

    ``above`` maps the UID of an object that owns pods to kind, name and UID of its own owners. Cost: one pass over the
    pods.
    """
    known = {} if above is None else above
    found: dict[str, dict[Above, None]] = {}
    for pod in pods:
        metadata = pod.metadata
        group = metadata.annotations.get(names.POD_GROUP)
        if group and metadata.owner_references:
            members = found.setdefault(f"{metadata.namespace}/{group}", {})
            members.update(dict.fromkeys(_upwards(metadata.owner_references, metadata.labels, known)))
    for manifest in groups:
        metadata = manifest.metadata
        members = found.setdefault(f"{metadata.namespace}/{metadata.name}", {})
        members.update(dict.fromkeys(_upwards(metadata.owner_references, {}, known)))
        top = topmost(metadata.annotations.get(names.TOP_OWNER, ""))
        if top is not None:
            members[top] = None
    return {key: tuple(each for each in members if each.kind not in _OWN) for key, members in found.items()}


def _upwards(
    references: Sequence[OwnerReference], labels: Mapping[str, str], above: Mapping[str, Sequence[tuple[str, str, str]]]
) -> Iterator[Above]:
    """Yield the owners that references name, and their known owners in turn."""
    seen: set[str] = set()
    waiting = [(each.kind, each.name, each.uid) for each in reversed(references)]
    while waiting:
        kind, name, uid = waiting.pop()
        yield Above(kind, name)
        tail = f"-{labels.get(_HASH, '')}"
        if kind == "ReplicaSet" and tail != "-" and name.endswith(tail):
            yield Above("Deployment", name.removesuffix(tail))
        if uid not in seen:
            seen.add(uid)
            waiting += reversed(above.get(uid, ()))


def topmost(text: str) -> Above | None:
    """Return the owner in the annotation that pod grouping writes; None where the text is something else."""
    try:
        values = yaml.safe_load(text) if text else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(values, Mapping) or not values.get("kind") or not values.get("name"):
        return None
    return Above(str(values["kind"]), str(values["name"]))
