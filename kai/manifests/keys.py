"""Labels and annotations, checked like fields: misspelt, unknown and misplaced keys, and what no node has.

An API server accepts any key, so a misspelt one has no effect and causes no message. Objects from an API server are
checked as well: it drops no key. The same holds for what pods ask of nodes: `check_nodes` finds the resources, labels
and names that no node of an input or a cluster has.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Self

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.runtime_limits import WANTED, Policy, is_runtime
from kai.api.fields import EMPTY
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.parsing import list_of, mapping_of, part_of, text_of
from kai.manifests.expansion import is_workload
from kai.manifests.findings import Document, Finding, Path
from kai.manifests.workloads.table import pod_templates

_LABELS, _ANNOTATIONS = "labels", "annotations"
_WORKLOAD, _POD, _QUEUE, _NAMESPACE, _GROUP = "workload", "pod", "queue", "namespace", "pod group"
_DOMAIN: Final = "kai.scheduler/"
_SIMULATION: Final = "simulation.kai.scheduler/"
_SHORTEST: Final = 9
"""Shorter keys, such as ``app`` and ``user``, resemble too many others."""
_MOST_EDITS: Final = 2
_PREFIXES: Final = ("kai", "kai-scheduler", "run.ai", "runai", "scheduling.run.ai", "kai.scheduler.io", "kai.sh")
"""Prefixes that users write by mistake for the domain of kai's keys."""


@attrs.frozen(kw_only=True)
class Key:
    """A key with an effect: as a label or as an annotation, on which objects, and with which values."""

    as_: str = _ANNOTATIONS
    on: frozenset[str] = frozenset({_WORKLOAD, _POD})
    values: tuple[str, ...] = ()
    """All valid values; empty if the value is not one of a few words."""
    is_duration: bool = False


def _keys() -> dict[str, Key]:
    label = Key(as_=_LABELS)
    on_pods = Key(on=frozenset({_POD}))
    on_queues, on_namespaces = (Key(on=frozenset({each})) for each in (_QUEUE, _NAMESPACE))
    return {
        names.QUEUE: label,
        names.NODE_POOL: Key(as_=_LABELS, on=frozenset({_WORKLOAD, _POD, _QUEUE, _GROUP})),
        names.PRIORITY_CLASS: label,
        names.PREEMPTIBILITY: Key(as_=_LABELS, values=(names.PREEMPTIBLE, names.NON_PREEMPTIBLE)),
        names.SUBGROUP: Key(as_=_LABELS, on=frozenset({_POD})),
        names.SKIP: Key(values=("true", "false")),
        **dict.fromkeys(
            (
                *(names.MIN_MEMBER, names.TOPOLOGY, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED),
                *(names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED, names.SEGMENT_TOPOLOGY_PREFERRED),
                *(names.PREEMPTION_DELAY, names.STALENESS_GRACE_PERIOD),
            ),
            Key(),
        ),
        **dict.fromkeys(
            (names.MAX_RUNTIME, names.EXPECTED_RUNTIME, names.REQUEUE_DELAY),
            Key(on=frozenset({_WORKLOAD, _POD, _GROUP}), is_duration=True),
        ),
        names.RUNTIME_POLICY: Key(on=frozenset({_WORKLOAD, _POD, _GROUP}), values=tuple(Policy)),
        **dict.fromkeys(
            (
                *(names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES, names.GPU_FRACTION_CONTAINER),
                names.MPS,
            ),
            on_pods,
        ),
        **dict.fromkeys((names.ALLOWED_NAMESPACES, names.ALLOWED_NAMESPACE_LABELS), on_queues),
        names.ALLOWED_PRIORITY_CLASSES: on_namespaces,
        names.ALLOWED_PREEMPTIBILITY: Key(on=frozenset({_NAMESPACE}), values=(names.PREEMPTIBLE,)),
    }


