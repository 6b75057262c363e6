"""Redacting a snapshot: annotations that decide nothing always, and all names on request.

Annotations that kai does not read are always removed, among them `last-applied-configuration` with its whole manifest.
The content of config maps and secrets never enters a snapshot. With names hidden, pods, jobs, queues, nodes, namespaces
and unknown label values get numbers in place of names. The numbers follow the order of the names, so ties break as
before: the redacted snapshot gives the same decisions, under other names.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.answers.cases.plan_document import digest_of
from kai.api import names

_KNOWN: Final = frozenset(value for value in vars(names).values() if isinstance(value, str) and value)
# By prefix, so that an annotation of a later release that is read by the cycle is kept, too.
_READ: Final = re.compile(
    r"^(?:(?:[\w.-]+\.)?(?:kai\.scheduler|run\.ai)/|runai|(?:pv|volume|resource)\.kubernetes\.io/)"
)
_NAMED: Final = frozenset(
    {
        *("pods", "podGroups", "queues", "nodes", "namespaces", "configMaps", "bindRequests", "resourceClaims"),
        *("persistentVolumeClaims", "persistentVolumes", "resourceClaimTemplates", "resourceSlices"),
        *("podDisruptionBudgets", "nodeResourceTopologies", "csiNodes", "topologies"),
    }
)
"""Lists whose objects lose their names; names of classes and drivers are the same everywhere and reveal nothing."""
_WORDS: Final = frozenset(
    {
        *("apiVersion", "kind", "phase", "status", "type", "reason", "operator", "effect", "key", "topologyKey"),
        *("resource", "uid", "creationTimestamp", "deletionTimestamp", "schedulerName", "preemptibility", "mode"),
        *("receivedResourceType", "volumeMode", "protocol", "driver", "storageClassName", "provisioner"),
        *("priorityClassName", "deviceClassName", "nodeLabel", "action", "cause", "rule", "priority", "apiGroup"),
    }
)
"""Fields whose values are never names, even if equal to one."""
_CLASSES: Final = frozenset({names.PRIORITY_CLASS, names.PREEMPTIBILITY, names.NODE_POOL})
"""Labels and annotations whose values the installation defines."""
_BY_LABEL: Final = frozenset({"labels", "matchLabels", "nodeSelector", "annotations"})
"""Fields whose keys are labels or annotations instead of fields."""
_DRIVER: Final = ("drivers", "name")
"""The field in which a node names a storage driver, as volumes and classes do."""
_TEXTS: Final = frozenset({"message"})
_NUMBER: Final = re.compile(r"^(?:true|false|-?\d+(?:\.\d+)?)?$")


def without_annotations(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a snapshot whose objects keep only the annotations that kai reads."""
    raw = document.get("rawObjects")
    lists = {key: [_trimmed(each) for each in items or ()] for key, items in _lists(raw)}
    out = {**document, "rawObjects": lists}
    own = document.get("kai")
    if isinstance(own, Mapping) and isinstance(own.get("objects"), Mapping):
        more = {key: [_trimmed(each) for each in items or ()] for key, items in _lists(own["objects"])}
        out["kai"] = {**own, "objects": more}
    return out


