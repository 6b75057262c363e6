"""The statement about a release: which files, of which commit, built from what, by which builder.

It is an in-toto statement with the predicate of SLSA's provenance, version 1. The same commit, files and builder give
the same bytes: there is no time and no number drawn by chance, so that a second build can be compared with the first.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.image.contents import python_address
from tests.release.packages import ReleaseError, git

if TYPE_CHECKING:
    from collections.abc import Iterable

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD: Final = "urn:kai:build:nox-release:v1"
MEDIA_TYPE: Final = "application/vnd.in-toto+json"
_BUILT_BY: Final = ("hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")
_READ: Final = ("pyproject.toml", "requirements/dev.txt", "requirements/runtime.txt", "Containerfile")


def sha256(path: Path) -> str:
    """Return the hash of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def statement(files: Iterable[Path], commit: str, epoch: int, builder: str, *, root: Path) -> dict[str, Any]:
    """Return what is said about files that were built from a commit.

    Materials are the commit, the files of it that say which packages are taken, by their hashes, and the packages that
    built it, whose hashes are in the second of these.

    Raises: ReleaseError if one of these packages is here in another version than the commit pins.
    """
    pins = set(re.findall(r"^[^ =]+==[^ ;\\]+", _shown(commit, "requirements/dev.txt", root).decode(), re.MULTILINE))
    here = {name: version(name) for name in _BUILT_BY}
    if strange := [f"{name}=={number}" for name, number in here.items() if f"{name}=={number}" not in pins]:
        raise ReleaseError(f"building packages: found {', '.join(strange)}, expected what requirements/dev.txt pins")
    materials: list[dict[str, Any]] = [{"name": "source", "digest": {"gitCommit": commit}}]
    for name in _READ:
        digest = hashlib.sha256(_shown(commit, name, root)).hexdigest()
        materials.append({"name": name, "digest": {"sha256": digest}})
    materials += [{"uri": python_address(name, number)} for name, number in here.items()]
    return {
        "_type": STATEMENT,
        "subject": [{"name": each.name, "digest": {"sha256": sha256(each)}} for each in sorted(files)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": str(epoch)},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


def _shown(commit: str, name: str, root: Path) -> bytes:
    return git("show", f"{commit}:{name}", root=root)


def encoded(document: dict[str, Any]) -> bytes:
    """Return a statement as the bytes that are signed."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def check(payload: bytes, folder: Path) -> str:
    """Return the commit that a statement names, if each of its files is in ``folder`` with the hash that it states.

    Raises: ReleaseError.
    """
    said = json.loads(payload)
    for key, expected in (("_type", STATEMENT), ("predicateType", PREDICATE)):
        if said.get(key) != expected:
            raise ReleaseError(f"statement, {key}: found {said.get(key)!r}, expected {expected}")
    if not said["subject"]:
        raise ReleaseError("statement, subject: found no file, expected at least the wheel")
    for subject in said["subject"]:
        path, stated = folder / Path(subject["name"]).name, subject["digest"]["sha256"]
        found = sha256(path) if path.is_file() else "no file"
        if found != stated:
            raise ReleaseError(f"{path.name}, sha256: found {found}, expected {stated} as the statement says")
    commit: str = said["predicate"]["buildDefinition"]["externalParameters"]["commit"]
    return commit