KEYS: Final[Mapping[str, Key]] = _keys()
"""Keys for users to write, by name."""
_WRITTEN: Final = frozenset(
    value for value in vars(names).values() if isinstance(value, str) and value.startswith(_DOMAIN)
)
"""Every key below ``kai.scheduler/`` that kai reads or writes."""
_OF_KUBERNETES: Final = (
    *("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/part-of"),
    *("app.kubernetes.io/component", "app.kubernetes.io/managed-by"),
    *(names.HOSTNAME, "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type"),
    *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
)
_WITH_MINIMUM: Final = frozenset({"Job", "JobSet", "CronJob"})
"""Kinds of workloads whose minimum comes from the annotation."""
_DOES_NOT_COUNT: Final = "it has no effect"


def check_keys(document: Document) -> Iterator[Finding]:
    """Yield findings for keys of an object, and of its pod templates, without the effect that was meant."""
    for holder, path, metadata in _holders(document):
        for part in (_LABELS, _ANNOTATIONS):
            for key, value in mapping_of(metadata, part).items():
                if isinstance(key, str):
                    yield from _check(document, holder, (*path, "metadata", part), key, value)


def _holders(document: Document) -> Iterator[tuple[str, Path, Mapping[str, Any]]]:
    """Yield the sort of each object with labels and annotations, its path, and its metadata."""
    manifest = document.manifest
    kind = str(manifest.get("kind"))
    own = {"Pod": _POD, "Queue": _QUEUE, "Namespace": _NAMESPACE, PodGroup.__name__: _GROUP}.get(kind, "")
    made = pod_templates(manifest) if kind != "Pod" else []
    if not own and (made or is_workload(manifest)):
        own = _WORKLOAD
    if own:
        yield own, (), mapping_of(manifest, "metadata")
    for path, template in made:
        yield _POD, path, mapping_of(template, "metadata")


def _check(document: Document, holder: str, path: Path, key: str, value: object) -> Iterator[Finding]:
    known = KEYS.get(key)
    if known is None:
        if key not in _WRITTEN and key not in _OF_KUBERNETES and not key.startswith(_SIMULATION):
            yield from _unknown(document, (*path, key), key)
        return
    part = path[-1]
    if holder == _GROUP and (part != known.as_ or holder not in known.on):
        return  # the pod grouper copies the keys of the workload
    if part != known.as_:
        message = f"{key} stands among {part}, and counts among {known.as_}"
        better = f"{known.as_}: {{{key}: {_quoted(value)}}}"
        yield document.finding("J021", message, (*path, key), at_key=True, hint=_DOES_NOT_COUNT, help=better)
    elif holder not in known.on:
        yield from _elsewhere(document, holder, (*path, key), key, known)
    elif key == names.MIN_MEMBER and holder == _WORKLOAD and document.manifest.get("kind") not in _WITH_MINIMUM:
        kind = document.manifest.get("kind")
        message = f"{key} does not count on a {kind}: its own fields say how many pods start together"
        yield document.finding("J031", message, (*path, key), at_key=True, hint=_DOES_NOT_COUNT)
    if part == known.as_ and known.values and value not in known.values:
        yield _other_value(document, (*path, key), key, value, known.values)
    if part == known.as_ and known.is_duration and not is_runtime(value, key):
        message = f"{key}: found {_quoted(value)}, expected {WANTED}: this value is ignored"
        yield document.finding("F007", message, (*path, key), found=str(value), expected=WANTED)


def _elsewhere(document: Document, holder: str, place: Path, key: str, known: Key) -> Iterator[Finding]:
    """Yield a finding for a key on a sort of object where it has no effect."""
    kind = document.manifest.get("kind")
    if known.on == {_POD} and holder == _WORKLOAD:
        hint, where = "move it into the metadata of the pod template", "its pods"
    else:
        hint, where = _DOES_NOT_COUNT, f"a {' or a '.join(sorted(known.on))}"
    subject = f"the {kind}" if holder != _POD or kind == "Pod" else "the pods"
    yield document.finding("J021", f"{key} stands on {subject}, not on {where}", place, at_key=True, hint=hint)


