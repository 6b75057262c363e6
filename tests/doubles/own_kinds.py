"""Kinds that a test declares, as plugins do; nothing of them is left behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kai.api import kinds
from kai.api.kinds import BY_CLASS, BY_NAME


@contextmanager
def declared_for_a_while() -> Iterator[None]:
    """Forget at the end which kinds were declared in between."""
    tables: tuple[dict[Any, Any], ...] = (BY_NAME, BY_CLASS, kinds.DECLARED)
    before = [dict(each) for each in tables]
    try:
        yield
    finally:
        for table, known in zip(tables, before, strict=True):
            table.clear()
            table.update(known)
