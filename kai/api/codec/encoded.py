"""Manifests that are JSON already: written as they are, and read as a mapping only when a caller looks into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class Printed(Mapping[str, Any]):
    """A whole manifest in JSON, with version, kind, name and namespace."""

    __slots__ = ("_read", "api_version", "text")

    def __init__(self, text: bytes, api_version: str) -> None:
        """Take the text as it is; ``api_version`` is the one that it names."""
        self.text = text
        self.api_version = api_version
        self._read: dict[str, Any] | None = None

    def _manifest(self) -> dict[str, Any]:
        if self._read is None:
            self._read = msgspec.json.decode(self.text, type=dict[str, Any])
        return self._read

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a part of the manifest."""
        return self._manifest()[key]

    def __iter__(self) -> Iterator[str]:
        """Return the names of the parts."""
        return iter(self._manifest())

    def __len__(self) -> int:
        """Return how many parts there are."""
        return len(self._manifest())

    def __repr__(self) -> str:
        """Return the manifest as Python shows one."""
        return f"Printed({self._manifest()!r})"
