"""``kai warm``: have all kernels compiled before they are needed, as the build of an image does."""

from importlib.metadata import entry_points

import click

from kai.cli.console import Console, console_options
from kai.cli.failures import NO, say_error
from kai.cli.writing import write_kind

EPILOG = """\
Small clusters are decided without compiled kernels; for larger ones they are compiled once, and kept. The
first of these places that can be written to holds them: NUMBA_CACHE_DIR, the package's own folder,
~/.cache/kai. They are compiled again after an update of kai, of a plugin with kernels, or of numba.
"""


@click.command(epilog=EPILOG)
@console_options(("table", "json", "yaml"))
def warm(console: Console) -> int:
    """Compile the kernels of kai and of all installed plugins, and keep them."""
    from kai.kernels.warm import warm as warm_kernels
    from kai.progress import report
    from kai.simulation.deciding.kernel_pace import COMPILING

    modules, problems = load_plugins()
    found = warm_kernels(*modules, tell=lambda done, total: report(COMPILING, done, total))
    if not found.kernels:
        problems.append("there are no kernels to compile while NUMBA_DISABLE_JIT is set")
    elif found.directory is None:
        problems.append(f"{found.kernels} kernels run, but nothing can be kept: NUMBA_CACHE_DIR names no such place")
    elif console.output == "table":
        counts = f"{found.kernels} kernels ready, {found.compiled} compiled just now"
        console.write(f"{counts}, kept in {found.directory}")
    else:
        values = {"kernels": found.kernels, "compiled": found.compiled, "directory": str(found.directory)}
        write_kind("Kernels", values, console)
    for message in problems:
        say_error(message)
    return NO if problems else 0


def load_plugins() -> tuple[list[str], list[str]]:
    """Import all installed plugins, so that their kernels are known; return their modules, and what was not loaded."""
    modules, missing = [], []
    for point in sorted(entry_points(group="kai.plugins")):
        try:
            modules.append(point.load().__module__)
        except Exception as error:  # noqa: BLE001 - the boundary of a package that is not ours: the others are compiled
            missing.append(f"plugin {point.name!r} cannot be loaded from {point.value}: {error}")
    return modules, missing
