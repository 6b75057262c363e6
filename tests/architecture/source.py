"""The source of kai as the architecture tests see it: files and syntax trees, nothing imported."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kai"

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen(slots=False)
class Module:
    """One file of Python."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree, once it is asked for: each process of the suite lists all files, and one looks."""
        return ast.parse(self.text, filename=str(self.path))

    @property
    def place(self) -> str:
        """Return the path from the root of the repository, as a person would write it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """Return the dotted name."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self) -> bool:
        """Return whether this is a package's ``__init__``."""
        return self.path.name == "__init__.py"

    def functions(self) -> Iterator[AnyFunction]:
        """Yield every function, methods and closures included."""
        for node in ast.walk(self.tree):
            if isinstance(node, AnyFunction):
                yield node


@cache
def modules(folder: Path = PACKAGE) -> tuple[Module, ...]:
    """Return every module under ``folder``, sorted by path."""
    return tuple(Module(path, path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))


def packages() -> tuple[Module, ...]:
    """Return the ``__init__`` of every package of kai."""
    return tuple(module for module in modules() if module.is_package)


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of every tracked file that is UTF-8 text.

    Without git (an unpacked source distribution) everything there is counts as tracked.
    """
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0:
        places = listing.stdout.decode().split("\0")
    else:
        places = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if ".venv" not in path.parts]
    for place in sorted(filter(None, places)):
        path = ROOT / place
        if not path.is_file():
            continue
        try:
            yield place, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
