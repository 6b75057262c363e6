"""A disk that may be full."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@attrs.define
class Disk:
    """Opens real files; once there is no room, they take no more bytes."""

    room: int | None = None
    """How many bytes may still be written; None: as many as one likes."""

    def open(self, path: str | Path, mode: str, opener: Callable[[str, int], int] | None = None) -> io.BufferedWriter:
        """Open a file to write to it."""
        return io.BufferedWriter(_File(self, path, mode, opener))


class _File(io.FileIO):
    def __init__(self, disk: Disk, path: str | Path, mode: str, opener: Callable[[str, int], int] | None) -> None:
        super().__init__(path, mode, opener=opener)
        self._disk = disk

    def write(self, data: Any, /) -> int:
        """Write what there is room for; raise as the system does where there is none."""
        room = self._disk.room
        if room is None:
            return super().write(data)
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = super().write(bytes(data)[:room])
        self._disk.room = room - count
        return count
