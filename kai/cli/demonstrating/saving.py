"""What is left of a demonstration: a folder with the files of the scene, its result, and the cluster at its end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kai.cli.deciding.runsfiles import document
from kai.cli.deciding.saved import END, FILES, RESULT, TIMELINE
from kai.configuration.reading import default_configuration
from kai.errors import InputError
from kai.virtual.moments import archive_of, reasons_at_the_end
from kai.virtual.results.metrics import result_of
from kai.wording import counted, first_of, found_by

if TYPE_CHECKING:
    from kai.cli.console import Console
    from kai.cli.demonstrating.scenes import DemoScene
    from kai.virtual.running.simulation import Run

_POLICIES: Final = {"default.yaml": frozenset[str](), "no-reclaim.yaml": frozenset({"reclaim"})}
"""Which actions policies leave out that are saved, to be compared on the scene."""


def prepare(folder: str, scene: DemoScene) -> None:
    """See that a folder can take what will be saved, before the scene begins: it lasts minutes. It is made if need be.

    Raises: InputError for a folder that cannot be written to, or that holds files of another scene: both together
    would be read as one.
    """
    files = Path(folder) / FILES
    known = {file.name for file in scene.files()}
    try:
        files.mkdir(parents=True, exist_ok=True)
        others = sorted(file.name for file in files.iterdir() if file.name not in known)
        writable = os.access(folder, os.W_OK) and os.access(files, os.W_OK)
    except OSError as error:
        raise InputError(f"{folder}: found {found_by(error)}, expected a folder to write to") from None
    if not writable:
        raise InputError(f"{folder}: found no right to write, expected a folder to write to")
    if others:
        found = first_of(others)
        raise InputError(f"{files}: found {found}, expected an empty folder, or the files of scene {scene.name} alone")


def save(folder: str, scene: DemoScene, ended: Run, console: Console) -> None:
    """Write everything into a folder, which is made if there is none.

    Raises: InputError for a folder that cannot be written to.
    """
    place = Path(folder)
    result = result_of(ended, reasons=reasons_at_the_end(ended))
    try:
        (place / FILES).mkdir(parents=True, exist_ok=True)
        for file in scene.files():
            shutil.copyfile(file, place / FILES / file.name)
        for name, without in _POLICIES.items():
            (place / name).write_text(_policy(without), encoding="utf-8")
        (place / RESULT).write_text(json.dumps(document(result)) + "\n", encoding="utf-8")
        (place / TIMELINE).write_text(json.dumps({"traceEvents": result.trace()}) + "\n", encoding="utf-8")
        (place / END).write_bytes(archive_of(ended.end))
    except OSError as error:
        raise InputError(f"{folder}: found {found_by(error)}, expected a folder to write to") from None
    decided = counted(ended.decisions, "decision")
    files = f"the scene ({FILES}/), {counted(len(_POLICIES), 'policy', 'policies')}, {RESULT}, {TIMELINE}, {END}"
    console.talk(f"saved {folder}: {files} ({decided}, {ended.digest[:12]})")


def _policy(without: frozenset[str]) -> str:
    """Return the default actions but for some as a configuration."""
    actions = [name for name in default_configuration().actions if name not in without]
    return f"actions: {', '.join(actions)}\n"
