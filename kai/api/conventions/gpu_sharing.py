"""How a pod asks for shared GPUs, the config maps that tell its container which it got, and the models of GPUs.

Three parties must agree on this without a shared object: admission injects references to config maps that do not exist
yet, the binder makes the config maps once the GPUs are known, and the controllers count the request. The module reads
annotations, labels and container names only, so it serves raw manifests and api objects alike.

A model is a short name, such as ``h100``: queues and reports name GPUs by it.

Source: the peer's `binder/common` and `common/resources`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from kai.api import names
from kai.api.values import BadValue
from kai.basics.parsing import floating, signed

# The keys of the config maps and the environment variables that read them.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
GPU_PORTION: Final = "GPU_PORTION"
NUM_OF_GPUS: Final = "RUNAI_NUM_OF_GPUS"
CUDA_MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
# The key that pods admitted by the peer's oldest releases read their devices from.
LEGACY_VISIBLE_DEVICES: Final = "RUNAI-VISIBLE-DEVICES"

MAP_SUFFIX: Final = "shared-gpu"
"""Suffix of the names that admission generates for config maps; the container's place follows it."""
MAP_DRAWN: Final = 7
"""How many random characters such a name has."""
_PLACE: Final = r"i?\d+"
_DRAWN_NAME: Final = re.compile(rf"-[a-z0-9]{{{MAP_DRAWN}}}-{MAP_SUFFIX}-{_PLACE}(-evar)?$")

Readers: TypeAlias = Sequence[tuple[str, Iterable[str]]]
"""Containers in order: the name of each, and the config maps whose keys its variables read."""

LEAST_SHARE: Final = 0.01
"""The smallest portion of a GPU: queues count GPUs in hundredths."""

WANTED_CONTAINER: Final = "the name of a container or init container of the pod"
WANTED_DEVICES: Final = "a whole number of devices"


@attrs.frozen
class ContainerPlace:
    """The position of a container in its pod."""

    index: int
    initial: bool = False

    def __str__(self) -> str:
        """Return the place as the suffix of config map names: ``0``, or ``i0`` for an init container."""
        return f"i{self.index}" if self.initial else str(self.index)


@attrs.frozen
class SharedMaps:
    """The names of the two config maps of a container that shares GPUs.

    `capabilities` is read key by key and mounted as a volume; every key of `environment` becomes a variable.
    """

    capabilities: str
    environment: str


def requests_fraction(annotations: Mapping[str, str]) -> bool:
    """Return whether the pod asks for a part of a GPU, whether or not its amount is valid."""
    return names.GPU_FRACTION in annotations or names.GPU_MEMORY in annotations


def is_share(text: str) -> bool:
    """Return whether a text is a portion of a GPU that can be given and counted."""
    portion = floating(text)
    return portion is not None and LEAST_SHARE <= portion <= 1


def sharing_container(annotations: Mapping[str, str], init_containers: Readers, containers: Readers) -> ContainerPlace:
    """Return the place of the container that gets the shared GPUs: the named one, else the first that reads the maps.

    Raises: BadValue if there is no such container.
    """
    places = [(ContainerPlace(at, initial=True), *each) for at, each in enumerate(init_containers)]
    places += [(ContainerPlace(at), *each) for at, each in enumerate(containers)]
    wanted = annotations.get(names.GPU_FRACTION_CONTAINER)
    for place, name, read in places:
        # A name that the user wrote is binding: no other container gets the GPUs instead.
        if name == wanted if wanted is not None else maps_read(annotations, read) is not None:
            return place
    if wanted is not None:
        raise BadValue(wanted, WANTED_CONTAINER, path=("metadata", "annotations", names.GPU_FRACTION_CONTAINER))
    if not containers:
        # Kubernetes refuses such a pod; a raw manifest may still be one.
        raise BadValue(0, "at least one container", path=("spec", "containers"))
    return ContainerPlace(0)


def maps_read(annotations: Mapping[str, str], read: Iterable[str]) -> SharedMaps | None:
    """Return the pod's maps that a container reads, by the names of all maps that it reads; None if it reads none.

    Map names keep the place that the container had at admission: another webhook may insert a container before it.
    """
    prefix = annotations.get(names.SHARED_GPU_CONFIG_MAP)
    if prefix is None:
        return None
    # Matched as a whole: the name of the map of variables begins alike and goes on with -evar.
    own = re.compile(f"{re.escape(prefix)}-{_PLACE}")
    found = next((name for name in read if own.fullmatch(name)), None)
    return None if found is None else _maps(found)


def shared_maps(annotations: Mapping[str, str], place: ContainerPlace, read: Iterable[str] = ()) -> SharedMaps | None:
    """Return the maps that a container reads, else those of its place; None if admission chose none."""
    prefix = annotations.get(names.SHARED_GPU_CONFIG_MAP)
    return None if prefix is None else maps_read(annotations, read) or _maps(f"{prefix}-{place}")


def _maps(capabilities: str) -> SharedMaps:
    return SharedMaps(capabilities=capabilities, environment=f"{capabilities}-evar")


def is_drawn(name: str) -> bool:
    """Return whether admission generated this config map name; no other config map has a name of that form."""
    return _DRAWN_NAME.search(name) is not None


