import re
import typing
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from kubernetes_asyncio.client import models

from kai.api.fields import name_on_the_wire
from kai.api.kinds import BY_CLASS, BY_NAME, DECLARED, KINDS, WRITTEN, Kind, title, title_of
from kai.api.kubernetes.meta import Condition, ObjectMeta
from kai.api.kubernetes.pod import ConfigMapRef, Pod, VolumeMount
from kai.api.scheduling.queue import Queue

# Our own kinds are not among the models of the client.
UPSTREAM = [
    kind for kind in KINDS if "kai" not in kind.group and "run.ai" not in kind.group and "node" not in kind.group
]
# One class of ours serves several of those of Kubernetes, which have not all of its fields.
WIDER = {Condition, ConfigMapRef}
NEWER = {(VolumeMount, "bindMountOptions")}
"""Fields that Kubernetes 1.37 brings, and that the models of the client do not have yet."""


def classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and attrs.has(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from classes_in(part)


def unknown_names(cls: type, model: type[Any], seen: set[tuple[type, type]]) -> Iterator[str]:
    """Name the fields of an api class that the client's model of the same object does not have."""
    if (cls, model) in seen:
        return
    seen.add((cls, model))
    attribute_of = {wire: name for name, wire in model.attribute_map.items()}
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in attrs.fields(cls):
        wire = name_on_the_wire(field)
        if wire not in attribute_of:
            if cls not in WIDER and (cls, wire) not in NEWER:
                yield f"{model.__name__}.{wire}"
            continue
        inner = re.findall(r"[A-Z]\w+", model.openapi_types[attribute_of[wire]])
        for part in classes_in(hints[field.name]):
            yield from unknown_names(part, getattr(models, inner[-1]), seen)


@pytest.mark.parametrize("kind", UPSTREAM, ids=lambda kind: kind.kind)
def test_every_field_of_a_kubernetes_kind_exists_in_kubernetes(kind: Kind) -> None:
    version = "v1beta2" if kind.group == "resource.k8s.io" else "v1"  # the client names the models of DRA v1 otherwise
    model = getattr(models, version.capitalize() + kind.kind)
    assert list(unknown_names(kind.cls, model, set())) == []


def test_no_two_kinds_share_a_name_or_a_class() -> None:
    # Other tests of the process may have made kinds of plugins known.
    assert len(BY_NAME.keys() - DECLARED.keys()) == sum(len(kind.api_versions) for kind in KINDS)
    assert len(BY_CLASS) - len(DECLARED) == len((*KINDS, *WRITTEN))


def test_a_kind_knows_where_it_is_served() -> None:
    pod, queue = BY_CLASS[Pod], BY_CLASS[Queue]
    assert (pod.group, pod.version, pod.plural) == ("", "v1", "pods")
    assert (queue.group, queue.version) == ("scheduling.run.ai", "v2")
    assert queue.plural == "queues"


def test_objects_are_called_by_kind_namespace_and_name() -> None:
    assert title(Pod(metadata=ObjectMeta(name="a", namespace="b"))) == "pod b/a"
    assert title(Queue(metadata=ObjectMeta(name="a"))) == "queue a"
    assert title_of("Pod", "b", "") == "pod b/"
    assert title_of("Pod", "", "") == "a pod without a name"
