"""The fields of custom resources, from the definitions in ``deploy/crds``."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.reference.marks import DOCS, table

CRDS = DOCS.parent / "deploy" / "crds"


def definitions() -> dict[str, Mapping[str, Any]]:
    """Return the definitions by kind."""
    found = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(CRDS.glob("*_*.yaml"))]
    return {each["spec"]["names"]["kind"]: each for each in found}


def resource(words: str, _: str) -> str:
    """Return the fields of the kind ``words``."""
    definition = definitions()[words]["spec"]
    (version,) = [each for each in definition["versions"] if each["storage"]]
    served = ", ".join(f"`{definition['group']}/{each['name']}`" for each in definition["versions"] if each["served"])
    schema = version["schema"]["openAPIV3Schema"]
    plural, scope = definition["names"]["plural"], definition["scope"].lower()
    head = f"{schema.get('description', '')} `kubectl get {plural}.{definition['group']}`; {served}, {scope}."
    rows = [row for part in ("spec", "status") for row in _fields(schema["properties"].get(part, {}), part)]
    return head.strip() + "\n\n" + table(("field", "type", "meaning"), rows)


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the fields below ``schema``, each with its path, its type and its description."""
    for name, each in schema.get("properties", {}).items():
        place, below = f"{path}.{name}", each
        kind = each.get("type", "any")
        if kind == "array":
            place, below = f"{place}[]", each["items"]
            kind = f"list of {below.get('type', 'any')}"
        elif isinstance(each.get("additionalProperties"), Mapping):
            kind = f"map of {each['additionalProperties'].get('type', 'any')}"
        wanted = [kind, *(f"one of {', '.join(map(str, each['enum']))}" for _ in [0] if "enum" in each)]
        wanted += ["required"] if name in schema.get("required", ()) else []
        wanted += [f"default {each['default']}"] if "default" in each else []
        yield _breakable(place), ", ".join(wanted), each.get("description") or below.get("description", "")
        yield from _fields(below, place)


def _breakable(place: str) -> str:
    """Return a path as code, with places where a long one may be broken."""
    return f"`{place}`" if len(place) < 36 else f"<code>{place.replace('.', '.<wbr>')}</code>"
