"""Objects of an input that are not used, counted by kind, with the reason: they are reported, not dropped silently.

So are priority classes that workloads name and that do not exist: each is ignored, and the job gets another one.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.kinds import KINDS
from kai.basics.parsing import mapping_of, part_of
from kai.manifests.findings import Document, Finding, Path
from kai.manifests.grouping import PRIORITY_CLASSES

NOT_READ: Final = "scheduling does not read this kind"
NOT_EXPANDED: Final = "kai does not expand this kind"
"""Prefix of the reason for a kind whose pods kai does not make."""
NO_PODS: Final = "suspended, finished or scaled to 0, so it has no pods now"
NO_NODE: Final = "no node of the input is for it"
NO_GROUP: Final = "the pod group that its annotation names is not there"
CONFIGURES: Final = "it configures the scheduler; give it with --config"
OF_THE_SYSTEM: Final = ("system-cluster-critical", "system-node-critical")
"""Classes that exist in each cluster."""
_NEAR: Final = 0.8


@attrs.frozen(kw_only=True)
class Unused:
    """Objects of one kind that the decision did not use."""

    kind: str
    reason: str
    count: int = 1
    group: str = ""
    """The API group, if the kind alone could be confused with another that kai reads; else ""."""
    names: tuple[str, ...] = attrs.field(default=(), eq=False, repr=False)
    """``namespace/name`` of each of them."""

    @property
    def title(self) -> str:
        """The kind, with its API group if needed."""
        return kind_title(self.group, self.kind)

    def __str__(self) -> str:
        """Return count, kind and reason."""
        return f"not used: {self.count} {self.title} ({self.reason})"


def kind_title(group: str, kind: str) -> str:
    """Return a kind with its API group."""
    return f"{kind} of {group}" if group else kind


def counted(unused: Iterable[Unused]) -> tuple[Unused, ...]:
    """Return one entry for each kind and reason, by reason, kind and API group."""
    counts: dict[tuple[str, str, str], int] = {}
    names_of: dict[tuple[str, str, str], list[str]] = {}
    for each in unused:
        key = (each.reason, each.kind, each.group)
        counts[key] = counts.get(key, 0) + each.count
        names_of.setdefault(key, []).extend(each.names)
    return tuple(
        Unused(kind=kind, reason=reason, count=count, group=group, names=tuple(names_of[reason, kind, group]))
        for (reason, kind, group), count in sorted(counts.items())
    )


def why_not_read(api_version: str, kind: str) -> str:
    """Return why objects of a kind that kai does not read, or not under this version, are not used."""
    versions = known_versions(api_version, kind)
    return f"found apiVersion {api_version}, expected {' or '.join(versions)}" if versions else NOT_READ


def known_versions(api_version: str, kind: str) -> list[str]:
    """Return the versions in which kai reads a kind of this group; empty for other kinds."""
    versions = [version for known in KINDS if known.kind == kind for version in known.api_versions]
    return versions if _group(api_version) in {_group(version) for version in versions} else []


def managed_by(manager: str) -> str:
    """Return the message that ``manager``, and not the controller of its kind, manages a workload."""
    return f"managed by {manager}, so the controller of its kind makes no pods"


def for_scheduler(name: str, ours: str = names.SCHEDULER_NAME) -> str:
    """Return why pods of another scheduler than ``ours`` are not used."""
    return f"its pods are for scheduler {name or 'default-scheduler'}, not for {ours}"


def pods_in(manifest: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    """Return a Pod itself, or the pod templates inside an object of another kind, with their paths."""
    if manifest.get("kind") == "Pod":
        return [((), manifest)]
    return [(path, template) for path, template in templates(manifest) if PATCHES.isdisjoint(path)]


PATCHES: Final = frozenset(
    (
        *("runtimePatches", "podTemplateOverrides", "podSpecPatch", "patch", "templatePatch"),
        *("leaderTemplatePatch", "workerTemplatePatch", "patchLeaderTemplate", "patchWorkerTemplate"),
    )
)
"""Fields whose value patches a template in another place: fields that it lacks come from there."""


def templates(
    value: object, path: tuple[str | int, ...] = ()
) -> list[tuple[tuple[str | int, ...], Mapping[str, object]]]:
    """Return the pod templates inside an object of any kind with their paths: all values with containers."""
    found: list[tuple[tuple[str | int, ...], Mapping[str, object]]] = []
    if type(value) is dict or isinstance(value, Mapping):
        spec = value.get("spec")
        # Not by the field's name: operators embed pods under many names, and all have containers.
        if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list | Mapping):
            return [(path, value)]
        for key, inner in value.items():
            # Text first: most values are, and asking an abstract class takes ten times as long.
            if not isinstance(inner, str) and isinstance(inner, Mapping | list):
                found += templates(inner, (*path, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if not isinstance(inner, str) and isinstance(inner, Mapping | list):
                found += templates(inner, (*path, index))
    return found


def names_scheduler(value: object, name: str) -> bool:
    """Return whether an object of any kind assigns its pods to a scheduler, in a field at any depth."""
    if isinstance(value, Mapping):
        return value.get("schedulerName") == name or any(names_scheduler(each, name) for each in value.values())
    return isinstance(value, list) and any(names_scheduler(each, name) for each in value)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def classes_of(documents: Collection[Document]) -> frozenset[str]:
    """Return the names of the priority classes of an input."""
    classes = [each.manifest for each in documents if each.manifest.get("kind") == "PriorityClass"]
    names_of = [part_of(each, "metadata", "name") for each in classes]
    return frozenset(str(name) for name in names_of if name)


def check_priorities(documents: Collection[Document], classes: Collection[str]) -> Iterator[Finding]:
    """Yield findings for priority classes that are named, but are neither in ``classes`` nor installed by kai.

    Without ``classes`` the cluster's classes are not known: then only near-misspellings of known classes are reported.
    """
    known = {*classes, *PRIORITY_CLASSES, *OF_THE_SYSTEM}
    for document in documents:
        for path, name in _named(document.manifest):
            near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
            if name in known or not (classes or near):
                continue
            # An API server looks up the class in the spec of a pod, and refuses the pod if there is none. The label is
            # read by kai alone.
            is_of_pod = path[-2:] == ("spec", names.PRIORITY_CLASS) and document.manifest.get("kind") != "PodGroup"
            then = "an API server refuses the pods" if is_of_pod else "it is ignored, and the job gets another one"
            yield document.finding(
                "J030" if is_of_pod else "J029",
                f"priority class {name} {'does not exist' if classes else 'is none that kai installs'}: {then}",
                path,
                hint=f"is it {near[0]}?" if near else "",
                help=f"{names.PRIORITY_CLASS}: {near[0]}" if near else "",
                found=name,
                expected=near[0] if near else "",
            )


def _named(manifest: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the priority classes that an object names for itself or for its pods, with their paths."""
    places: list[tuple[Path, Any]] = []
    if manifest.get("kind") == "PodGroup":
        places.append((("spec", names.PRIORITY_CLASS), part_of(manifest, "spec", names.PRIORITY_CLASS)))
    made = [] if manifest.get("kind") == "Pod" else templates(manifest)
    if made or manifest.get("kind") == "Pod":
        for path, holder in ((), manifest), *made:
            labels = mapping_of(holder, "metadata", "labels")
            places.append(((*path, "metadata", "labels", names.PRIORITY_CLASS), labels.get(names.PRIORITY_CLASS)))
            spec = mapping_of(holder, "spec")
            if "containers" in spec:
                places.append(((*path, "spec", names.PRIORITY_CLASS), spec.get(names.PRIORITY_CLASS)))
    yield from ((path, name) for path, name in places if isinstance(name, str) and name)
