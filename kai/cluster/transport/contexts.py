"""The contexts of kubeconfig files: what people choose a cluster by. Nothing here is secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from kai.api.codec.manifest_text import load_values
from kai.errors import InputError
from kai.lenient import mappings_of, text_of


@attrs.frozen(kw_only=True)
class Context:
    """The name of a context and its namespace; cluster and user are for `kai.cluster.transport.credentials` to read."""

    name: str
    namespace: str = ""


@attrs.frozen(kw_only=True)
class Contexts:
    """The contexts of all files, and which of them counts where none is named."""

    known: tuple[Context, ...] = ()
    current: str = ""

    def find(self, name: str = "") -> Context:
        """Return the context of a name, or the current one; one without anything where there is none."""
        wanted = name or self.current
        return next((each for each in self.known if each.name == wanted), Context(name=wanted))


def read_contexts(paths: str) -> Contexts:
    """Return the contexts of files in the form of KUBECONFIG; what cannot be read has none.

    Holds: the first file that says something counts, as for kubectl.
    """
    known: dict[str, Context] = {}
    current = ""
    for document in _documents(paths):
        for name, fields in _contexts(document):
            known.setdefault(name, Context(name=name, namespace=text_of(fields, "namespace")))
        current = current or text_of(document, "current-context")
    return Contexts(known=tuple(known.values()), current=current)


def _documents(paths: str) -> Iterator[Mapping[str, Any]]:
    for path in paths.split(os.pathsep):
        try:
            values = load_values(Path(path).expanduser().read_bytes(), path) if path else ()
        except (OSError, InputError):
            continue
        yield from (value for value in values[:1] if isinstance(value, Mapping))


def _contexts(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in mappings_of(document, "contexts"):
        if isinstance(entry.get("context"), Mapping):
            yield text_of(entry, "name"), entry["context"]
