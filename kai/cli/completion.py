"""``kai completion``: the script that a shell reads to complete commands and options."""

import click
from click.shell_completion import get_completion_class

from kai.cli.command import kai
from kai.cli.failures import write_out
from kai.errors import KaiError

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog='Put `eval "$(kai completion bash)"` into the start file of the shell.')
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    script = get_completion_class(shell)
    if script is None:
        raise KaiError(f"completion: found {shell}, expected one of {', '.join(SHELLS)}")
    write_out(script(kai, {}, "kai", "_KAI_COMPLETE").source() + "\n")
