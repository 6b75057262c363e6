"""``kai help``: the help of a command, for those who ask first for help and then for what."""

import click

from kai.cli.command import kai
from kai.cli.failures import write_out


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
