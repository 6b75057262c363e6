"""The entry point: a table of commands that are imported when they run, and the mapping of errors to exit codes."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast

import click

from kai.api.memory import spared
from kai.basics.errors import KaiError
from kai.cli.failures import (
    INTERRUPTED,
    USAGE,
    OutputError,
    ReaderGoneError,
    check_out,
    flush_out,
    leave_reader,
    reader_watched,
    report_error,
    report_unexpected,
    say_error,
    write_out,
)

COMMANDS = {
    "run": ("running.run:run", "Run the service in a cluster: all roles in one process, or some of them."),
    "simulate": (
        "deciding.simulate:simulate",
        "Run the scheduler on manifests or a snapshot and show its decisions.",
    ),
    "demo": ("demonstrating.demo:demo", "Watch a cluster in this process, decision by decision."),
    "would-run": ("deciding.wouldrun:would_run", "Say what would happen if a workload were applied now."),
    "lint": ("checking.lint:lint", "Check manifests, queues, configurations and scenarios."),
    "queues": ("listing.queues:queues", "Show who is entitled to what, who has it, and who wants it."),
    "jobs": ("listing.jobs:jobs", "Show what runs, what waits, why, and in which order."),
    "nodes": ("listing.nodes:nodes", "Show where the GPUs are, who has them, and in what pieces."),
    "why": (
        "explaining.why:why",
        "Tell why a job waits, a queue has its share, or a node is empty, and what would help.",
    ),
    "history": ("listing.report:history", "Show over time what a queue held, from the file that the scheduler writes."),
    "report": ("listing.report:report_command", "Report who used what over days, weeks or months, from the same file."),
    "plugins": ("extending.plugins:plugins", "List plugins and what they do; write the package of a new one."),
    "snapshot": (
        "deciding.snapshots:snapshot",
        "Save the state that the scheduler sees, with the decisions made of it.",
    ),
    "replay": ("deciding.snapshots:replay", "Decide once more on a snapshot and show the decisions as a plan."),
    "diff": ("deciding.diff:diff", "Compare two policies, two results or two snapshots."),
    "doctor": ("checking.doctor:doctor", "Check that an installation is healthy; each finding has a line that helps."),
    "warm": ("about:warm", "Compile the kernels that larger clusters are decided with, and keep them."),
    "version": ("about:version", "Show the versions of all parts."),
    "reserve": ("running.reserve:reserve", "Hold a GPU that pods share; what reservation pods run."),
    "completion": ("about:completion", "Print the shell script that completes commands and options."),
    "help": ("about:help_", "Show the help of a command."),
}
"""Name, place within ``kai.cli``, and help text of each command: the help must not import commands."""

LASTING = ("run", "reserve")
"""Commands that run as long as their pods; all others answer and end."""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_ALSO: Final = {
    "check": "lint",
    "describe": "why",
    "dry-run": "would-run",
    "explain": "why",
    "get": "jobs",
    "pods": "jobs",
    "status": "jobs",
    "validate": "lint",
}
"""Names from other tools, for suggestions; none of them is similar enough to be found by spelling."""


class _Asked(click.Context):
    """The context of a command line, which checks standard output before it writes help."""

    def get_help(self) -> str:
        """Return the help. Check standard output first, as help is only requested to be written."""
        check_out()
        return super().get_help()


def _asked(command: click.Command) -> click.Command:
    """Return the command, after giving it and its subcommands `_Asked` contexts."""
    command.context_class = _Asked
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _asked(each)
    return command


class Commands(click.Group):
    """The group of the commands in the table above."""

    context_class = _Asked

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - passed on to click
        """Parse the command line. Help and completions are written while parsing, so catch a closed pipe here too."""
        with reader_watched():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as commands of click return
        """Run the command, catching a closed pipe."""
        with reader_watched():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None for an unknown one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        # Imported here and not above: the help of all commands must not pay for any of them.
        return _asked(cast("click.Command", getattr(importlib.import_module(f"kai.cli.{module}"), name)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with a suggestion."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            import difflib

            near = [_ALSO[name]] if name in _ALSO else difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean kai {near[0]}?" if near else "kai --help lists the commands"
            raise click.UsageError(f"{name!r} is no command of kai\n{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:  # noqa: FBT001 - as click calls it
    if is_wanted and not context.resilient_parsing:
        from kai.answers.documents.document import DISTRIBUTION, installed

        write_out(f"kai {installed(DISTRIBUTION)}\n")
        context.exit()


@click.group(cls=Commands, context_settings=CONTEXT, invoke_without_command=True)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def kai(context: click.Context) -> None:
    """Decide which AI workloads run where in a Kubernetes cluster."""
    if context.invoked_subcommand is None:
        write_out(context.get_help() + "\n")


def _asked_for(arguments: Sequence[str], error: click.UsageError | None = None) -> str:
    """Return the command that was used wrongly; click does not name it for an option without a value."""
    if error is not None and error.ctx is not None:
        return error.ctx.command_path
    return f"kai {arguments[0]}" if arguments and arguments[0] in COMMANDS else "kai"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code (``kai.cli.failures``)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # A program that runs for weeks needs the collector that a short one is spared.
    if words and words[0] in LASTING:
        sys.exit(run(words))
    with spared():
        status = run(words)
    sys.exit(status)


def complete() -> None:
    """Answer kubectl, which asks for completions of ``kubectl kai`` and the words after it."""
    from kai.cli.completing import complete_for_kubectl

    try:
        write_out(complete_for_kubectl(kai, sys.argv[1:]) + "\n")
        flush_out()
    except (OutputError, ReaderGoneError):
        sys.exit(leave_reader())


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code. Nothing that a person can type ends in a traceback."""
    try:
        result: Any = kai.main(args=arguments, prog_name="kai", standalone_mode=False)
        flush_out()
    except click.MissingParameter as error:  # its message spans lines, one for each choice
        say_error(" ".join(error.format_message().split()), f"{_asked_for(arguments, error)} --help")
        return USAGE
    except click.UsageError as error:
        message, _, hint = error.format_message().partition("\n")
        path = _asked_for(arguments, error)
        say_error(message, hint or f"{path} --help")
        return USAGE
    except click.ClickException as error:
        say_error(error.format_message())
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except KaiError as error:
        return report_error(error, usage=f"{_asked_for(arguments)} --help")
    except (ReaderGoneError, BrokenPipeError):
        return leave_reader()
    except Exception as error:  # noqa: BLE001 - at the top level a bug becomes one line and a file
        return report_unexpected(error, "kai " + " ".join(arguments))
    return result if isinstance(result, int) else 0
