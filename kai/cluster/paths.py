"""Where an API server keeps the objects of a kind, and in which of its versions this one serves it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import attrs

from kai.api.kinds import BY_CLASS, ApiObject
from kai.api.plans import Ref


def collection(api_version: str, plural: str, namespace: str = "") -> str:
    """Return the path of the objects of a kind, in one namespace or all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{plural}"


@attrs.define
class Served:
    """Which version of each kind the server serves, as far as that was found out; else the one that kai writes."""

    _versions: dict[type[ApiObject], str] = attrs.field(factory=dict)

    def version(self, cls: type[Any]) -> str:
        """Return the version of a kind."""
        return self._versions.get(cls) or BY_CLASS[cls].api_version

    def settle(self, cls: type[ApiObject], api_version: str) -> None:
        """Note that a version is served."""
        self._versions[cls] = api_version

    def collection(self, cls: type[Any], namespace: str = "") -> str:
        """Return the path of the objects of a kind, in one namespace or all."""
        kind = BY_CLASS[cls]
        return collection(self.version(cls), kind.plural, namespace if kind.namespaced else "")

    def path(self, ref: Ref[Any], subresource: str = "") -> str:
        """Return the path of an object."""
        whole = f"{self.collection(ref.cls, ref.namespace)}/{quote(ref.name, safe='')}"
        return f"{whole}/{subresource}" if subresource else whole
