"""Numbers with their nouns and lists that are cut short, as every message says them."""

from collections.abc import Sequence


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 pod``, ``2.5 GPUs``, ``3 leaf queues``."""
    shown = str(int(number)) if number == int(number) else f"{number:g}"
    return f"{shown} {noun}" if number == 1 else f"{shown} {plural or noun + 's'}"


def first_of(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Return the first ``most`` of some names, and how many more there are."""
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


__all__ = ["counted", "first_of"]
