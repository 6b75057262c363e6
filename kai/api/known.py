"""One object for all equal pieces of JSON, as long as they keep coming.

Pods of a workload agree in nearly all they ask for. Reading that once is quicker, holding it once is smaller, and
whoever compares shapes finds them identical.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kai.api.reading import Reader

_MOST: Final = 1 << 13
_MOST_STRUCTS: Final = 1 << 10
_MOST_BYTES: Final = 1 << 20
_LONGEST: Final = 1 << 16
_PATIENCE: Final = 1 << 9
"""After so many values in a row that were not known, it is not worth looking."""
_REST: Final = 1 << 12
"""So many values are not looked for then."""
_TRIES: Final = 1 << 5
"""So many are afterwards, before it rests again."""
# Version 2 of the format has no back references, so the bytes depend on the value alone.
_FORMAT: Final = 2


def shared(read: Reader) -> Reader:
    """Make a reader return one object for all equal values, those that came lately at least.

    Values of different type are different, and so are objects whose keys come in another order. What contains something
    other than JSON is read afresh.
    """
    recall = _remembering(read)

    def read_shared(value: Any, hint: object = None) -> object:  # noqa: ANN401 - marshal alone says what it takes
        try:
            key = marshal.dumps(value, _FORMAT)
        except ValueError:
            return read(value, hint)
        return recall(key, value)

    return read_shared


def shared_bytes(read: Callable[[bytes], Any], longest: int) -> Callable[[Any], Any]:
    """Make a reader of JSON return one object for all equal texts up to a length, those that came lately at least."""
    recent = Recent(_MOST)
    luck = _PATIENCE

    def read_shared(raw: Any) -> object:  # noqa: ANN401 - bytes, or what has a buffer of them
        nonlocal luck
        key = bytes(raw)
        if len(key) > longest:
            return read(key)
        if luck < 0:  # these are different in each object; look again after a while
            luck = luck + 1 or _TRIES
            return read(key)
        result = recent.get(key)
        if result is not None:
            luck = _PATIENCE
            return result
        luck = luck - 1 if luck else -_REST
        result = read(key)
        if result is not None:
            recent.put(key, result)
        return result

    return read_shared


def shared_structs(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a reader of structs return one object for all equal structs, those that came lately at least."""
    recall = _remembering(read, _MOST_STRUCTS)
    values_of = msgspec.structs.astuple

    def read_shared(struct: Any) -> object:  # noqa: ANN401 - structs are made for classes that only the caller knows
        return recall(values_of(struct), struct)

    return read_shared


def _remembering(read: Callable[..., Any], most: int | None = None) -> Callable[[Any, Any], Any]:
    """Make a function return what it returned for an equal key; None is not remembered."""
    recent = Recent(most or _MOST)
    get = recent.get

    def recall(key: Any, value: Any) -> object:  # noqa: ANN401 - bytes or a tuple, and what the function takes
        result = get(key)
        if result is None:
            result = read(value)
            if result is not None:
                recent.put(key, result)
        return result

    return recall


class Recent:
    """Values by key, those that were used lately.

    Holds: it has bounds, in number and in the length of keys, whatever comes: the older half is forgotten whenever the
    younger one is full. What has too long a key is not kept at all.
    """

    __slots__ = ("_most", "_old", "_size", "_young")

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[Any, object] = {}
        self._old: dict[Any, object] = {}
        self._size = 0

    def get(self, key: Any) -> object | None:  # noqa: ANN401 - whatever has a hash and a length
        """Return the value of a key."""
        result = self._young.get(key)
        if result is None:
            result = self._old.get(key)
            if result is not None:
                self.put(key, result)
        return result

    def put(self, key: Any, value: object) -> None:  # noqa: ANN401 - as above
        """Keep a value, which is not None, for a key."""
        length = len(key)
        if length > _LONGEST:
            return
        if self._size + length > _MOST_BYTES or len(self._young) >= self._most:
            self._young, self._old, self._size = {}, self._young, 0
        self._young[key] = value
        self._size += length
