"""The peer's snapshot archive: everything its scheduler saw, in one JSON file inside a zip. Reading and redacting it.

Objects come without apiVersion and kind; omitted parameters are zero. Times are nanoseconds.

Redaction always removes annotations that kai does not read, among them `last-applied-configuration` with its whole
manifest. The content of config maps and secrets never enters a snapshot. With names hidden, pods, jobs, queues, nodes,
namespaces and unknown label values get numbers in place of names. The numbers follow the order of the names, so ties
break as before: the redacted snapshot gives the same decisions, under other names.

Source: the peer's plugins/snapshot and its snapshot-tool.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import msgspec

from kai.answers.cases.case import Case, intake_settings, newest_time, read_past_usage, unread
from kai.answers.cases.plan_document import digest_of
from kai.api import names
from kai.api.cluster_objects import FIELD_OF, ClusterObjects, collect
from kai.api.codec import structuring
from kai.api.fields import camel
from kai.basics.errors import InputError
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.basics.parsing import is_number, is_whole, list_of
from kai.deciding.configuration.peer import Settings
from kai.deciding.configuration.profile_reading import Configuration, read_configuration, read_peer
from kai.facts.model.budgets import Key, Spent
from kai.facts.model.placement import NoRoom, Past
from kai.intake.aside import FIELD_OF_KIND, Suspect, without

if TYPE_CHECKING:
    from kai.api.kinds import ApiObject


MEMBER = "snapshot.json"
_LARGEST = 4 * 1024**3
_ASIDE = 4
_LISTS = {camel(field): cls for cls, field in FIELD_OF.items()}


def is_archive(path: Path) -> bool:
    """Return whether ``path`` is a zip file."""
    return zipfile.is_zipfile(path)


def read_archive(path: Path, name: str) -> Case:
    """Return the case in a snapshot of the peer: one cycle with the configuration of the snapshot.

    Raises: InputError for an archive that is damaged or has other content.
    """
    try:
        return _case(_read_json(path, name, _in_pieces), path, name)
    except _UndecodedError:
        # The standard library reads more, such as UTF-16 and NaN, and explains what is wrong.
        return _case(_read_json(path, name, json.loads), path, name)


def _case(document: Mapping[str, Any], path: Path, name: str) -> Case:
    raw = document.get("rawObjects")
    if not isinstance(raw, Mapping):
        raise InputError.about(f"{name}: {MEMBER}", "rawObjects", found=raw, wanted="lists of objects")
    own = _mapping(document, "kai", name)
    objects, notes = _objects({**raw, **_mapping(own, "objects", name)}, name)
    # What had been set aside was no input of the cycle; with it the same configuration would fail again.
    objects = without(objects, _aside(document, name))
    settings = Settings(_mapping(document, "schedulerParams", name), f"{name}: schedulerParams", zeroed=True)
    # kai's own form first: the peer's cannot say all of it, and an archive has both where the configuration is kai's.
    written = own.get("config") or _mapping(document, "config", name)
    configuration = _configuration(own, document, name)
    usage = read_past_usage(own.get("usage"), f"{name}: {MEMBER}", "kai.usage")
    return Case(
        name=name,
        title=path.stem,
        objects=objects,
        now=_now(own, objects),
        document=written if isinstance(written, Mapping) and written else None,
        recorded=own.get("plan") if isinstance(own.get("plan"), Mapping) else None,
        configuration=attrs.evolve(configuration, parameters=settings.parameters(configuration.parameters)),
        settings=attrs.evolve(intake_settings(settings), kubernetes=_kubernetes(own)),
        past=Past(
            awaited=_texts(document, "awaited", "a list of namespace/name", name),
            refused=_refused(document, name),
            evicted=_evicted(document, name),
            protected=_texts(document, "protected", "a list of UIDs", name),
            usage=usage,
            spent=_spent(own.get("spent"), name),
        ),
        notes=notes + configuration.notes + unread(configuration, usage),
    )


def _configuration(own: Mapping[str, Any], document: Mapping[str, Any], name: str) -> Configuration:
    """Return the configuration of a snapshot: in kai's own form where the archive has one."""
    if own.get("config"):
        return read_configuration(own["config"], f"{name}: kai.config")
    return read_peer(_mapping(document, "config", name), f"{name}: config", None)


