"""Grouping of pods without a cluster: the service's own rules, over an index of all objects, and cycles of owners.

Pods are grouped by the same rules as in the service. Groups of objects that were never applied get readable names.

Workloads that own each other in a circle are found, since none of them is at the top and so none would have pods.

Groups that a cluster has only in memory are derived from their pods (`groups_of_bare_pods`).

`Index` holds all objects of an input by kind, namespace and name, for pod grouping to read.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kinds import key_of
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, mappings_of, part_of
from kai.roles.podgrouper import (
    Absent,
    Get,
    Groupers,
    Kind,
    Many,
    Needs,
    Reader,
    Resource,
    Settings,
    Verb,
    Why,
    group_pod,
    load_groupers,
    unwritten,
)
from kai.roles.podgrouper.grouper import JOB, KARTA, POD_GROUP, PRIORITY_CLASS

Place = tuple[str, str]
"""A kind, and a namespace with a name."""


def circles(manifests: Iterable[Mapping[str, Any]], namespace: str) -> dict[Place, str]:
    """Return, for each object that is its own ancestor, the chain back to it; ``namespace`` is the default one."""
    owners = {_place(manifest, namespace): _owners(manifest, namespace) for manifest in manifests}
    found: dict[Place, str] = {}
    for place, above in owners.items():
        way = _way_back(place, owners) if above else ()
        if way:
            found[place] = " -> ".join(f"{kind} {name}" for kind, name in way)
    return found


def _way_back(place: Place, owners: Mapping[Place, tuple[Place, ...]]) -> tuple[Place, ...]:
    """Return the shortest chain from an object over its owners back to itself; empty if there is none."""
    seen: set[Place] = set()
    ways: list[tuple[Place, ...]] = [(place,)]
    for way in ways:  # the list grows during the walk
        for above in owners.get(way[-1], ()):
            if above == place:
                return (*way, above)
            if above not in seen:
                seen.add(above)
                ways.append((*way, above))
    return ()


def _owners(manifest: Mapping[str, Any], namespace: str) -> tuple[Place, ...]:
    metadata = mapping_of(manifest, "metadata")
    here = metadata.get("namespace") or namespace
    references = mappings_of(metadata, "ownerReferences")
    return tuple((str(each.get("kind")), f"{here}/{each.get('name')}") for each in references)


def _place(manifest: Mapping[str, Any], namespace: str) -> Place:
    metadata = mapping_of(manifest, "metadata")
    return str(manifest.get("kind")), f"{metadata.get('namespace') or namespace}/{metadata.get('name')}"


Manifest = dict[str, Any]


@attrs.define
class Index:
    """Objects that can be looked up; objects created during an expansion are added."""

    _objects: dict[tuple[Kind, str, str], Resource] = attrs.field(factory=dict)
    _kinds: dict[Kind, list[Manifest]] = attrs.field(factory=dict)
    remarks: list[str] = attrs.field(factory=list)
    """Notes of models about missing objects; the caller of a model removes them."""

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Add objects; invalid ones are skipped, since reading reports them."""
        for manifest in manifests:
            try:
                known = Resource.of(manifest)
            except InputError:
                continue
            self._objects[known.kind, known.namespace, known.name] = known
            self._kinds.setdefault(known.kind, []).append(manifest)

    def owners(self) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """Return kind, name and UID of the owners of each object with owners, by its UID; pods are left out."""
        found = {}
        for kind, manifests in self._kinds.items():
            for known in map(Resource.of, manifests if kind.kind != "Pod" else ()):
                if known.owner_references:
                    above = [(each.kind.kind, each.name, each.uid) for each in known.owner_references]
                    found[known.uid] = tuple(above)
        return found

    def get(self, read: Get, /) -> Manifest | Absent:
        """Return the object of this kind, namespace (or cluster-scoped) and name."""
        found = self.resource(read)
        return found if isinstance(found, Absent) else cast("Manifest", found.manifest)

    def resource(self, read: Get, /) -> Resource | Absent:
        """Return the same object with the metadata that was read as it was added."""
        # Groupers name the namespace of the pod for every kind, and objects of cluster-scoped kinds have none.
        for namespace in (read.namespace, ""):
            found = self._objects.get((read.kind, namespace, read.name))
            if found is not None:
                return found
        return Absent(Why.NOT_FOUND)

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        """Return the matching objects in the order in which they were added."""
        # As in a cluster without the definition of Karta: the grouper then keeps to its built-in rules.
        if read.kind == KARTA and read.kind not in self._kinds:
            return Absent(Why.NO_SUCH_KIND)
        return tuple(manifest for manifest in self._kinds.get(read.kind, ()) if _matches(Resource.of(manifest), read))


