"""Which namespaces a queue admits, by annotations of the queue.

They are annotations rather than fields, so that the custom resource of KAI-Scheduler can hold them, and plain lists of
terms, so that an admission policy of the API server can read them (``deploy/components/queue-access``): the policy and
kai decide alike.
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
    """The namespaces that a queue admits: by name, or by having all of some labels."""

    spaces: frozenset[str] = frozenset()
    terms: tuple[tuple[str, str | None], ...] = ()
    """Required label keys, each with its value; None: any value. Without terms, labels admit no namespace."""

    @classmethod
    def of(cls, annotations: Mapping[str, str]) -> Admits:
        """Return the admission rules in a queue's annotations. A selector with an invalid term admits no namespace."""
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
    """Return the items of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _term(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    return key.strip(), value.strip() if equals else None
