"""The scenes of ``kai demo``: folders of manifests in this package, each with a title and what to watch in it.

A scene is data. ``scene.toml`` gives its title, duration and speed; the other files are inputs of ``kai simulate``.

`save` writes a folder with the files of the scene, its result, and the cluster at its end.
"""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.errors import CommandLineError, InputError
from kai.basics.wording import counted, first_of, found_by
from kai.cli.deciding.runs import END, FILES, RESULT, TIMELINE
from kai.cli.deciding.runsfiles import document
from kai.deciding.configuration.profile_reading import default_configuration
from kai.lab.virtual.experiments import archive_of, reasons_at_the_end
from kai.lab.virtual.results.metrics import result_of

if TYPE_CHECKING:
    from kai.cli.console import Console
    from kai.lab.virtual.running.simulation import Run
    from kai.lab.virtual.scenes.loading import Loaded


FOLDER: Final = Path(__file__).parent / "scenes"
NAMES: Final = ("lab", "gang", "fraction", "topology", "reclaim")
"""The names of the scenes, in the suggested order."""
_ABOUT: Final = "scene.toml"


@attrs.frozen(kw_only=True)
class DemoScene:
    """The description of a scene, from ``scene.toml``.

    Units: seconds of virtual time a second for ``speed``.
    """

    name: str
    title: str
    watch: str
    """What to watch for."""
    until: str
    speed: float
    workload: str = ""
    """The file in the folder to run; "" for all of them."""
    cluster: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return FOLDER / self.name

    def load(self, seed: int) -> Loaded:
        """Return the scene, ready to be run.

        Raises: InputError that names what is wrong with which file.
        """
        from kai.answers.cases.files import declare_kinds
        from kai.deciding.configuration.registry import Registry
        from kai.lab.virtual.scenes.loading import load

        declare_kinds(Registry.installed())
        cluster = str(self.folder / self.cluster) if self.cluster else None
        found = load(str(self.folder / self.workload), cluster, seed)
        return attrs.evolve(found, scene=attrs.evolve(found.scene, title=self.name))

    def files(self) -> tuple[Path, ...]:
        """Return the files of the scene, sorted by name."""
        return tuple(sorted(each for each in self.folder.iterdir() if each.is_file() and each.name != _ABOUT))


def scene_named(name: str) -> DemoScene:
    """Return the description of a scene.

    Raises: CommandLineError for an unknown name.
    """
    if name not in NAMES:
        raise CommandLineError.about("command line", "SCENE", found=name, wanted=f"one of {', '.join(NAMES)}")
    text = (FOLDER / name / _ABOUT).read_text(encoding="utf-8")
    return DemoScene(name=name, **tomllib.loads(text))


_POLICIES: Final = {"default.yaml": frozenset[str](), "no-reclaim.yaml": frozenset({"reclaim"})}
"""The policies to save for comparison on the scene, with the actions that each leaves out."""


def prepare(folder: str, scene: DemoScene) -> None:
    """Check that a folder can take the saved files, before a scene of minutes begins; make it if need be.

    Raises: InputError for a folder that cannot be written to, or that holds files of another scene: both together would
    be read as one.
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
    """Write the scene, its result and its last cluster into a folder, which is made if there is none.

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
    """Return a configuration with the default actions except ``without``."""
    actions = [name for name in default_configuration().actions if name not in without]
    return f"actions: {', '.join(actions)}\n"
