"""Answers of the service as views: for people what they show, for machines the very documents."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kai.cli.console import Console
from kai.documents.asking import Service
from kai.simulation.case import Origin

if TYPE_CHECKING:
    from kai.cli.views import View

_HEAD = frozenset({"apiVersion", "kind", "generatedAt", "source", "program"})


@attrs.define
class Served:
    """Asks the service, and remembers where the answers came from."""

    service: Service
    namespace: str
    """The one that is asked about; "" for all."""
    origin: Origin = attrs.field(factory=lambda: Origin(type="service"))

    def ask(self, path: str, **parameters: str) -> Mapping[str, Any]:
        """Return a document of the service.

        Raises: UnreachableError.
        """
        document = self.service.ask(path, **parameters)
        self.origin = self.service.origin_of(document)
        return document

    @property
    def remark(self) -> str:
        """What a reader must know about these answers."""
        rest = "" if self.origin.complete else "; what you may not list is left out"
        return f"source: service {self.service.name}, cycle {self.origin.revision}{rest}"


@attrs.frozen(kw_only=True)
class ServedView:
    """A view whose document is that of the service."""

    shown: "View"
    document: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the document."""
        return str(self.document["kind"])

    def fields(self) -> dict[str, Any]:
        """Return the fields of the document, behind its envelope."""
        return {name: value for name, value in self.document.items() if name not in _HEAD}

    def names(self) -> Sequence[str]:
        """Return what ``-o name`` writes."""
        return self.shown.names()

    def text(self, console: Console) -> str:
        """Return what people read."""
        return self.shown.text(console)


__all__ = ["Served", "ServedView"]