def device_count(annotations: Mapping[str, str]) -> int:
    """Return on how many devices the pod wants its share; 0 for a pod that shares no GPU.

    Raises: BadValue if the annotation holds no integer.
    """
    text = annotations.get(names.GPU_FRACTION_DEVICES)
    if text is None:
        return 1 if requests_fraction(annotations) else 0
    count = signed(text)
    if count is None:
        raise BadValue(text, WANTED_DEVICES, path=("metadata", "annotations", names.GPU_FRACTION_DEVICES))
    return count


def gpu_groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPU groups that a pod belongs to, sorted, from both forms of the label.

    Source: the peer looks for the plain label first, and so finds no group of a pod on several devices, which never
    has that label.
    """
    return tuple(sorted({labels[key] for key in group_labels(labels)}))


def group_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of the labels that tie a pod to GPU groups, sorted."""
    return tuple(sorted(key for key in labels if key == names.GPU_GROUP or key.startswith(names.GPU_GROUP_PREFIX)))


def group_label(group: str, *, devices: int) -> tuple[str, str]:
    """Return the label, key and value, that ties a pod on ``devices`` GPUs to a GPU group."""
    # A label has one value, so a pod on several devices needs a key for each group.
    return (f"{names.GPU_GROUP_PREFIX}{group}" if devices > 1 else names.GPU_GROUP), group


OTHER_MODEL: Final = "other"
"""The model of GPUs without a name of a product."""
MIXED_MODEL: Final = "mixed"
"""The model of a node whose devices are of several models, if no label of the node names one."""
MODEL_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LONGEST_MODEL: Final = 63
_MODEL: Final = re.compile(MODEL_NAME)
_MAKERS: Final = frozenset({"nvidia", "amd", "intel", "tesla", "instinct", "radeon", "geforce", "quadro", "titan"})
"""Words of product names before the model."""
_SERIES: Final = frozenset({"rtx", "gtx", "pro"})
"""Words that are no model without the word after them."""
_PARTS: Final = frozenset({"mig", "shared"})
"""Words with which GPU feature discovery begins how a GPU is cut or shared."""


def gpu_model(labels: Mapping[str, str], products: Iterable[str] = (), *, has_gpus: bool = True) -> str:
    """Return the short name of the model of a node's GPUs; "" for a node without GPUs.

    ``labels`` of the node decide; without them, the ``products`` that drivers give its devices. A node has one model:
    `MIXED_MODEL` if the products differ, `OTHER_MODEL` if nothing names one.
    """
    named = labels.get(names.NODE_GPU_MODEL, "")
    # A label that is no name of a model is passed over: a typing error makes no model of its own.
    if named and is_model_name(named):
        return named
    if product := labels.get(names.NODE_GPU_PRODUCT, ""):
        return model_of(product)
    found = {model_of(each) for each in products}
    if len(found) > 1:
        return MIXED_MODEL
    return found.pop() if found else OTHER_MODEL if has_gpus else ""


def weighed_model(labels: Mapping[str, str]) -> str:
    """Return by what budgets weigh the GPUs of a node, and reports name them; "" where its ``labels`` do not say.

    It is the model that an administrator gave the node, else the product, which older weights match by its words.
    """
    named = labels.get(names.NODE_GPU_MODEL, "")
    return named if named and is_model_name(named) else labels.get(names.NODE_GPU_PRODUCT, "")


@lru_cache(maxsize=1024)
def model_of(product: str) -> str:
    """Return the short name of the model of a product name: ``NVIDIA-H100-80GB-HBM3`` is ``h100``.

    It is the first word after the maker's, with the next one after a word like RTX. So memory, form and connection of
    a GPU make no other model. A slice of a MIG device (``a100-mig-1g.5gb``) and a GPU that a device plugin shares in
    time (``a10g-shared``) are other models: such a node counts parts as GPUs, and whole ones have quotas of their own.
    """
    words = [word for word in re.split(r"[^a-z0-9.]+", product.lower()) if word]
    # Not at the first word: what precedes such a word is the product.
    whole = next((at for at, word in enumerate(words) if at and word in _PARTS), len(words))
    # A maker's word stays where it is the last one: then it is the name of the product itself, as in TITAN.
    rest = [word for at, word in enumerate(words[:whole]) if word not in _MAKERS or at + 1 == whole]
    count = 1
    # Such words say nothing alone: rtx-pro-6000 needs all three.
    while count < len(rest) and rest[count - 1] in _SERIES:
        count += 1
    named = "-".join([*rest[:count], *words[whole:]]).strip("-.")[:LONGEST_MODEL].rstrip("-.")
    return named or OTHER_MODEL


@lru_cache(maxsize=1 << 12)
def is_of_model(product: str, name: str) -> bool:
    """Return whether GPUs of a product are of the model that a name means.

    A name is the short one, `model_of`. Older ones count, too: the product, a pattern for it, or a word of it.
    """
    wanted, found = name.casefold(), product.casefold()
    # An empty name would otherwise mean GPUs whose product is not known.
    if not wanted:
        return False
    return wanted == model_of(product) or fnmatchcase(found, wanted) or wanted in found.split("-")


def is_model_name(text: str) -> bool:
    """Return whether ``text`` has the form of the short name of a model."""
    return len(text) <= LONGEST_MODEL and _MODEL.match(text) is not None
