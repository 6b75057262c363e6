"""Builds the wheel and the source distribution of a commit twice, under unlike circumstances, and compares the bits."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.archives import unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
_UNLIKE: Final[tuple[Mapping[str, str], ...]] = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)


class ReleaseError(RuntimeError):
    """The release cannot be made, or is not what it says; the message names what was found and what was expected."""


def git(*words: str, root: Path = ROOT) -> bytes:
    """Return what git prints.

    Raises: ReleaseError if git fails.
    """
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {words[0]}: ended with {done.returncode}: {done.stderr.decode().strip()}")
    return done.stdout


def commit_of(revision: str, root: Path = ROOT) -> tuple[str, int]:
    """Return the hash of a commit, and when it was made, in seconds of Unix time."""
    found = git("show", "--no-patch", "--format=%H %ct", f"{revision}^{{commit}}", root=root).decode().split()
    return found[0], int(found[1])


def build(commit: str, epoch: int, folder: Path, *, root: Path = ROOT) -> list[Path]:
    """Build wheel and source distribution of a commit in ``folder``, and return where they are.

    What is not committed has no part in them. Costs two builds.

    Raises: ReleaseError if a build fails, or if the second does not give the bits of the first.
    """
    archive = git("archive", "--format=tar", commit, root=root)
    hashes = []
    for number, circumstances in enumerate(_UNLIKE):
        with tempfile.TemporaryDirectory(prefix="kai" * (number + 1)) as work:
            source, out = Path(work) / f"source-{number}", Path(work) / "dist"
            _unpack(archive, source, is_strange=bool(number))
            _build_once(source, out, {**circumstances, "SOURCE_DATE_EPOCH": str(epoch)})
            built = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
        hashes.append({name: hashlib.sha256(data).hexdigest() for name, data in built.items()})
        if number == 0:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in built.items():
                (folder / name).write_bytes(data)
    first, second = hashes
    unlike = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if unlike:
        raise ReleaseError(f"{', '.join(unlike)}: found other bits in the second build, expected the same")
    return [folder / name for name in sorted(first)]


def _unpack(archive: bytes, folder: Path, *, is_strange: bool) -> None:
    unpack(archive, folder)
    if not is_strange:
        return
    for path in folder.rglob("*"):  # as another umask and another day would have left them
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1_000_000_000, 1_000_000_000))


def _build_once(source: Path, out: Path, variables: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist", "--directory"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(source.parent), **variables}
    done = subprocess.run(
        [*command, str(out)], cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"hatchling build: ended with {done.returncode}: {done.stderr.strip()[-800:]}")
