"""Where the program starts: what it consists of is imported from here on."""

import os
import signal
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with these arguments, or with those that were typed.

    Ctrl-C ends the program without a word while its modules are imported: nothing catches it by then. So does SIGTERM,
    also in a container: process 1 is sent no signal that it does not catch, and would work on until it is killed.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kai.cli import command

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command.main(arguments)


def complete() -> None:
    """Answer kubectl, which asks what may follow ``kubectl kai`` and the words behind it."""
    from kai.cli import command

    command.complete()