def _kubernetes(own: Mapping[str, Any]) -> KubernetesVersion:
    """Return the version of the API server; only kai's archives have it."""
    return KubernetesVersion.of(str(own.get("kubernetes", ""))) or NEWEST


def _now(own: Mapping[str, Any], objects: ClusterObjects) -> float:
    """Return the time of a snapshot; kai's archives have it, for others it is the newest time of their objects."""
    now = own.get("now")
    return float(now) if is_number(now) else newest_time(objects)


def _texts(document: Mapping[str, Any], field: str, wanted: str, name: str) -> tuple[str, ...]:
    """Return a list of texts, which only kai's archives have."""
    listed = _mapping(document, "kai", name).get(field, [])
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise InputError.about(f"{name}: {MEMBER}", f"kai.{field}", found=listed, wanted=wanted)
    return tuple(listed)


def _refused(document: Mapping[str, Any], name: str) -> tuple[NoRoom, ...]:
    """Return the binds that found no room before the cycle; only kai's archives have them."""
    listed = _mapping(document, "kai", name).get("refused", [])
    fields = attrs.fields_dict(NoRoom).keys()
    if not isinstance(listed, list) or not all(
        isinstance(each, Mapping) and each.keys() == fields and all(isinstance(text, str) for text in each.values())
        for each in listed
    ):
        wanted = f"a list of objects with {', '.join(fields)}"
        raise InputError.about(f"{name}: {MEMBER}", "kai.refused", found=listed, wanted=wanted)
    return tuple(NoRoom(**each) for each in listed)


def _evicted(document: Mapping[str, Any], name: str) -> tuple[tuple[str, int], ...]:
    """Return the evicted GPUs of queues in the hour before the cycle; only kai's archives have them."""
    found = _mapping(document, "kai", name).get("evicted", {})
    if not isinstance(found, Mapping) or not all(map(is_whole, found.values())):
        wanted = "thousandths of GPUs by queue"
        raise InputError.about(f"{name}: {MEMBER}", "kai.evicted", found=found, wanted=wanted)
    return tuple(sorted((str(queue), gpus) for queue, gpus in found.items()))


def _spent(listed: object, name: str) -> Mapping[Key, Spent] | None:
    """Return what was used of budgets before the cycle; None for archives that do not have it."""
    if listed is None:
        return None
    found: dict[Key, Spent] = {}
    numbers = ("since", "at", "total", "pace", "carried")
    for each in listed if isinstance(listed, list) else [listed]:
        if not isinstance(each, Mapping) or not all(is_whole(each.get(key)) for key in numbers):
            wanted = f"a list of objects with queue, budget, {', '.join(numbers)}"
            raise InputError.about(f"{name}: {MEMBER}", "kai.spent", found=each, wanted=wanted)
        key = (str(each.get("queue")), str(each.get("budget")))
        amounts = {field: int(each[field]) for field in numbers}
        found[key] = Spent(**amounts, users=_pairs(each, "users"), jobs=_pairs(each, "jobs"))
    return found


def _pairs(written: Mapping[str, Any], field: str) -> tuple[tuple[str, int], ...]:
    """Return names with whole numbers; others are left out, since they only explain."""
    pairs = [each for each in list_of(written, field) if isinstance(each, list) and len(each) == 2]
    return tuple((str(who), used) for who, used in pairs if is_whole(used))


def _aside(document: Mapping[str, Any], name: str) -> Mapping[Suspect, bool]:
    """Return the objects that the scheduler had quarantined; only kai's archives have them."""
    listed = _mapping(document, "kai", name).get("aside", [])
    found: dict[Suspect, bool] = {}
    for each in listed if isinstance(listed, list) else [listed]:
        if not isinstance(each, list) or len(each) != _ASIDE or each[0] not in FIELD_OF_KIND:
            wanted = "a list of kind, namespace, name, and whether nothing of it is kept"
            raise InputError.about(f"{name}: {MEMBER}", "kai.aside", found=each, wanted=wanted)
        found[Suspect(*map(str, each[:3]))] = each[3] is True
    return found


