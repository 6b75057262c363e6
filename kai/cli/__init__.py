"""The program: ``kai.cli.command`` has the table of commands, and imports each only when it runs.

Here is what all commands share: the console, sources, tables, the envelope of documents, errors and exit codes. The
commands are in rooms: ``running`` (``kai run``), ``listing`` (jobs, queues, nodes), ``explaining`` (why), ``deciding``
(simulate, would-run, replay, diff, snapshot), ``checking`` (lint, doctor), ``extending`` (plugins); ``schemas`` are the
documents as classes. How a reading command works is told in ``docs/design/0012-reading-commands.md``.
"""

from kai.cli.starting import complete, main

__all__ = ["complete", "main"]
