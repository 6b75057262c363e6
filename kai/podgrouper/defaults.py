"""Default priority class and preemptibility by workload kind, from a ConfigMap.

The ConfigMap's key ``types`` holds a JSON list of ``{typeName, group, priorityName, preemptibility}``. A ConfigMap that
is absent or unreadable gives no defaults and a note: workloads are grouped all the same.
"""

import json
from collections.abc import Mapping

import attrs

from kai.podgrouper.kinds import CONFIG_MAP
from kai.podgrouper.lookup import Absent, Get, Reader
from kai.podgrouper.resource import Kind, Resource
from kai.podgrouper.settings import Settings

_TYPES = "types"
_FIELDS = ("typename", "group", "priorityname", "preemptibility")


@attrs.frozen
class KindDefaults:
    """Defaults of one kind; an empty string is no default."""

    priority_class: str
    preemptibility: str


@attrs.frozen
class DefaultsByKind:
    """Defaults by ``Kind.group``, or by ``Kind`` alone for the kind in every group."""

    by_kind: Mapping[str, KindDefaults] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, kind: Kind) -> KindDefaults | None:
        """Return the defaults of ``kind``, by group and name, else by name."""
        if not kind.kind:
            return None
        return self.by_kind.get(_key(kind.kind, kind.group)) or self.by_kind.get(kind.kind)


def read_defaults(reader: Reader, settings: Settings) -> DefaultsByKind:
    """Return the defaults of the ConfigMap that ``settings`` name; none when they name none.

    Source: the peer's default grouper; a later entry for the same kind replaces an earlier one.
    """
    if not settings.defaults_name or not settings.defaults_namespace:
        return DefaultsByKind()
    read = Get(CONFIG_MAP, settings.defaults_namespace, settings.defaults_name)
    found = reader.get(read)
    if isinstance(found, Absent):
        return DefaultsByKind(notes=(f"defaults by kind: {read}: {found}",))
    return _parse(found)


def _parse(config_map: Resource) -> DefaultsByKind:
    data = config_map.manifest.get("data")
    text = data.get(_TYPES) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return DefaultsByKind(
            notes=(f"{config_map}: data.{_TYPES}: found nothing, expected a JSON list of defaults by kind",)
        )
    wrong = (f"{config_map}: data.{_TYPES}: found no JSON list of objects with text fields, so no kind has defaults",)
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return DefaultsByKind(notes=wrong)
    if not isinstance(entries, list):
        return DefaultsByKind(notes=() if entries is None else wrong)
    by_kind = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return DefaultsByKind(notes=wrong)
        fields = {key.lower(): value for key, value in entry.items()}  # Go reads the keys of JSON in any case
        values = [fields.get(name) or "" for name in _FIELDS]
        if not all(isinstance(value, str) for value in values):
            return DefaultsByKind(notes=wrong)
        kind, group, priority, preemptibility = values
        by_kind[_key(kind, group)] = KindDefaults(priority, preemptibility)
    return DefaultsByKind(by_kind)


def _key(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind
