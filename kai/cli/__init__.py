"""The command. ``kai.cli.command`` has the table of commands; each is imported only when it runs."""

from kai.cli.command import complete, main

__all__ = ["complete", "main"]
