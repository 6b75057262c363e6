"""Where input comes from: a path, a folder, or standard input."""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from kai.errors import InputError
from kai.wording import found_by

STANDARD_INPUT = "-"
SUFFIXES = (".yaml", ".yml", ".json")


def place_of(path: str) -> Path:
    """Return the place at ``path``; an empty one, of a variable that is not set, is not the current folder."""
    if not path:
        raise InputError("found an empty path, expected a file or a folder")
    return Path(path)


def files_below(folder: Path) -> list[Path]:
    """Return the manifests of a folder and of the folders in it, sorted.

    Hidden files and folders are passed over: they hold what programs keep for themselves, as ``.git`` does, and in a
    mounted ConfigMap a second copy of every file.

    Raises: OSError for a folder that cannot be listed, so that no part of the input is missing in silence.
    """
    found = list[Path]()
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in files if not name.startswith(".") and name.endswith(SUFFIXES))
        found += (path for path in paths if path.is_file())
    return sorted(found)


def _raise(error: OSError) -> NoReturn:
    raise error


def unread(path: str, error: OSError) -> InputError:
    """Return the error for what cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file or folder")
    return InputError(f"{path}: found {found_by(error)}, expected a file or a folder")


def read_standard_input() -> bytes:
    """Return all that comes on standard input.

    Raises: InputError where it is closed, or cannot be read.
    """
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise InputError("standard input: found it closed, expected manifests or a scenario")
    try:
        return stream.buffer.read()
    except OSError as error:
        raise InputError(f"standard input: found {found_by(error)}, expected text") from None


def sum_of(texts: Sequence[bytes]) -> str:
    """Return the SHA-256 of what was read, file behind file."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text)
    return found.hexdigest()