def _other_value(document: Document, place: Path, key: str, value: object, values: tuple[str, ...]) -> Finding:
    near = difflib.get_close_matches(str(value), values, n=1)
    wanted = " or ".join(values)
    return document.finding(
        "F007",
        f"{key}: found {_quoted(value)}, expected {wanted}: this value is ignored",
        place,
        found=str(value),
        expected=wanted,
        hint=f"is it {near[0]}?" if near else f"must be {wanted}",
        help=f"{key}: {_quoted(near[0])}" if near else "",
    )


def _unknown(document: Document, place: Path, key: str) -> Iterator[Finding]:
    """Yield a finding for a key that resembles a known one, or that has kai's domain and is not read by kai."""
    near = nearest_key(key)
    if near:
        yield document.finding(
            "F005",
            f"{key} is no key that counts",
            place,
            at_key=True,
            found=key,
            expected=near,
            hint=f"is it {near}?",
            help=f"{near}:",
        )
    elif key.startswith(_DOMAIN):
        yield document.finding("F006", f"kai reads no key {key}", place, at_key=True, found=key, hint=_DOES_NOT_COUNT)


@cache
def nearest_key(key: str) -> str:
    """Return the known key that was probably meant; "" if none is similar.

    Keys of kai are similar by two edits, by another prefix, and below their domain by similar names.
    """
    known = [*KEYS, *_OF_KUBERNETES]
    within = nearest(key, known)
    if within:
        return within
    prefix, slash, name = key.rpartition("/")
    bare = {each.rpartition("/")[2]: each for each in KEYS}
    # The prefix first: a name such as `queue` below the domain of another project is not meant for kai.
    is_of_kai = key.startswith(_DOMAIN) or prefix in _PREFIXES or edits(f"{prefix}/", _DOMAIN, 3) <= 3
    if not slash:  # a key without a prefix must match a whole name
        return bare.get(key, "") if len(key) >= _SHORTEST else ""
    if not is_of_kai:
        return ""
    if name in bare:
        return bare[name]
    found = difflib.get_close_matches(name, bare, n=1, cutoff=0.7)
    return bare[found[0]] if found else ""


def nearest(word: str, known: Collection[str]) -> str:
    """Return the known word with the fewest edits from ``word``, two at most; "" if there is none."""
    if len(word) < _SHORTEST:
        return ""
    found = sorted((edits(word, each, _MOST_EDITS), each) for each in known if len(each) >= _SHORTEST)
    return found[0][1] if found and 0 < found[0][0] <= _MOST_EDITS else ""


