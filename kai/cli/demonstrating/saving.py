"""What is left of a demonstration: a folder with the files of the scene, its result, and the cluster at its end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kai.cli.deciding.runsfiles import document
from kai.configuration.reading import default_configuration
from kai.errors import InputError
from kai.scheduler.dump import Input, archive_document, packed
from kai.scheduler.settings import SchedulerSettings
from kai.virtual.measuring import result_of
from kai.wording import counted

if TYPE_CHECKING:
    from kai.cli.console import Console
    from kai.cli.demonstrating.scenes import Told
    from kai.virtual.simulation import Run, Simulation

RESULT, TIMELINE, END = "result.json", "timeline.json", "end.zip"
FILES = "scene"


def save(folder: str, told: Told, run: Simulation, ended: Run, console: Console) -> None:
    """Write everything into a folder, which is made if there is none.

    Raises: InputError for a folder that cannot be written to.
    """
    place = Path(folder)
    result = result_of(ended)
    given = Input(objects=run.cluster.objects(), now=run.cluster.instant(ended.horizon), cycle=ended.cycles)
    settings = SchedulerSettings(configuration=default_configuration(), intake=ended.scene.settings)
    try:
        (place / FILES).mkdir(parents=True, exist_ok=True)
        for file in told.files():
            shutil.copyfile(file, place / FILES / file.name)
        (place / RESULT).write_text(json.dumps(document(result)) + "\n", encoding="utf-8")
        (place / TIMELINE).write_text(json.dumps({"traceEvents": result.trace()}) + "\n", encoding="utf-8")
        (place / END).write_bytes(packed(archive_document(given, settings)))
    except OSError as error:
        raise InputError(f"{folder}: found {error.strerror or error}, expected a folder to write to") from None
    decided = counted(ended.decisions, "decision")
    console.talk(f"saved {folder}: the scene ({FILES}/), {RESULT}, {TIMELINE}, {END} ({decided}, {ended.digest[:12]})")


__all__ = ["save"]
