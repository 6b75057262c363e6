"""The cluster file: nodes by shapes, queues and topologies in their short form, and node events over time.

    shapes:
      h100x8: {gpu: 8, memory: 80Gi, count: 12, names: gpu-01..gpu-12, labels: {rack: a}}
    queues: {lab: {quota: 100}, training: {parent: lab, quota: 80}}
    topologies: {racks: [rack, kubernetes.io/hostname]}
    events:
      - {at: 3h, node: gpu-04, fail: 40m}
      - {at: 4h, node: gpu-05, drain: 1h}
      - {at: 5h, node: gpu-06, taint: "maintenance=disk:NoSchedule", for: 2h}
      - {at: 6h, add: h100x8, count: 2}
    mtbf: 30d
    repair: 2h
    autoscale:
      - {shape: h100x8, min: 0, max: 4, provision: 5m, idle: 10m}

Queues and topologies have the syntax of scenarios (``kai.lab.scenarios.shorthand``). Further documents, after a
line with ``---``, are manifests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api import values as quantity
from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node, Taint
from kai.api.scheduling.queue import Queue
from kai.api.values import BadValue
from kai.basics import parsing
from kai.basics.errors import InputError
from kai.basics.parsing import is_whole, part_of
from kai.basics.trees import ancestry, is_below_itself
from kai.basics.wording import as_text, shown
from kai.lab.scenarios.shorthand import expand
from kai.lab.scenarios.validation import spread
from kai.lab.virtual.scenes.scene import Autoscale, Change, Faults, NodeEvent
from kai.manifests import Document, RefusedError, documents_of, open_text

if TYPE_CHECKING:
    from kai.manifests.findings import Path

KEYS: Final = ("shapes", "queues", "topologies", "events", "mtbf", "repair", "autoscale")
SHAPE_KEYS: Final = ("gpu", "memory", "cpu", "ram", "count", "names", "labels", "taints", "resources")
EVENT_KEYS: Final = ("at", "node", "nodes", "fail", "drain", "taint", "for", "add", "count")
_KEYS_OF: Final = {Change.ADD: ("count",), Change.TAINT: ("node", "nodes", "for")}
"""Keys of an event beside its time and its change, where they differ from the default."""
SCALE_KEYS: Final = ("shape", "min", "max", "provision", "idle")
DEFAULT_CPU: Final = 128
DEFAULT_RAM: Final = "1024Gi"
_MOST: Final = 100_000
_MIB: Final = 1 << 20
_QUEUE_FIELDS: Final = {
    "parentQueue": "parent",
    "overQuotaWeight": "weight",
    "preemptMinRuntime": "preempt_min_runtime",
    "reclaimMinRuntime": "reclaim_min_runtime",
}
"""Fields of a queue, and their names in the short form."""
_PLACE: Final = re.compile(r"[^:]+: ([\w./-]+): (.*)", re.DOTALL)


@attrs.frozen(kw_only=True)
class ClusterFile:
    """The content of a cluster file."""

    documents: tuple[Document, ...]
    """Manifests of nodes, queues and topologies."""
    events: tuple[NodeEvent, ...] = ()
    faults: tuple[Faults, ...] = ()
    autoscale: tuple[Autoscale, ...] = ()


class WrongError(Exception):
    """An invalid value, with its path in the file."""

    def __init__(self, path: Path, message: str, wanted: str, *, code: str = "K001") -> None:
        super().__init__(message)
        self.path, self.wanted, self.code = path, wanted, code


def read_cluster_file(text: bytes, name: str, queues: Collection[str] = ()) -> ClusterFile:
    """Return the content of a cluster file; ``queues`` are defined elsewhere, and may be parents of its own.

    Raises: RefusedError with the place of the mistake, InputError for an empty file.
    """
    source, values = open_text(text, name)
    if not values:
        raise InputError(f"{name}: found nothing, expected a cluster file: {', '.join(KEYS)}")
    own = [at for at, value in enumerate(values) if isinstance(value, Mapping) and "apiVersion" not in value]
    rest = documents_of(source, [value for at, value in enumerate(values) if at not in own])
    if not own:
        return ClusterFile(documents=tuple(rest))
    if len(own) > 1:
        more = Document(values[own[1]], source, own[1])
        raise RefusedError([more.finding("K001", "found a second cluster file", (), hint="one of them, or manifests")])
    document = Document(values[own[0]], source, own[0])
    try:
        return _Reading(document).read(rest, queues)
    except WrongError as wrong:
        at_key = wrong.code == "K002"
        written = source.written_key(own[0], wrong.path) if at_key else ""
        said = f"{wrong}, which the file has as {written}" if written else str(wrong)
        finding = document.finding(wrong.code, said, wrong.path, at_key=at_key, hint=wrong.wanted)
        raise RefusedError([finding]) from None


class _Reading:
    """A parser of one file."""

    def __init__(self, document: Document) -> None:
        self._document, self._manifest = document, document.manifest
        _refuse_others(self._manifest, KEYS, ())
        shapes = _mapping(self._manifest, "shapes", ())
        self._shapes = {name: _mapping(shapes, name, ("shapes",)) for name in shapes}
        self._made: dict[str, list[str]] = {}
        """The names of the nodes of each shape."""

    def read(self, rest: Sequence[Document], queues: Collection[str]) -> ClusterFile:
        """Return the whole content; ``rest`` are manifests of the same file, ``queues`` are defined elsewhere."""
        nodes = [manifest for name in self._shapes for manifest in self._nodes_of(name)]
        short = self._short()
        for manifest in short:
            self._check_queue(manifest)
        self._check_tree(rest, queues)
        made = [*nodes, *short]
        here = self._document
        documents = tuple(Document(manifest, here.text, here.number, here.path) for manifest in made)
        return ClusterFile(
            documents=(*documents, *rest), events=self._events(rest), faults=self._faults(), autoscale=self._autoscale()
        )

    def _short(self) -> list[dict[str, Any]]:
        """Return queues and topologies, which have the same syntax in scenarios."""
        cluster = {"topologies": self._manifest.get("topologies") or {}}
        short = {"cluster": cluster, "queues": self._manifest.get("queues") or {}}
        try:
            return expand(short, "file")
        except InputError as error:
            match = _PLACE.fullmatch(str(error))
            if match is None:
                raise
            steps = tuple(match[1].removeprefix("cluster.").split("."))
            code = "K002" if match[2].startswith("found key") else "K001"
            raise WrongError(steps, f"{steps[-1]}: {match[2]}", "", code=code) from None

    def _check_queue(self, manifest: Mapping[str, Any]) -> None:
        """Refuse invalid values of a queue, by the names of the short form."""
        if manifest["kind"] != Queue.__name__:
            return
        name = str(manifest["metadata"]["name"])
        try:
            structure_as(Queue, manifest)
        except BadValue as bad:
            field = str(bad.path[-1]) if bad.path else ""
            key = _QUEUE_FIELDS.get(field, field)
            path: Path = ("queues", name, key)
            if isinstance(self._manifest["queues"][name].get(key), Mapping):
                path = (*path, bad.path[-2])  # the resource
            raise WrongError(path, f"{name}: {key}: found {bad.found}", bad.wanted) from None

    def _check_tree(self, rest: Sequence[Document], elsewhere: Collection[str]) -> None:
        """Refuse queues without a root: nothing would ever start in them."""
        own = _mapping(self._manifest, "queues", ())
        parents = {
            str(part_of(each.manifest, "metadata", "name")): part_of(each.manifest, "spec", "parentQueue")
            for each in rest
            if each.manifest.get("kind") == Queue.__name__
        }
        parents |= {name: part_of(values, "parent") for name, values in own.items()}
        for name in own:
            path: Path = ("queues", name, "parent")
            parent = parents[name]
            if parent and parent not in parents and parent not in elsewhere:
                known = sorted({*parents, *elsewhere} - {name})
                wanted = f"one of {', '.join(known)}" if known else "no parent: this is the only queue"
                raise WrongError(path, f"there is no queue {shown(parent)}, the parent of {name}", wanted)
            if is_below_itself(name, parents):
                circle = " -> ".join(ancestry(name, parents))
                raise WrongError(path, f"parents lead in a circle: {circle}", "a queue without a parent at the top")

    # --- Nodes -----------------------------------------------------------------------------------------------------

    def _nodes_of(self, shape: str) -> list[dict[str, Any]]:
        path: Path = ("shapes", shape)
        values = self._shapes[shape]
        _refuse_others(values, SHAPE_KEYS, path)
        if "names" in values:
            called = [each for part in str(values["names"]).split(",") for each in _spread(part.strip(), path)]
            if values.get("count", len(called)) != len(called):
                raise WrongError(
                    (*path, "count"), f"count is {shown(values['count'])}", f"names are {len(called)} nodes"
                )
        else:
            called = [f"{shape}-{number}" for number in range(1, _whole(values, "count", path, default=1) + 1)]
        self._made[shape] = called
        return [self.node(shape, name) for name in called]

    def node(self, shape: str, name: str) -> dict[str, Any]:
        """Return a node of a shape as a manifest."""
        path: Path = ("shapes", shape)
        values = self._shapes[shape]
        gpus = _whole(values, "gpu", path, default=0)
        labels = {"kubernetes.io/hostname": name} | ({names.NODE_GPU_COUNT: str(gpus)} if gpus else {})
        if "memory" in values:
            # In MiB, as NVIDIA's feature discovery labels nodes.
            labels[names.NODE_GPU_MEMORY] = str(_amount(values["memory"], (*path, "memory")) // _MIB)
        labels |= {key: as_text(value) for key, value in _mapping(values, "labels", path).items()}
        amounts = {"cpu": str(values.get("cpu", DEFAULT_CPU)), "memory": str(values.get("ram", DEFAULT_RAM))}
        for key, written in (("cpu", "cpu"), ("memory", "ram")):
            _amount(amounts[key], (*path, written))
        # The kubelet's default for the pods of a node.
        amounts |= {"pods": "110"} | ({names.NVIDIA_GPU: str(gpus)} if gpus else {})
        amounts |= {key: str(value) for key, value in _mapping(values, "resources", path).items()}
        taints = [_taint(text, (*path, "taints", at)) for at, text in enumerate(_list(values, "taints", path))]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            # A random uid would differ from run to run.
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    # --- Events ----------------------------------------------------------------------------------------------------

    def _events(self, rest: Sequence[Document]) -> tuple[NodeEvent, ...]:
        known = {name for called in self._made.values() for name in called}
        nodes = [each.manifest for each in rest if each.manifest.get("kind") == Node.__name__]
        known |= {str(part_of(each, "metadata", "name")) for each in nodes}
        return tuple(self._event(at, known) for at in range(len(_list(self._manifest, "events", ()))))

    def _event(self, number: int, known: set[str]) -> NodeEvent:
        path: Path = ("events", number)
        values = self._manifest["events"][number]
        if not isinstance(values, Mapping):
            raise WrongError(path, f"found {shown(values)}", "a mapping such as {at: 3h, node: gpu-04, fail: 40m}")
        _refuse_others(values, EVENT_KEYS, path)
        at = _seconds(values.get("at"), (*path, "at"))
        changes = [key for key in ("fail", "drain", "taint", "add") if key in values]
        if len(changes) != 1:
            raise WrongError(
                path, f"found {' and '.join(changes) or 'nothing that happens'}", "fail, drain, taint or add"
            )
        change = Change(changes[0])
        self._refuse_aside(values, change, path)
        if change is Change.ADD:
            return NodeEvent(at=at, change=change, added=self._added(values, path, number))
        called = [*_list(values, "nodes", path), *([values["node"]] if "node" in values else [])]
        named = tuple(name for each in called for name in _spread(str(each), path))
        if not named:
            raise WrongError(path, "found no node", "node or nodes: the names of nodes")
        for name in named:
            # A file without nodes may name those of the workload, which are checked when the scene is put together.
            if known and name not in known:
                raise WrongError((*path, "node"), f"there is no node {shown(name)}", "the name of a node of this file")
        if change is Change.TAINT:
            taint = structure_as(Taint, _taint(values["taint"], (*path, "taint")))
            lasts = _seconds(values["for"], (*path, "for")) if "for" in values else None
            return NodeEvent(at=at, change=change, nodes=named, taint=taint, seconds=lasts)
        lasts = None if values[changes[0]] is True else _seconds(values[changes[0]], (*path, changes[0]))
        return NodeEvent(at=at, change=change, nodes=named, seconds=lasts)

    @staticmethod
    def _refuse_aside(values: Mapping[str, Any], change: Change, path: Path) -> None:
        """Refuse keys of another change, which would have no effect."""
        own = {"at", change.value, *_KEYS_OF.get(change, ("node", "nodes"))}
        for key in values:
            if key not in own:
                said = f"{key} says nothing beside {change.value}"
                raise WrongError((*path, key), said, f"keys: {', '.join(each for each in EVENT_KEYS if each in own)}")

    def _added(self, values: Mapping[str, Any], path: Path, number: int) -> tuple[Node, ...]:
        shape = self._shape(values.get("add"), (*path, "add"))
        count = _whole(values, "count", path, default=1)
        return tuple(
            structure_as(Node, self.node(shape, f"{shape}-added-{number + 1}-{each}")) for each in range(1, count + 1)
        )

    def _faults(self) -> tuple[Faults, ...]:
        if "mtbf" not in self._manifest:
            return ()
        mean = _seconds(self._manifest["mtbf"], ("mtbf",))
        repair = _seconds(self._manifest.get("repair", "2h"), ("repair",))
        called = tuple(name for nodes in self._made.values() for name in nodes)
        return (Faults(nodes=called, mean_between=mean, repair=repair),) if mean > 0 else ()

    def _autoscale(self) -> tuple[Autoscale, ...]:
        return tuple(self._pool(at, values) for at, values in enumerate(_list(self._manifest, "autoscale", ())))

    def _pool(self, number: int, values: object) -> Autoscale:
        path: Path = ("autoscale", number)
        if not isinstance(values, Mapping):
            raise WrongError(path, f"found {shown(values)}", "a mapping such as {shape: h100x8, min: 0, max: 4}")
        _refuse_others(values, SCALE_KEYS, path)
        shape = self._shape(values.get("shape"), (*path, "shape"))
        gpus = _whole(self._shapes[shape], "gpu", ("shapes", shape), default=0)
        if not gpus:  # the number of nodes follows from the GPUs that waiting pods request
            raise WrongError((*path, "shape"), f"nodes of shape {shape} have no GPU", "a shape with GPUs")
        least = _whole(values, "min", path, default=0)
        most = _whole(values, "max", path, default=max(1, least))
        if most < least:
            raise WrongError((*path, "max"), f"max is {most}", f"at least min, which is {least}")
        idle = _seconds(values.get("idle", "10m"), (*path, "idle"))
        if not idle:  # a node would be removed as soon as it is added
            raise WrongError((*path, "idle"), f"idle is {shown(values['idle'])}", "more than 0")
        make: Callable[[int], Node] = partial(self._scaled, shape)
        provision = _seconds(values.get("provision", "5m"), (*path, "provision"))
        return Autoscale(
            name=shape, make=make, least=least, most=most, provision=provision, idle=idle, gpus=float(gpus)
        )

    def _scaled(self, shape: str, number: int) -> Node:
        return structure_as(Node, self.node(shape, f"{shape}-scaled-{number + 1}"))

    def _shape(self, name: object, path: Path) -> str:
        if not isinstance(name, str) or name not in self._shapes:
            raise WrongError(path, f"there is no shape {shown(name)}", f"one of {', '.join(self._shapes) or 'none'}")
        return name


# --- Values --------------------------------------------------------------------------------------------------------


def _refuse_others(values: Mapping[Any, Any], keys: Sequence[str], path: Path) -> None:
    for key in values:
        if key not in keys:
            named = key if isinstance(key, str) else shown(key)
            raise WrongError((*path, str(key)), f"there is no key {named}", f"keys: {', '.join(keys)}", code="K002")


def _mapping(values: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    found = values.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise WrongError((*path, key), f"{key} is {shown(found)}", "a mapping")
    return found


def _list(values: Mapping[str, Any], key: str, path: Path) -> Sequence[Any]:
    found = values.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise WrongError((*path, key), f"{key} is {shown(found)}", "a list")
    return found


def _whole(values: Mapping[str, Any], key: str, path: Path, *, default: int) -> int:
    found = values.get(key, default)
    if is_whole(found) and 0 <= found <= _MOST:
        return found
    raise WrongError((*path, key), f"{key} is {shown(found)}", f"a whole number from 0 to {_MOST}")


def _seconds(found: object, path: Path) -> float:
    try:
        seconds = parsing.seconds(str(found))
    except parsing.DurationError:
        seconds = -1.0
    if seconds < 0:
        raise WrongError(path, f"{path[-1]} is {shown(found)}", parsing.DURATION_WANTED)
    return seconds


def _amount(found: object, path: Path) -> int:
    try:
        amount, wanted = quantity.amount(str(found), 1), "a quantity that is not negative"
    except BadValue as bad:
        amount, wanted = -1, bad.wanted
    if amount < 0:
        raise WrongError(path, f"{path[-1]} is {shown(found)}", wanted)
    return amount


def _taint(text: object, path: Path) -> dict[str, Any]:
    """Return the taint that ``key=value:Effect`` stands for."""
    head, _, effect = str(text).partition(":")
    key, _, value = head.partition("=")
    if effect not in {"", "NoSchedule", "PreferNoSchedule", "NoExecute"} or not key:
        raise WrongError(path, f"taint is {shown(text)}", 'a taint such as "maintenance=disk:NoSchedule"')
    return {"key": key, "value": value, "effect": effect or "NoSchedule"}


def _spread(text: str, path: Path) -> list[str]:
    try:
        return list(spread(text, str(path[-1])))
    except InputError as error:
        raise WrongError(path, str(error), "a range such as gpu-01..gpu-12") from None
