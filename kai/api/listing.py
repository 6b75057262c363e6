"""The objects of one kind as a value, with the objects removed and added since an earlier value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar, overload

T = TypeVar("T")

_FEW: Final = 64


class Listing(Sequence[T]):
    """The objects of one kind, and the difference to an earlier listing; immutable.

    A reader that knows the earlier listing need not compare all objects, nor touch them: copying pointers to a
    hundred thousand objects takes milliseconds, because each object's reference count changes. So a listing that
    follows another shares its objects, and builds its own tuple when it is read.
    """

    __slots__ = ("_added", "_base", "_removed", "_whole", "before", "come", "gone", "mark")

    def __init__(self, objects: Iterable[T] = (), before: object = None) -> None:
        """Take all objects; ``before`` is the mark of the earlier listing, if there is one."""
        self._base: tuple[T, ...] = tuple(objects)
        self._removed: dict[int, T] = {}
        """Objects of the base that were removed since, by identity; the base keeps them alive."""
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
        """Return the listing without ``gone`` and with ``come``; None if it would share too little with this one.

        Cost: of the changes since the objects were last copied into one tuple.
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
        """Return all objects as a tuple, the same one at each call."""
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
        """Return whether ``other``, a listing or a tuple, has equal objects in the same order."""
        if isinstance(other, Listing):
            return self.whole() == other.whole()
        return isinstance(other, tuple) and self.whole() == other

    def __hash__(self) -> int:
        """Return the hash of the tuple of the objects."""
        return hash(self.whole())
