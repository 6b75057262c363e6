"""The scenes of ``kai demo``: folders of manifests in this package, each with a title and what to watch in it.

A scene is data. ``scene.toml`` says what it is called, how long it lasts, and how fast it goes; the others
are what ``kai simulate`` takes as well.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kai.errors import CommandLineError

if TYPE_CHECKING:
    from kai.virtual.scenes.loading import Loaded

FOLDER: Final = Path(__file__).parent / "scenes"
NAMES: Final = ("lab", "gang", "fraction", "topology", "reclaim")
"""In the order in which they are best looked at."""
_ABOUT: Final = "scene.toml"


@attrs.frozen(kw_only=True)
class DemoScene:
    """What a scene says of itself.

    Units: seconds of virtual time a second for ``speed``.
    """

    name: str
    title: str
    watch: str
    """What there is to be seen."""
    until: str
    speed: float
    workload: str = ""
    """A file of the folder; "" for all of them."""
    cluster: str = ""

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return FOLDER / self.name

    def load(self, seed: int) -> Loaded:
        """Return the scene, ready to be run.

        Raises: InputError that names what is wrong with which file.
        """
        from kai.configuration.registry import Registry
        from kai.simulation.sources.plugin_kinds import declare_kinds
        from kai.virtual.scenes.loading import load

        declare_kinds(Registry.installed())
        cluster = str(self.folder / self.cluster) if self.cluster else None
        found = load(str(self.folder / self.workload), cluster, seed)
        return attrs.evolve(found, scene=attrs.evolve(found.scene, title=self.name))

    def files(self) -> tuple[Path, ...]:
        """Return the files that make the scene, in the order of their names."""
        return tuple(sorted(each for each in self.folder.iterdir() if each.is_file() and each.name != _ABOUT))


def scene_named(name: str) -> DemoScene:
    """Return what a scene says of itself.

    Raises: CommandLineError for a name that no scene has.
    """
    if name not in NAMES:
        raise CommandLineError.about("command line", "SCENE", found=name, wanted=f"one of {', '.join(NAMES)}")
    text = (FOLDER / name / _ABOUT).read_text(encoding="utf-8")
    return DemoScene(name=name, **tomllib.loads(text))
