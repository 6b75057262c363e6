"""The entry point of the program. It imports the rest of it only after handling signals."""

import os
import signal
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with these arguments, or with those of the process.

    Ctrl-C during the imports ends the program silently, since nothing catches a KeyboardInterrupt yet. So does SIGTERM,
    also in a container: the kernel drops signals without a handler in process 1, which would run on until it is killed.
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
    """Answer kubectl, which asks for completions of ``kubectl kai`` and the words after it."""
    from kai.cli import command

    command.complete()
