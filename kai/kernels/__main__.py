"""``python -m kai.kernels warm``: fill the cache of compiled kernels, as the build of an image does."""

import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from kai.kernels import warm


def main(arguments: Sequence[str]) -> int:
    """Compile what is not cached yet and say where it is kept; return the exit status of the program."""
    if list(arguments) != ["warm"]:
        sys.stderr.write("usage: python -m kai.kernels warm\n")
        return 2
    modules, missing = load_plugins()
    found = warm(*modules)
    if not found.kernels:
        sys.stderr.write("there are no kernels to compile while NUMBA_DISABLE_JIT is set\n")
        return 1
    if found.directory is None:
        sys.stderr.write(f"{found.kernels} kernels run, but nothing can be kept: NUMBA_CACHE_DIR names no such place\n")
        return 1
    sys.stdout.write(f"{found.kernels} kernels ready, {found.compiled} compiled just now, kept in {found.directory}\n")
    for message in missing:
        sys.stderr.write(f"{message}\n")
    return 1 if missing else 0


def load_plugins() -> tuple[list[str], list[str]]:
    """Import all installed plugins, so that their kernels are known; return their modules, and what was not loaded."""
    modules, missing = [], []
    for point in sorted(entry_points(group="kai.plugins")):
        try:
            modules.append(point.load().__module__)
        except (ImportError, AttributeError) as error:
            missing.append(f"plugin {point.name!r} cannot be loaded from {point.value}: {error}")
    return modules, missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
