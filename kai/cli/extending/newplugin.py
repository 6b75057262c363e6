"""``kai plugins new``: the package of a plugin, written from the files in ``kai/cli/extending/template``.

The plugin that is written prefers nodes with a label. It is small enough to be replaced, and complete enough to be
installed, enabled and tested as it is.
"""

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from kai.configuration.registry import Registry, origin_of
from kai.documents.distribution import DISTRIBUTION
from kai.errors import CommandLineError, InputError

FILES = {
    "README.md": "README.md.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "policy.yaml": "policy.yaml.txt",
    "{module}/__init__.py": "plugin.py.txt",
    "{module}/py.typed": "py.typed.txt",
    "tests/test_{module}.py": "test.py.txt",
}
"""Files of a package, and the templates that they are made of."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_package(name: str, into: str | None = None) -> tuple[Path, list[str]]:
    """Write the package of a plugin called ``name``; return its folder and the files in it.

    Raises: CommandLineError for a name that no plugin can have, InputError for a folder that has something in it.
    """
    short = name.removeprefix("kai-")
    if not _NAME.fullmatch(short):
        wanted = "small letters, digits and hyphens, beginning with a letter"
        raise CommandLineError.about("kai plugins new", "NAME", found=name, wanted=wanted)
    points = Registry.installed().plugins.get(short, ())
    if any(origin_of(point).distribution == DISTRIBUTION for point in points):
        raise CommandLineError.about("kai plugins new", "NAME", found=name, wanted="a name that no plugin of kai has")
    words = {
        "name": short,
        "distribution": f"kai-{short}",
        "module": f"kai_{short.replace('-', '_')}",
        "cls": "".join(part.capitalize() for part in short.split("-")),
    }
    folder = Path(into if into is not None else words["distribution"])
    try:
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder}: found files, expected a folder that is empty or not there yet")
        written = [target.format(**words) for target in FILES]
        for target, template in zip(written, FILES.values(), strict=True):
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (files("kai.cli.extending") / "template" / template).read_text(encoding="utf-8")
            path.write_text(Template(text).substitute(words), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror or error}") from error
    return folder, written
