"""Building blocks of models: pods from a template, intermediate objects, and conditions for later objects."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

import attrs

from kai.basics.errors import InputError
from kai.basics.parsing import part_of
from kai.manifests.grouping import Index
from kai.roles.podgrouper.lookup import Absent, Get
from kai.roles.podgrouper.resource import Fields, Kind, Resource

Made = dict[str, Any]
"""An object that a controller would create, as a manifest."""

_LATER: Final = "later"
"""The key under which a later object has its conditions, until the expansion removes it."""


class Stage(Enum):
    """The state of pods that a controller waits for."""

    PLACED = "has a node"
    READY = "is ready"
    COMPLETE = "is complete"


@attrs.frozen(kw_only=True)
class Condition:
    """A controller's condition to create more: that all pods of a workload with these labels have reached a stage."""

    stage: Stage
    labels: Mapping[str, str] = attrs.field(hash=False)
    subject: str
    """The name of these pods in messages."""
    turn: int = 0
    """If pods of one template come in turns, the pods of the previous turn are meant; 0 if there is one turn."""

    def __str__(self) -> str:
        """Return the condition in words."""
        return f"once {self.subject} {self.stage.value}"


def later(made: Made, *conditions: Condition) -> Made:
    """Return an object that its controller creates once conditions hold."""
    return {**made, _LATER: conditions} if conditions else made


def taken_apart(made: Made) -> tuple[Made, tuple[Condition, ...]]:
    """Return an object without its conditions, and the conditions."""
    conditions: tuple[Condition, ...] = made.pop(_LATER, ())
    return made, conditions


MOST_PODS: Final = 100_000
"""A workload that asks for more pods than this is a typing error."""


class AbsentError(InputError):
    """A workload names an object that describes its pods and is not in the input."""


# Any number does, as long as it stays: two expansions of one input must have equal UIDs.
_NAMES: Final = uuid.UUID("6f0f3f5e-6c1b-4b0e-9a53-0d5f7a1f2c11")


@attrs.frozen(kw_only=True)
class Identity:
    """The data that distinguishes one pod of a template from the others."""

    name: str
    labels: Mapping[str, str] = attrs.field(factory=dict)
    annotations: Mapping[str, str] = attrs.field(factory=dict)


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return the UID of an object that no API server has seen: the same for the same name."""
    return str(uuid.uuid5(_NAMES, f"{kind}/{namespace}/{name}"))


def child(owner: Resource, api_version: str, kind: str, name: str, spec: object, **metadata: object) -> Made:
    """Return an object that ``owner`` creates."""
    return {"apiVersion": api_version, "kind": kind, "metadata": _metadata(owner, kind, name, metadata), "spec": spec}


def pods(owner: Resource, template: Fields | None, identities: Iterable[Identity]) -> Iterator[Made]:
    """Yield one pending pod of ``template`` for each identity.

    Raises: InputError when the template is missing, or its metadata are invalid.
    """
    if template is None:
        raise owner.error("spec.template", None, "a pod template")
    spec = template.child("spec")
    if spec is None:
        raise template.error(("spec",), None, "the spec of the pods")
    labels, annotations = (_texts(template, key) for key in ("labels", "annotations"))
    for identity in identities:
        metadata: Made = {
            "labels": {**labels, **identity.labels},
            "annotations": {**annotations, **identity.annotations},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _metadata(owner, "Pod", identity.name, metadata),
            "spec": spec.value,
            "status": {"phase": "Pending"},
        }


def named_elsewhere(fields: Fields, key: str, kind: Kind, namespace: str, index: Index) -> Resource:
    """Return the object that a field names and that describes the pods of a workload.

    Raises: InputError if no name is given, AbsentError if the object is not in the input.
    """
    name = fields.text(key)
    if not name:
        raise fields.error((key,), name, f"the name of a {kind.kind}")
    found = index.get(Get(kind, namespace, name))
    if isinstance(found, Absent):
        wanted = f"a {kind.kind} of this name in the input: it describes the pods"
        raise AbsentError(*fields.error((key,), name, wanted).args)
    return Resource.of(found)


def count(fields: Fields, *path: str, default: int) -> int:
    """Return a number of pods or replicas; null counts as absent, as it does for the API server.

    Raises: InputError when it is not a number, is negative, or is more than any workload has.
    """
    *above, last = path
    holder = fields.child(*above) if above else fields
    if holder is None or holder.value.get(last) is None:
        return default
    found = holder.integer(last)
    if found is None or not 0 <= found <= MOST_PODS:
        raise holder.error((last,), found, f"a whole number from 0 to {MOST_PODS}")
    return found


def part(holder: Fields | None, key: str) -> Fields | None:
    """Return the map at a key; None if it is absent or null.

    Raises: InputError for a value of another type.
    """
    return holder.child(key) if holder is not None and holder.value.get(key) is not None else None


def is_set(fields: Fields, *path: str) -> bool:
    """Return whether a flag is true; null and absent are false."""
    *above, last = path
    holder = fields.child(*above) if above else fields
    return holder is not None and holder.value.get(last) is not None and holder.flag(last) is True


_CONTROLLERS: Final = frozenset(
    (
        *("kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller"),
        *("trainer.kubeflow.org/trainjob-controller", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"),
        *("ray.io/kuberay-operator", "workload.codeflare.dev/appwrapper-controller"),
    )
)
"""Values of ``managedBy`` that mean the controller of the kind itself."""


def other_manager(workload: Resource) -> str:
    """Return the ``managedBy`` of a workload if it names another manager than the controller of its kind; else "".

    That controller then creates no pods, for instance where Kueue sends the workload to another cluster.
    """
    # Jobs of the training operator have the field in their runPolicy.
    places = (part_of(workload.manifest, "spec"), part_of(workload.manifest, "spec", "runPolicy"))
    said = (str(place.get("managedBy") or "") for place in places if isinstance(place, Mapping))
    return next((manager for manager in said if manager and manager not in _CONTROLLERS), "")


def _metadata(owner: Resource, kind: str, name: str, more: Mapping[str, object]) -> Made:
    reference = {**owner.reference.manifest(), "controller": True, "blockOwnerDeletion": True}
    metadata: Made = {
        "name": name,
        "namespace": owner.namespace,
        "uid": uid_of(kind, owner.namespace, name),
        "ownerReferences": [reference],
        **more,
    }
    # Age decides about the order of jobs, so what an object owns is as old as the object.
    born = owner.fields.child("metadata")
    if born is not None and isinstance(born.value.get("creationTimestamp"), str):
        metadata["creationTimestamp"] = born.value["creationTimestamp"]
    return metadata


def _texts(template: Fields, key: str) -> dict[str, str]:
    found = part(part(template, "metadata"), key)
    if found is None:
        return {}
    # null is an empty text here, as an API server reads it in a map of strings.
    return {name: "" if value is None else found.text(name) or "" for name, value in found.value.items()}
