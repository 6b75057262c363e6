"""Asking the service on behalf of a command, and the remark about the origin of its answers."""

from collections.abc import Mapping
from typing import Any

import attrs

from kai.answers.cases.origin import Origin
from kai.answers.documents.asking import Service


@attrs.define
class Served:
    """Asks the service, and remembers the origin of the last answer."""

    service: Service
    namespace: str
    """The namespace in question; "" for all."""
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
        """The closing line of an answer: the service, its cycle, and whether the answer is partial."""
        rest = "" if self.origin.complete else "; what you may not list is left out"
        return f"source: service {self.service.name}, cycle {self.origin.revision}{rest}"