def edits(one: str, other: str, most: int) -> int:
    """Return the number of inserted, deleted, changed or swapped letters; ``most`` + 1 if there are more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        # Three rows are enough: a swap of two letters looks back two rows, everything else one.
        before, last, row = row, before, [at]
        for place, wanted in enumerate(other, 1):
            cost = min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != wanted))
            if last and place > 1 and letter == other[place - 2] and one[at - 2] == wanted:
                cost = min(cost, last[place - 2] + 1)
            row.append(cost)
    return min(row[-1], most + 1)


def _quoted(value: object) -> str:
    return f'"{value}"' if str(value) in {"true", "false"} or not isinstance(value, str) else value


@attrs.frozen(kw_only=True)
class Nodes:
    """The names, resources and labels of nodes; all empty without nodes."""

    named: frozenset[str] = frozenset()
    offered: frozenset[str] = frozenset()
    """Resources that some node offers."""
    labels: Mapping[str, frozenset[str]] = EMPTY
    """The values of each node label."""

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> Self:
        """Return the summary of nodes, given their names, resources and labels."""
        named: set[str] = set()
        offered: set[str] = set()
        labels: dict[str, set[str]] = {}
        for name, resources, own in nodes:
            named.add(name)
            offered |= set(resources)
            for key, value in own.items():
                labels.setdefault(key, set()).add(str(value))
        values = {key: frozenset(found) for key, found in labels.items()}
        return cls(named=frozenset(named), offered=frozenset(offered), labels=values)

    @classmethod
    def among(cls, objects: ClusterObjects) -> Self:
        """Return the summary of the nodes of a cluster."""
        return cls.of((each.metadata.name, each.status.allocatable, each.metadata.labels) for each in objects.nodes)

    @classmethod
    def written(cls, documents: Iterable[Document]) -> Self:
        """Return the summary of nodes in documents."""
        found = (document.manifest for document in documents if document.manifest.get("kind") == "Node")
        return cls.of(
            (
                text_of(each, "metadata", "name"),
                mapping_of(each, "status", "allocatable"),
                mapping_of(each, "metadata", "labels"),
            )
            for each in found
        )

    def beside(self, other: "Nodes") -> "Nodes":
        """Return the summary of these nodes and others."""
        keys = {*self.labels, *other.labels}
        return Nodes(
            named=self.named | other.named,
            offered=self.offered | other.offered,
            labels={key: self.labels.get(key, frozenset()) | other.labels.get(key, frozenset()) for key in keys},
        )


def check_nodes(documents: Iterable[Document], nodes: Nodes) -> Iterator[Finding]:
    """Yield findings for node properties that pods require and no node has; nothing if there are no nodes."""
    for document in documents if nodes.named else ():
        is_pod = document.manifest.get("kind") == "Pod"
        for path, template in [((), document.manifest)] if is_pod else pod_templates(document.manifest):
            yield from _resources(document, (*path, "spec"), mapping_of(template, "spec"), nodes)
            yield from _selector(document, (*path, "spec", "nodeSelector"), mapping_of(template, "spec"), nodes)
        name = part_of(document.manifest, "spec", "nodeName")
        if is_pod and isinstance(name, str) and name and name not in nodes.named:
            message = f"nodeName: found {name}, which is not among the nodes of the input"
            yield document.finding("J025", message, ("spec", "nodeName"), found=name, hint="the pod runs nowhere")


def _resources(document: Document, at: Path, spec: Mapping[str, Any], nodes: Nodes) -> Iterator[Finding]:
    """Yield findings for GPUs of a make that no node offers, and for near-misspellings of offered resources."""
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(list_of(spec, kind)):
            for part in ("limits", "requests"):
                for name in mapping_of(container, "resources", part):
                    place = (*at, kind, index, "resources", part, str(name))
                    if name not in nodes.offered:
                        yield from _not_offered(document, place, str(name), nodes)


def _not_offered(document: Document, place: Path, name: str, nodes: Nodes) -> Iterator[Finding]:
    there = [each for each in names.GPU_RESOURCES if each in nodes.offered]
    if name in names.GPU_RESOURCES:
        # The scheduler counts both makes alike, so it binds the pod wherever there are GPUs of the other make.
        if there and "limits" in place:
            message = f"no node offers {name}, and a node refuses a pod that asks for it"
            yield document.finding(
                "J020", message, place, at_key=True, found=name, hint=f"nodes offer {' and '.join(there)}"
            )
        return
    near = nearest(name, {*nodes.offered, *names.GPU_RESOURCES})
    if near:
        yield document.finding(
            "J032",
            f"no node offers {name}",
            place,
            at_key=True,
            found=name,
            expected=near,
            hint=f"is it {near}?",
            help=f"{near}:",
        )


def _selector(document: Document, at: Path, spec: Mapping[str, Any], nodes: Nodes) -> Iterator[Finding]:
    """Yield findings for labels of a node selector that no node has, if some node has nearly the same."""
    for key, value in mapping_of(spec, "nodeSelector").items():
        values = nodes.labels.get(key)
        if values is None:
            near = nearest(str(key), nodes.labels)
            better = f"{near}:" if near else ""
        else:
            # Only a near miss: a label that no node has yet may be one that an autoscaler brings.
            near = "" if value in values else nearest(str(value), values) or _other_case(str(value), values)
            better = f"{key}: {near}" if near else ""
        if near:
            yield document.finding(
                "J033",
                f"no node has the label {key}" + ("" if values is None else f"={value}"),
                (*at, str(key)),
                at_key=values is None,
                found=str(key if values is None else value),
                expected=near,
                hint=f"is it {near}?",
                help=better,
            )


def _other_case(value: str, values: Iterable[str]) -> str:
    """Return the value that differs only in capital letters, however short it is."""
    return next((each for each in sorted(values) if each.lower() == value.lower()), "")
