"""Which namespaces a queue allows, as annotations of the queue say it.

They are annotations and no fields, so that the custom resource of KAI-Scheduler holds them as well, and plain lists of
terms, so that a policy of the API server can read them (``deploy/components/queue-access``): both doors judge alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY: Final = "*"


@attrs.frozen
class Admits:
    """Which namespaces a queue admits: those of a name, and those with all of some labels."""

    spaces: frozenset[str] = frozenset()
    terms: tuple[tuple[str, str | None], ...] = ()
    """Keys with the value that a label must have; None: any. Without terms, labels admit no namespace."""

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Admits:
        """Return what the annotations of a queue say. A selector with a term that is none admits no namespace."""
        spaces = listed(annotations.get(names.ALLOWED_NAMESPACES, ""))
        terms = tuple(_term(each) for each in listed(annotations.get(names.ALLOWED_NAMESPACE_LABELS, "")))
        return cls(frozenset(spaces), terms if all(key for key, _ in terms) else ())

    def admits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with these labels is admitted."""
        if EVERY in self.spaces or namespace in self.spaces:
            return True
        return bool(self.terms) and all(
            key in labels if value is None else labels.get(key) == value for key, value in self.terms
        )


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a list that commas divide."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _term(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    return key.strip(), value.strip() if equals else None
