"""Priority classes that workloads name and that do not exist: each is ignored, and the job gets another one."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kai.api import names
from kai.basics.parsing import mapping_of, part_of
from kai.manifests.findings import Document, Finding
from kai.manifests.grouping import PRIORITY_CLASSES
from kai.manifests.positions import Path
from kai.manifests.unused import templates

OF_THE_SYSTEM: Final = ("system-cluster-critical", "system-node-critical")
"""Classes that exist in each cluster."""
_NEAR: Final = 0.8


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
            is_of_pod = path[-2:] == ("spec", names.PRIORITY_CLASS) and document.manifest.get("kind") != "PodGroup"
            then = "an API server refuses the pods" if is_of_pod else "it is passed over, and the job gets another one"
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
