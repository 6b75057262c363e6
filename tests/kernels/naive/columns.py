"""Twins of ``kai.facts.kernels.columns``: undoing is doing everything up to the mark once more."""

from collections.abc import Sequence


def add(arena: list[int], journal: list[tuple[int, int]], offset: int, delta: int) -> None:
    """Change one cell and write it down; nothing is written down about nothing."""
    if delta:
        arena[offset] += delta
        journal.append((offset, delta))


def add_each(arena: list[int], journal: list[tuple[int, int]], changes: Sequence[tuple[int, int]]) -> None:
    """Change cells one after the other."""
    for offset, delta in changes:
        add(arena, journal, offset, delta)


def undo_to(opening: Sequence[int], journal: Sequence[tuple[int, int]], mark: int) -> list[int]:
    """Return the arena after the first ``mark`` entries of a journal that began with ``opening``."""
    arena = list(opening)
    for offset, delta in journal[:mark]:
        arena[offset] += delta
    return arena


def take_back(arena: Sequence[int], journal: Sequence[tuple[int, int]]) -> list[int]:
    """Return what an arena was before the writes in a journal, in whatever order these are taken back."""
    written: dict[int, int] = {}
    for offset, delta in journal:
        written[offset] = written.get(offset, 0) + delta
    return [number - written.get(offset, 0) for offset, number in enumerate(arena)]


def touch(changed: list[int], size: int, node: int) -> list[int]:
    """Return the last ``size`` nodes whose numbers changed, oldest first, once that of ``node`` did."""
    return [*changed, node][-size:]
