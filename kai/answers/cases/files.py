"""Reading input from a path, a folder, or standard input.

The object kinds of plugins are declared before manifests are read, so that their objects are not skipped.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from kai.api.kinds import ApiObject, declare, declare_all
from kai.basics.errors import ConfigError, InputError
from kai.basics.wording import found_by
from kai.deciding.configuration.registry import Registry
from kai.framework.objects import Objects

STANDARD_INPUT = "-"
SUFFIXES = (".yaml", ".yml", ".json")


def place_of(path: str) -> Path:
    """Return the place at ``path``; an empty one, from an unset variable, is refused: it is not the current folder."""
    if not path:
        raise InputError("found an empty path, expected a file or a folder")
    return Path(path)


def files_below(folder: Path) -> list[Path]:
    """Return the manifests of a folder and its subfolders, sorted.

    Hidden files and folders are skipped: they hold private data of programs, such as ``.git``, and in a mounted
    ConfigMap a second copy of every file.

    Raises: OSError for a folder that cannot be listed, so that no input goes missing silently.
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
    """Return the error for a path that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file or folder")
    return InputError(f"{path}: found {found_by(error)}, expected a file or a folder")


def read_standard_input() -> bytes:
    """Return the content of standard input.

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
    """Return the SHA-256 of the texts, concatenated."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text)
    return found.hexdigest()


def declare_kinds(registry: Registry) -> None:
    """Declare the object kinds of all installed plugins.

    Errors of a plugin that cannot be loaded, or that reads a forbidden kind, are ignored here and raised where a
    configuration names it.
    """
    for each in registry.objects():
        with contextlib.suppress(ConfigError):
            declare_objects(each)


def kinds_of(registry: Registry, plugins: Iterable[str]) -> tuple[type[ApiObject], ...]:
    """Declare and return the additional kinds that these plugins read.

    Raises: ConfigError for a kind that kai reads itself.
    """
    return declare_all(registry.objects(plugins).items())


def declare_objects(objects: Objects) -> type[ApiObject]:
    """Declare one kind and return the class of its objects."""
    return declare(objects.api_version, objects.kind, objects.plural, namespaced=objects.namespaced)
