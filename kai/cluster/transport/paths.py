"""Where an API server keeps the objects of a kind, and in which of its versions this one serves it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import attrs

from kai.api.kinds import BY_CLASS, ApiObject
from kai.api.plans import Ref

_MOST_PATHS: Final = 1 << 12


def collection(api_version: str, plural: str, namespace: str = "") -> str:
    """Return the path of the objects of a kind, in one namespace or all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{plural}"


@attrs.define
class Served:
    """Which version of each kind the server serves, as far as that was found out; else the one that kai writes."""

    _versions: dict[type[ApiObject], str] = attrs.field(factory=dict)
    _collections: dict[tuple[type[ApiObject], str], str] = attrs.field(factory=dict)
    """Paths that were asked for, by kind and namespace."""

    def version(self, cls: type[Any]) -> str:
        """Return the version of a kind."""
        return self._versions.get(cls) or BY_CLASS[cls].api_version

    def settle(self, cls: type[ApiObject], api_version: str) -> None:
        """Note that a version is served."""
        if self._versions.get(cls) != api_version:
            self._versions[cls] = api_version
            self._collections.clear()

    def collection(self, cls: type[Any], namespace: str = "") -> str:
        """Return the path of the objects of a kind, in one namespace or all."""
        path = self._collections.get((cls, namespace))
        if path is None:
            kind = BY_CLASS[cls]
            path = collection(self.version(cls), kind.plural, namespace if kind.namespaced else "")
            if len(self._collections) < _MOST_PATHS:
                self._collections[cls, namespace] = path
        return path

    def path(self, ref: Ref[Any], subresource: str = "") -> str:
        """Return the path of an object."""
        whole = f"{self.collection(ref.cls, ref.namespace)}/{quote(ref.name, safe='')}"
        return f"{whole}/{subresource}" if subresource else whole
