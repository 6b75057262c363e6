"""Pods together with the nodes of an input or a cluster: resources, labels and names that no node has."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import EMPTY
from kai.basics.parsing import list_of, mapping_of, part_of, text_of
from kai.manifests.findings import Document, Finding
from kai.manifests.keys import nearest
from kai.manifests.positions import Path
from kai.manifests.workloads.table import pod_templates


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
