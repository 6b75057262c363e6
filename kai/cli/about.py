"""Commands about the program itself: ``kai version``, ``warm``, ``completion`` and ``help``.

``kai version`` lists the versions of everything that a decision depends on, and the schemas of kai's documents.

``kai warm`` compiles all kernels ahead of time, as the build of an image does.

``kai completion`` prints the script with which a shell completes commands and options.

``kai help COMMAND`` is ``kai COMMAND --help``.
"""

import difflib
import json
import platform
import sys
from importlib.metadata import entry_points

import click
from click.shell_completion import get_completion_class

from kai.answers.documents.document import DISTRIBUTION, enveloped, installed
from kai.basics.errors import KaiError
from kai.basics.wording import shown
from kai.cli.command import kai
from kai.cli.console import Console, console_options, write_document, write_kind
from kai.cli.failures import NO, say_error, write_out

PARTS = (
    "attrs",
    "cattrs",
    "msgspec",
    "numba",
    "numpy",
    "kubernetes-asyncio",
    "anyio",
    "opentelemetry-sdk",
    "structlog",
)


@click.command()
@click.option("--schema", default="", metavar="KIND", help="Print the JSON Schema of a kind that -o json writes.")
@console_options(("table", "json", "yaml"))
def version(console: Console, schema: str) -> None:
    """Show the versions of kai, Python and the packages it stands on."""
    if schema:
        console.write(json.dumps(_schema(schema), indent=2))
        return
    parts = {"kai": installed(DISTRIBUTION), "python": platform.python_version()}
    parts |= {name: installed(name) for name in PARTS}
    if console.is_for_machines:
        write_document(enveloped("Versions", parts), console)
    else:
        width = max(map(len, parts))
        console.write("\n".join(f"{name:<{width}}  {value}" for name, value in parts.items()))
        console.talk(f"from {sys.prefix}", level=1)


def _schema(kind: str) -> dict[str, object]:
    """Return the schema of a kind.

    Raises: UsageError for an unknown kind.
    """
    from kai.cli.output_kinds import KINDS, kind_schema

    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(KINDS)}"
        raise click.UsageError(f"--schema: found {shown(kind)}, expected a kind with a schema\n{hint}")
    return kind_schema(kind)


EPILOG = """\
Small clusters are decided without compiled kernels; for larger ones they are compiled once, and kept. The
first of these places that can be written to holds them: NUMBA_CACHE_DIR, the package's own folder,
~/.cache/kai. They are compiled again after an update of kai, of a plugin with kernels, or of numba.
"""


@click.command(epilog=EPILOG)
@console_options(("table", "json", "yaml"))
def warm(console: Console) -> int:
    """Compile the kernels of kai and of all installed plugins, and keep them."""
    from kai.answers.offline.run import COMPILING
    from kai.basics.progress import report
    from kai.facts.compiled.warm import warm as warm_kernels

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
        from kai.answers.documents.listings import Kernels

        kept = Kernels(kernels=found.kernels, compiled=found.compiled, directory=str(found.directory))
        write_kind(kept, console)
    for message in problems:
        say_error(message)
    return NO if problems else 0


def load_plugins() -> tuple[list[str], list[str]]:
    """Import all installed plugins to register their kernels; return their modules, and the failed ones."""
    modules, missing = [], []
    for point in sorted(entry_points(group="kai.plugins")):
        try:
            modules.append(point.load().__module__)
        except Exception as error:  # noqa: BLE001 - a broken third-party package must not stop the others
            missing.append(f"plugin {point.name!r} cannot be loaded from {point.value}: {error}")
    return modules, missing


SHELLS = ("bash", "zsh", "fish")


@click.command(epilog='Put `eval "$(kai completion bash)"` into the start file of the shell.')
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    script = get_completion_class(shell)
    if script is None:
        raise KaiError(f"completion: found {shell}, expected one of {', '.join(SHELLS)}")
    write_out(script(kai, {}, "kai", "_KAI_COMPLETE").source() + "\n")


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND, or of kai."""
    parent = context.parent or context
    command: click.Command = kai
    for at, word in enumerate(words):
        if not isinstance(command, click.Group):
            break
        name, found, _ = command.resolve_command(parent, [word])
        if found is None:
            raise click.UsageError(f"{' '.join(words[: at + 1])!r} is no command of kai", parent)
        parent = click.Context(found, info_name=name, parent=parent)
        command = found
    write_out(command.get_help(parent) + "\n")
