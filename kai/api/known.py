"""One object for all equal pieces of JSON, as long as they keep coming.

Pods of a workload agree in nearly all they ask for. Reading that once is quicker, holding it once is smaller, and
whoever compares shapes finds them identical.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from kai.api.reading import Reader

_MOST: Final = 1 << 13
_MOST_BYTES: Final = 1 << 20
_LONGEST: Final = 1 << 16
# Version 2 of the format has no back references, so the bytes depend on the value alone.
_FORMAT: Final = 2


def shared(read: Reader) -> Reader:
    """Make a reader return one object for all equal values, those that came lately at least.

    Values of different type are different, and so are objects whose keys come in another order. What contains something
    other than JSON is read afresh.

    Holds: what is remembered has bounds, in number and in bytes, whatever comes: the older half of it is forgotten
    whenever the younger one is full. A value that is too long is not remembered at all.
    """
    young: dict[bytes, object] = {}
    old: dict[bytes, object] = {}
    size = 0
    find_young, find_old = young.get, old.get

    def read_shared(value: Any, hint: object = None) -> object:  # noqa: ANN401 - marshal alone says what it takes
        nonlocal young, old, size, find_young, find_old
        try:
            key = marshal.dumps(value, _FORMAT)
        except ValueError:
            return read(value, hint)
        result = find_young(key)
        if result is not None:
            return result
        result = find_old(key)
        if result is None:
            result = read(value, hint)
            if len(key) > _LONGEST:
                return result
        if size + len(key) > _MOST_BYTES or len(young) >= _MOST:
            young, old, size = {}, young, 0
            find_young, find_old = young.get, old.get
        young[key] = result
        size += len(key)
        return result

    return read_shared