def without_names(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a snapshot without names; it gives the same decisions, under other names."""
    found = _Names(document)
    hidden: dict[str, Any] = {"rawObjects": found.lists(document.get("rawObjects"))}
    own = document.get("kai")
    if isinstance(own, Mapping):
        # The configuration names plugins and actions, no tenants, and without it the cycle could not be decided again.
        rest = {key: value for key, value in own.items() if key not in {"objects", "config"}}
        kept = {"config": own["config"]} if "config" in own else {}
        hidden["kai"] = {**found.hide(rest), **kept}
        if "objects" in own:
            hidden["kai"]["objects"] = found.lists(own["objects"])
    plan = hidden.get("kai", {}).get("plan")
    if plan is not None:
        # Of the hidden names: the recorded plan must still be equal to the one that is decided from this file.
        plan["decisionHash"] = digest_of(plan)
    return {**document, **hidden}


class _Names:
    """All names of a snapshot, with their replacements."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        found = {name for name in _names_in(document) if name and not _NUMBER.match(name)}
        # Zero-padded, so that the numbers sort like the names and ties break as before.
        width = len(str(max(1, len(found))))
        self._hidden = {name: f"n{number:0{width}}" for number, name in enumerate(sorted(found), start=1)}

    def lists(self, raw: Any) -> dict[str, Any]:  # noqa: ANN401 - any value of JSON
        """Return lists of objects without names; objects of classes and drivers keep their own."""
        return {key: [self._object(key, each) for each in items or ()] for key, items in _lists(raw)}

    def _object(self, key: str, manifest: Any) -> Any:  # noqa: ANN401 - any value of JSON
        hidden = self.hide(manifest)
        name = manifest.get("metadata", {}).get("name")
        if key not in _NAMED and name:
            hidden["metadata"]["name"] = name
        return hidden

    def hide(self, value: Any, field: str = "") -> Any:  # noqa: ANN401 - any value of JSON
        """Return a value with all names replaced."""
        if isinstance(value, Mapping):
            return {
                self._key(key, field): self._member(key, each, field)
                for key, each in value.items()
                if key != names.TOP_OWNER
            }
        if isinstance(value, list | tuple):
            return [self.hide(each, field) for each in value]
        return self._text(value) if isinstance(value, str) else value

    def _member(self, key: str, value: Any, field: str) -> Any:  # noqa: ANN401 - any value of JSON
        if isinstance(value, str):
            if key in _CLASSES:
                return value
            if field not in _BY_LABEL and key in _TEXTS:
                return ""
            if field not in _BY_LABEL and (key in _WORDS or (field, key) == _DRIVER):
                return value
        return self.hide(value, key)

    def _key(self, key: str, field: str) -> str:
        """Return a mapping key with names replaced: keys of past usage are queues, and some labels contain a device."""
        if key.startswith(names.GPU_GROUP_PREFIX):
            return names.GPU_GROUP_PREFIX + self._text(key.removeprefix(names.GPU_GROUP_PREFIX))
        return self._hidden.get(key, key) if field == "usage" else key

    def _text(self, text: str) -> str:
        if text in self._hidden:
            return self._hidden[text]
        if "/" in text:
            # Facts name jobs as namespace/name. Only where both are names of
            # objects: paths and label keys have slashes as well.
            parts = text.split("/")
            if all(part in self._hidden for part in parts):
                return "/".join(self._hidden[part] for part in parts)
        return text


def _names_in(document: Mapping[str, Any]) -> Iterator[str]:
    own = document.get("kai")
    more = own.get("objects") if isinstance(own, Mapping) else None
    for key, items in (*_lists(document.get("rawObjects")), *_lists(more)):
        for each in items or ():
            metadata = each.get("metadata") or {}
            yield str(metadata.get("namespace") or "")
            if key in _NAMED:
                yield str(metadata.get("name") or "")
                yield str(metadata.get("generateName") or "")
            for owner in metadata.get("ownerReferences") or ():
                yield str(owner.get("name") or "")
            if key in {"pods", "podGroups", "queues"}:
                yield from (
                    str(value) for label, value in (metadata.get("labels") or {}).items() if label not in _KNOWN
                )
            spec = each.get("spec") or {}
            yield from (str(spec.get(field) or "") for field in ("queue", "parentQueue", "displayName", "nodeName"))
            yield from (str(sub.get("name") or "") for sub in spec.get("subGroups") or ())
            yield str((metadata.get("annotations") or {}).get(names.POD_GROUP) or "")
            yield str((metadata.get("labels") or {}).get(names.QUEUE) or "")
            yield str((metadata.get("labels") or {}).get(names.SUBGROUP) or "")
            yield from _devices(metadata.get("labels") or {})
            yield from (str(name) for name in spec.get("selectedGPUGroups") or ())
            yield str((spec.get("csi") or {}).get("volumeHandle") or "")


def _devices(labels: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of shared devices, which may contain the name of their node."""
    for key, value in labels.items():
        if key == names.GPU_GROUP or key.startswith(names.GPU_GROUP_PREFIX):
            yield str(value)
        if key.startswith(names.GPU_GROUP_PREFIX):
            yield key.removeprefix(names.GPU_GROUP_PREFIX)


def _lists(raw: object) -> list[tuple[str, Any]]:
    return list(raw.items()) if isinstance(raw, Mapping) else []


def _trimmed(manifest: Any) -> Any:  # noqa: ANN401 - any value of JSON
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(annotations, Mapping) or not isinstance(metadata, Mapping):
        return manifest
    kept = {key: value for key, value in annotations.items() if key in _KNOWN or _READ.match(key)}
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**manifest, "metadata": {**rest, **({"annotations": kept} if kept else {})}}
