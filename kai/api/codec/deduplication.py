"""One object for all equal pieces of JSON, as long as they keep coming.

Pods of a workload agree in nearly all they ask for. Reading that once is quicker, holding it once is smaller, and
code that compares shapes finds them identical.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from kai.api.codec.json_values import Reader

_MOST: Final = 1 << 9
_MOST_BYTES: Final = 1 << 16
_LONGEST: Final = 1 << 14
# Version 2 of the format has no back references, so the bytes depend on the value alone.
_FORMAT: Final = 2


def shared(read: Reader) -> Reader:
    """Make a reader return one object for all equal values, those that came lately at least.

    Values of different type are different, and so are objects whose keys come in another order. What contains something
    other than JSON is read afresh.
    """
    recent = Recent(_MOST)
    get, put = recent.get, recent.put

    def read_shared(value: Any, hint: object = None) -> object:  # noqa: ANN401 - marshal alone says what it takes
        try:
            key = marshal.dumps(value, _FORMAT)
        except ValueError:
            return read(value, hint)
        result = get(key)
        if result is None:
            result = read(value, hint)
            if result is not None:
                put(key, result)
        return result

    return read_shared


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
