"""Asking the service for a command, and what is said about where its answers came from."""

from collections.abc import Mapping
from typing import Any

import attrs

from kai.documents.asking import Service
from kai.simulation.cases.origin import Origin


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