def _read_json(path: Path, name: str, decode: Callable[[bytes], Any]) -> Mapping[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            # Before it is unpacked: a few kilobytes of zip can hold any number of zeros.
            size = archive.getinfo(MEMBER).file_size
            if size > _LARGEST:
                raise InputError(f"{name}: found {MEMBER} of {size} bytes, expected at most {_LARGEST}")
            document = decode(archive.read(MEMBER))
    except KeyError:
        raise InputError(f"{name}: found no {MEMBER}, expected a snapshot taken by the scheduler") from None
    # An encrypted member raises RuntimeError, and an unknown compression NotImplementedError.
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{name}: found a zip file that cannot be read ({error}), expected a snapshot") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: {MEMBER}: found text that is no JSON ({error}), expected a whole snapshot") from None
    if not isinstance(document, Mapping):
        raise InputError(f"{name}: {MEMBER}: found {type(document).__name__}, expected an object with rawObjects")
    return document


class _UndecodedError(Exception):
    """Raised for JSON that the quick decoder does not read."""


_ANY: Final = msgspec.json.Decoder()
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_Decode: TypeAlias = Callable[[bytes | msgspec.Raw], Any]


def _decoded(text: bytes | msgspec.Raw, decode: _Decode) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _UndecodedError from error


def _in_pieces(text: bytes) -> Any:  # noqa: ANN401 - as above
    """Return the value of a JSON text, but leave each object of ``rawObjects`` and ``kai.objects`` as text.

    Such an object is decoded when it is read: all of them at once take four times the memory of their text.

    Raises: _UndecodedError.
    """
    document = _fields(text)
    if not isinstance(document, dict):
        return document
    out = {key: _own(value) if key == "kai" else _plain(value) for key, value in document.items() if key != _RAW}
    return {**out, _RAW: _lists_in(document[_RAW])} if _RAW in document else out


_RAW: Final = "rawObjects"


def _own(text: msgspec.Raw) -> Any:  # noqa: ANN401 - as above
    """Return the part of a snapshot that only kai writes."""
    found = _fields(text)
    if not isinstance(found, dict):
        return found
    return {key: _lists_in(value) if key == "objects" else _plain(value) for key, value in found.items()}


def _lists_in(text: msgspec.Raw) -> Any:  # noqa: ANN401 - as above
    """Return lists by name; their items are text."""
    lists = _fields(text)
    if not isinstance(lists, dict):
        return lists
    return {
        key: _decoded(items, _ITEMS.decode) if _begins(items, b"[") else _plain(items) for key, items in lists.items()
    }


def _fields(text: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 - as above
    """Return the members of a JSON object as text, or the value of another JSON text."""
    return _decoded(text, _FIELDS.decode) if _begins(text, b"{") else _plain(text)


def _plain(text: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 - as above
    return _decoded(text, _ANY.decode)


def _begins(text: bytes | msgspec.Raw, sign: bytes) -> bool:
    return bytes(memoryview(text)[:_LEAD]).lstrip().startswith(sign)


_LEAD: Final = 64
"""Bytes to look at for the first sign; JSON that begins with more blanks is decoded as a whole."""


def _mapping(document: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError.about(f"{name}: {MEMBER}", key, found=value, wanted="an object")
    return value


def _objects(raw: Mapping[str, Any], name: str) -> tuple[ClusterObjects, tuple[str, ...]]:
    found: list[ApiObject] = []
    errors: list[InputError] = []
    notes: list[str] = []
    for key, items in raw.items():
        cls = _LISTS.get(key)
        if cls is None:
            # Another version of the peer may list kinds that kai does not read: no reason to refuse the rest.
            notes.append(f"passed over {len(items) if isinstance(items, list) else 0} of rawObjects.{key}")
            continue
        if items is not None and not isinstance(items, list):
            raise InputError.about(f"{name}: {MEMBER}", f"rawObjects.{key}", found=items, wanted="a list")
        for item in items or ():
            try:
                found.append(structuring.structure_as(cls, _plain(item) if isinstance(item, msgspec.Raw) else item))
            except InputError as error:
                errors.append(error)
    if errors:
        raise InputError.joined(errors)
    return collect(found), tuple(notes)


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
