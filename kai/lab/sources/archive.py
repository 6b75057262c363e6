"""The peer's snapshot archive: everything its scheduler saw, in one JSON file inside a zip.

Objects come without apiVersion and kind; omitted parameters are zero. Times are nanoseconds.

Source: the peer's plugins/snapshot and its snapshot-tool.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from kai.answers.cases.case import Case, intake_settings, newest_time, read_past_usage, unread
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
    document = _read_json(path, name)
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


def _read_json(path: Path, name: str) -> Mapping[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            # Before it is unpacked: a few kilobytes of zip can hold any number of zeros.
            size = archive.getinfo(MEMBER).file_size
            if size > _LARGEST:
                raise InputError(f"{name}: found {MEMBER} of {size} bytes, expected at most {_LARGEST}")
            document = _decoded(archive.read(MEMBER))
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


def _decoded(text: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the value of a JSON text.

    Raises: ValueError or RecursionError for invalid JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # The standard library reads more, such as UTF-16 and NaN, and explains what is wrong.
        return json.loads(text)


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
                found.append(structuring.structure_as(cls, item))
            except InputError as error:
                errors.append(error)
    if errors:
        raise InputError.joined(errors)
    return collect(found), tuple(notes)
