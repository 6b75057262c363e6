"""The objects of one kind as a value, with what came and went since an earlier value of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar, overload

T = TypeVar("T")

_FEW: Final = 64


class Listing(Sequence[T]):
    """The objects of one kind, and what came and went since an earlier listing; it never changes.

    A reader that knows the earlier listing need not compare all objects, nor look at them: to copy pointers to a
    hundred thousand objects takes milliseconds, because each object is touched. So a listing that follows another
    shares the objects of that one, and puts its own together when it is looked at.
    """

    __slots__ = ("_added", "_base", "_removed", "_whole", "before", "come", "gone", "mark")

    def __init__(self, objects: Iterable[T] = (), before: object = None) -> None:
        """Take all objects; ``before`` is the mark of an earlier listing that there is."""
        self._base: tuple[T, ...] = tuple(objects)
        self._removed: dict[int, T] = {}
        """Objects of the base that are no part of this listing, by identity; the base holds them."""
        self._added: dict[int, T] = {}
        self._whole: tuple[T, ...] | None = self._base
        self.before = before
        """The mark of the earlier listing; None if there is none."""
        self.gone: Sequence[T] = ()
        """Objects of the earlier listing that are not in this one."""
        self.come: Sequence[T] = ()
        """Objects of this listing that were not in the earlier one."""
        self.mark = object()

    @classmethod
    def after(cls, before: object, objects: Iterable[T], gone: Iterable[T], come: Iterable[T]) -> Listing[T]:
        """Return the listing of ``objects``, which follows the one with the mark ``before``."""
        made = cls(objects, before)
        made.gone, made.come = tuple(gone), tuple(come)
        return made

    def next(self, gone: Sequence[T], come: Sequence[T]) -> Listing[T] | None:
        """Return the listing without some objects of this one and with others; None if little would be shared.

        Cost: of what changed since the objects were last written down together.
        """
        if len(self._removed) + len(self._added) + len(gone) + len(come) > _FEW + len(self._base) // 16:
            return None
        made: Listing[T] = Listing((), self.mark)
        made._base, made._removed, made._added = self._base, self._removed.copy(), self._added.copy()
        for each in gone:
            if made._added.pop(id(each), None) is None:
                made._removed[id(each)] = each
        made._added.update(zip(map(id, come), come, strict=True))
        made._whole = None
        made.gone, made.come = gone, come
        return made

    def whole(self) -> tuple[T, ...]:
        """Return all objects as a tuple, always the same one."""
        if self._whole is None:
            removed = self._removed
            kept = [each for each in self._base if id(each) not in removed] if removed else self._base
            self._whole = (*kept, *self._added.values())
        return self._whole

    def __len__(self) -> int:
        return len(self._base) - len(self._removed) + len(self._added)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...

    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        """Return one object, or some."""
        return self.whole()[at]

    def __iter__(self) -> Iterator[T]:
        return iter(self.whole())

    def __eq__(self, other: object) -> bool:
        """Return whether ``other`` has equal objects in the same order; a tuple may."""
        if isinstance(other, Listing):
            return self.whole() == other.whole()
        return isinstance(other, tuple) and self.whole() == other

    def __hash__(self) -> int:
        """Return what a tuple of the objects returns."""
        return hash(self.whole())
