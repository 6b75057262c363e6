"""The commands with their help texts, as click prints them."""

from collections.abc import Iterator

import click

from kai.cli.command import COMMANDS, CONTEXT, kai

WIDTH = 100


def commands(_: str, __: str) -> str:
    """Return a section for each command and each command below it."""
    return "\n\n".join(f"## {name}\n\n```text\n{text}\n```" for name, text in _helps())


def _helps() -> Iterator[tuple[str, str]]:
    root = click.Context(kai, info_name="kai", terminal_width=WIDTH, **CONTEXT)
    for name in COMMANDS:
        command = kai.get_command(root, name)
        if command is not None:
            yield from _below(command, name, root)


def _below(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    with click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    ) as context:
        yield context.command_path, command.get_help(context)
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                if found is not None:
                    yield from _below(found, below, context)