def _matches(known: Resource, read: Many) -> bool:
    in_namespace = not read.namespace or known.namespace == read.namespace
    return in_namespace and all(known.labels.get(key) == value for key, value in read.labels)


PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The priority classes that kai's installation includes."""


@attrs.define
class Grouping:
    """Groups pods one after the other and keeps the groups that are written."""

    index: Index
    settings: Settings
    fresh: AbstractSet[str]
    """UIDs of owners that no API server has seen; their groups get names without UIDs."""
    groups: dict[tuple[str, str], Manifest] = attrs.field(factory=dict)
    """New and changed groups, by namespace and name."""
    _groupers: Groupers = attrs.field(init=False)
    _lent: list[Manifest] = attrs.field(init=False)
    _last: tuple[Manifest, object] | None = attrs.field(init=False, default=None)
    """The last pod, and what grouping it changed, if its like are grouped the same way."""

    def __attrs_post_init__(self) -> None:
        """Load the groupers, and add the missing priority classes of an installation."""
        self._groupers = load_groupers()
        # Files seldom have the classes of the installation; without them groups would get another priority than in a
        # cluster.
        absent = [name for name in PRIORITY_CLASSES if isinstance(self.index.get(_class(name)), Absent)]
        self._lent = [_class_manifest(name) for name in absent]
        self.index.add(self._lent)

    def group(self, pod: Manifest) -> tuple[Manifest, str]:
        """Return the pod in its group; else the unchanged pod, and why it has none.

        A new group is as old as its first pod. A pod that is not to be grouped stays in the group that it names.
        """
        if self._last is not None and _are_alike(pod, self._last[0]):
            return _patched(pod, self._last[1]), ""
        self._last = None
        outcome = group_pod(pod, _Known(self.index), self.settings, self._groupers)
        if isinstance(outcome, Needs):
            return pod, f"{outcome.read} is not known"
        if outcome.failure or outcome.ignored:
            named = part_of(pod, "metadata", "annotations", names.POD_GROUP)
            return pod, outcome.failure or ("" if named else f"{outcome.ignored}, and the pod names no pod group")
        write = outcome.group
        if write is not None and write.verb is not Verb.NOTHING:
            written = dict(write.manifest)
            metadata = written["metadata"]
            born = part_of(pod, "metadata", "creationTimestamp")
            if isinstance(metadata, dict):
                if isinstance(born, str) and "creationTimestamp" not in metadata:
                    written["metadata"] = metadata = {**metadata, "creationTimestamp": born}
                self.groups[str(metadata.get("namespace", "")), str(metadata["name"])] = written
            self.index.add([written])
        if self._is_of_new_job(pod):
            self._last = pod, outcome.pod_patch
        return _patched(pod, outcome.pod_patch), ""

    def _is_of_new_job(self, pod: Manifest) -> bool:
        """Return whether the only owner of a pod is a Job that was never applied, and that has no owner itself.

        The grouper of Jobs looks at the name of a pod only for groups that an earlier release made for the pods of a
        Job; a Job that was never applied has none. Groupers of other kinds may look at names.
        """
        owners = mappings_of(pod, "metadata", "ownerReferences")
        if len(owners) != 1 or owners[0].get("uid") not in self.fresh:
            return False
        kind = Kind.of(str(owners[0].get("apiVersion")), str(owners[0].get("kind")))
        namespace, name = part_of(pod, "metadata", "namespace"), owners[0].get("name")
        job = self.index.resource(Get(JOB, str(namespace), str(name)))
        return kind == JOB and isinstance(job, Resource) and not job.owner_references

    def rule_of(self, kind: Kind) -> str:
        """Return how a cluster groups pods of a kind, in words, from the docstring of its grouper."""
        grouper = self._groupers.choose(kind, Reader(self.index), self.settings)
        text = " ".join(inspect.cleandoc(grouper.__doc__ or "").split("\n\n")[0].split())
        rule = text.partition(". ")[0].rstrip(".")
        return rule[:1].lower() + rule[1:]

    def made(self, pods: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
        """Return all groups and the priority classes that they need, and the pods, with readable names."""
        called: dict[tuple[str, str], str] = {}
        taken: set[tuple[str, str]] = set(self.groups)
        for key, group in self.groups.items():
            short = self._readable(key, group)
            called[key] = key[1] if (key[0], short) in taken else short
            taken.add((key[0], called[key]))
        groups = [_renamed(group, called[key]) for key, group in self.groups.items()]
        used = {group["spec"].get("priorityClassName") for group in groups}
        classes = [lent for lent in self._lent if lent["metadata"]["name"] in used]
        return [*groups, *classes], [_linked(pod, called) for pod in pods]

    def _readable(self, key: tuple[str, str], group: Manifest) -> str:
        """Return the name of a group without its owner's UID, unless another group has that name."""
        namespace, name = key
        owner = (group["metadata"].get("ownerReferences") or [{}])[0]
        start = f"pg-{owner.get('name')}-{owner.get('uid')}"
        if owner.get("uid") not in self.fresh or not name.startswith(start):
            return name
        short = f"{owner['name']}{name.removeprefix(start)}"
        return short if isinstance(self.index.get(Get(POD_GROUP, namespace, short)), Absent) else name


@attrs.frozen
class _Known:
    """What groupers read of an index: each pod asks for its owner and its group, which were read already."""

    index: Index

    def get(self, read: Get, /) -> Resource | Absent:
        return self.index.resource(read)

    def many(self, read: Many, /) -> tuple[Manifest, ...] | Absent:
        return self.index.many(read)


@attrs.frozen
class _Listed:
    """The objects of a cluster that the rule for a bare pod reads: priority classes, and groups that exist."""

    classes: Mapping[str, PriorityClass]
    groups: Mapping[tuple[str, str], PodGroup]

    def get(self, read: Get, /) -> Manifest | Absent:
        known: object = None
        if read.kind == PRIORITY_CLASS:
            known = self.classes.get(read.name)
        elif read.kind == POD_GROUP:
            known = self.groups.get((read.namespace, read.name))
        return Absent(Why.NOT_FOUND) if known is None else unstructure(known)

    def many(self, _: Many, /) -> tuple[Manifest, ...] | Absent:
        return Absent(Why.NO_SUCH_KIND)


def groups_of_bare_pods(
    pods: Iterable[Pod], classes: Iterable[PriorityClass], groups: Iterable[PodGroup], scheduler_name: str
) -> Iterator[tuple[Pod, PodGroup]]:
    """Yield the pods without an owner and their groups, as the pod grouper of a cluster has them only in memory.

    A pod that is not to be grouped, or is in a group already, is left out.
    """
    listed = _Listed({each.metadata.name: each for each in classes}, {key_of(each): each for each in groups})
    settings, groupers = Settings(scheduler_name=scheduler_name), load_groupers()
    for pod in pods:
        outcome = group_pod(unstructure(pod), listed, settings, groupers)
        if isinstance(outcome, Needs) or outcome.group is None or outcome.group.verb is not Verb.CREATE:
            continue
        try:
            yield pod, unwritten(pod, outcome.group)
        except InputError:
            continue  # the pod stays without a group, as in a cluster


def _class(name: str) -> Get:
    return Get(PRIORITY_CLASS, "", name)


def _class_manifest(name: str) -> Manifest:
    head = {"apiVersion": PRIORITY_CLASS.api_version, "kind": PRIORITY_CLASS.kind}
    return {**head, "metadata": {"name": name}, "value": PRIORITY_CLASSES[name]}


def _are_alike(pod: Manifest, other: Manifest) -> bool:
    """Return whether two pods differ in nothing but name and UID."""

    def rest(manifest: Manifest) -> tuple[Manifest, Manifest]:
        metadata = mapping_of(manifest, "metadata").items()
        parts = {key: part for key, part in manifest.items() if key != "metadata"}
        return {key: value for key, value in metadata if key not in {"name", "uid"}}, parts

    return rest(pod) == rest(other)


def _patched(pod: Manifest, patch: object) -> Manifest:
    """Return a pod with the labels and annotations of a merge patch."""
    if not isinstance(patch, dict):
        return pod
    metadata = dict(mapping_of(pod, "metadata"))
    for key, more in mapping_of(patch, "metadata").items():
        metadata[key] = {**mapping_of(metadata, key), **more}
    return {**pod, "metadata": metadata}


def _renamed(group: Manifest, name: str) -> Manifest:
    return {**group, "metadata": {**group["metadata"], "name": name}}


def _linked(pod: Manifest, called: dict[tuple[str, str], str]) -> Manifest:
    metadata = mapping_of(pod, "metadata")
    annotations = mapping_of(metadata, "annotations")
    name = called.get((str(metadata.get("namespace", "")), str(annotations.get(names.POD_GROUP, ""))))
    if name is None:
        return pod
    return {**pod, "metadata": {**metadata, "annotations": {**annotations, names.POD_GROUP: name}}}
