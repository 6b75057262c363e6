"""Text to manifests: JSON, or YAML of any number of documents, with `kind: List` taken apart.

YAML is read as Kubernetes reads it: a time without quotes stays text, a number may have an exponent without a dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import yaml

from kai.api.bad_value import BadValue
from kai.errors import InputError

_EXPONENT: Final = re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$")


class _Loader(yaml.CSafeLoader):
    """The safe loader of libyaml with the scalars that Kubernetes knows."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def load_values(text: str | bytes, source: str) -> tuple[Any, ...]:
    """Return the values of all documents of a text, except empty ones.

    Raises: InputError, with `source` and the line, if it is neither JSON nor YAML.
    """
    if text.lstrip()[:1] in {"{", "[", b"{", b"["}:
        try:
            return (msgspec.json.decode(text),)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # flow-style YAML begins like JSON, and its errors name the line
    try:
        return tuple(value for value in yaml.load_all(text, Loader=_Loader) if value is not None)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: {_problem_of(error)}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: found text that cannot be read ({error}), expected YAML or JSON") from None


def load_documents(text: str | bytes, source: str) -> tuple[Mapping[str, Any], ...]:
    """Return the manifests of a text, the items of lists in their place.

    Raises: InputError if the text is neither JSON nor YAML, or a document is not an object.
    """
    return tuple(manifest for value in load_values(text, source) for manifest in _manifests(value, source))


def _manifests(value: object, source: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _manifests(item, source)
    elif not isinstance(value, Mapping):
        raise BadValue(value, "an object with apiVersion and kind", subject=source)
    elif _is_list(value):
        kind, version = str(value["kind"]).removesuffix("List"), value.get("apiVersion")
        for item in value.get("items") or ():
            if isinstance(item, Mapping) and kind and "kind" not in item:
                # The API server leaves these out of the items of a typed list.
                item = {"apiVersion": version, "kind": kind, **item}  # noqa: PLW2901 - the item, completed
            yield from _manifests(item, source)
    else:
        yield value


def _is_list(value: Mapping[str, Any]) -> bool:
    kind = value.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list | None)


def _problem_of(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "a character that YAML does not allow"
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{place}found {problem}, expected YAML or JSON"
