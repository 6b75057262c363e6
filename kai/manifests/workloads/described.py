"""Kinds that a Karta in the input describes: the number of pods of each component comes from its queries.

Source: Karta (``run.ai/v1alpha1``). A pod gets the label by which the Karta recognises its component, as its controller
would set it. Pods that are described in fragments (``fragmentedPodSpecDefinition``) are not made.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kai.basics.errors import InputError
from kai.basics.parsing import is_whole, mapping_of, mappings_of, text_of
from kai.manifests.grouping import Index
from kai.manifests.workloads.making import MOST_PODS, Identity, Made, pods
from kai.roles.podgrouper.draft import KARTA
from kai.roles.podgrouper.karta.definition import described_kind, read_definition
from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.lookup import Absent, Many
from kai.roles.podgrouper.resource import Fields, Kind, Resource

_LABEL: Final = re.compile(r"\.metadata\.labels(?:\.([\w-]+)|\[\"([^\"]+)\"\])")


def described_kinds(manifests: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """Return group and kind of the kinds that the Kartas among manifests describe."""
    found = set()
    for manifest in manifests:
        if (manifest.get("kind"), str(manifest.get("apiVersion")).rpartition("/")[0]) == (KARTA.kind, KARTA.group):
            kind = _kind_of(manifest)
            if kind is not None:
                found.add((kind.group, kind.kind))
    return frozenset(found)


def described(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the pods of a workload whose kind a Karta in the index describes; nothing without a Karta.

    Raises: InputError if a query of the Karta, or its result, is invalid.
    """
    karta = karta_of(workload.kind, index)
    if karta is None:
        return
    structure = mapping_of(karta.manifest, "spec", "structureDefinition")
    for component in (mapping_of(structure, "rootComponent"), *mappings_of(structure, "childComponents")):
        yield from _pods_of(workload, karta, component)


def karta_of(kind: Kind, index: Index) -> Resource | None:
    """Return the only valid Karta in the index that describes a kind."""
    listed = index.many(Many(KARTA, ""))
    found = [] if isinstance(listed, Absent) else [each for each in listed if _kind_of(each) == kind]
    valid = [Resource.of(each) for each in found if _holds(each)]
    return valid[0] if len(valid) == 1 else None


def _kind_of(manifest: Mapping[str, Any]) -> Kind | None:
    try:
        return described_kind(Resource.of(manifest))
    except InputError:
        return None  # pod grouping treats an invalid Karta the same way


def _holds(manifest: Mapping[str, Any]) -> bool:
    try:
        read_definition(Resource.of(manifest))
    except InputError:
        return False
    return True


def _pods_of(workload: Resource, karta: Resource, component: Mapping[str, Any]) -> Iterator[Made]:
    name, definition = text_of(component, "name"), mapping_of(component, "specDefinition")
    whole, bare = text_of(definition, "podTemplateSpecPath"), text_of(definition, "podSpecPath")
    if not whole and not bare:
        return
    templates = [each for each in evaluate(whole or bare, workload.manifest) if isinstance(each, Mapping)]
    replicas = text_of(component, "scaleDefinition", "replicasPath")
    counts = list(evaluate(replicas, workload.manifest)) if replicas else []
    instances = text_of(component, "instanceIdPath")
    names = [str(each) for each in evaluate(instances, workload.manifest)] if instances else []
    selector = mapping_of(component, "podSelector")
    for at, template in enumerate(templates):
        many = counts[at] if at < len(counts) else 1
        if not is_whole(many) or not 0 <= many <= MOST_PODS:
            wanted = f"a whole number from 0 to {MOST_PODS}"
            raise InputError.about(str(karta), f'replicas of component "{name}"', found=many, wanted=wanted)
        instance = names[at] if at < len(names) else ""
        labels = {
            **_labelled(selector, "componentTypeSelector", "value", ""),
            **_labelled(selector, "componentInstanceSelector", "idPath", instance),
        }
        middle = f"{name}-{instance}" if instance else name
        identities = (Identity(name=f"{workload.name}-{middle}-{number}", labels=labels) for number in range(int(many)))
        held = template if whole else {"spec": template}
        yield from pods(workload, Fields(held, str(workload), f"the template of {name}"), identities)


def _labelled(selector: Mapping[str, Any], part: str, key: str, instance: str) -> dict[str, str]:
    """Return the label that a selector matches on: for a type with its value, for an instance with its name."""
    path = text_of(selector, part, "keyPath" if key == "value" else key)
    value = text_of(selector, part, "value") if key == "value" else instance
    match = _LABEL.fullmatch(path.strip())
    return {match[1] or match[2]: value} if match is not None and value else {}
