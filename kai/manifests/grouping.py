"""Pods into groups, by the very rules of the service; groups of what was never applied get readable names."""

import inspect
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import attrs

from kai.api import names
from kai.lenient import mapping_of, part_of
from kai.manifests.index import Index, Manifest
from kai.podgrouper import Absent, Get, Groupers, Kind, Needs, Reader, Settings, Verb, group_pod, load_groupers
from kai.podgrouper.kinds import POD_GROUP, PRIORITY_CLASS

PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The priority classes that an installation brings along."""


@attrs.define
class Grouping:
    """Groups pods one after the other and keeps what is written on the way."""

    index: Index
    settings: Settings
    fresh: AbstractSet[str]
    """UIDs of owners that no API server has seen; their groups get names without them."""
    groups: dict[tuple[str, str], Manifest] = attrs.field(factory=dict)
    """The groups that were made or changed, by namespace and name."""
    _groupers: Groupers = attrs.field(init=False)
    _lent: list[Manifest] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Load the groupers, and lend the priority classes that an installation has."""
        self._groupers = load_groupers()
        absent = [name for name in PRIORITY_CLASSES if isinstance(self.index.get(_class(name)), Absent)]
        self._lent = [_class_manifest(name) for name in absent]
        self.index.add(self._lent)

    def group(self, pod: Manifest) -> tuple[Manifest, str]:
        """Return the pod in its group; else the pod as it is, and why it has none.

        A group that is made is as old as its first pod. A pod that is left alone stays in the group that it names.
        """
        outcome = group_pod(pod, self.index, self.settings, self._groupers)
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
        return _patched(pod, outcome.pod_patch), ""

    def rule_of(self, kind: Kind) -> str:
        """Return in words what the pods of a kind are grouped as in a cluster, from the docstring of its grouper."""
        grouper = self._groupers.choose(kind, Reader(self.index), self.settings)
        text = " ".join(inspect.cleandoc(grouper.__doc__ or "").split("\n\n")[0].split())
        rule = text.partition(". ")[0].rstrip(".")
        return rule[:1].lower() + rule[1:]

    def made(self, pods: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
        """Return all groups and the priority classes that they need, and the pods, under readable names."""
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
        """Return the name of a group without the UID of its owner, unless another group has that name."""
        namespace, name = key
        owner = (group["metadata"].get("ownerReferences") or [{}])[0]
        start = f"pg-{owner.get('name')}-{owner.get('uid')}"
        if owner.get("uid") not in self.fresh or not name.startswith(start):
            return name
        short = f"{owner['name']}{name.removeprefix(start)}"
        return short if isinstance(self.index.get(Get(POD_GROUP, namespace, short)), Absent) else name


def _class(name: str) -> Get:
    return Get(PRIORITY_CLASS, "", name)


def _class_manifest(name: str) -> Manifest:
    head = {"apiVersion": PRIORITY_CLASS.api_version, "kind": PRIORITY_CLASS.kind}
    return {**head, "metadata": {"name": name}, "value": PRIORITY_CLASSES[name]}


def _patched(pod: Manifest, patch: object) -> Manifest:
    """Return a pod with labels and annotations of a merge patch."""
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
