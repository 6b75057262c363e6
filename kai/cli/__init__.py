"""The command line: ``kai.cli.command`` has the table of commands, and imports each only when it runs.

This package has what all commands share: the console, sources, tables, the envelope of documents, errors and exit
codes. The commands are in subpackages: ``running`` (``kai run``), ``listing`` (jobs, queues, nodes), ``explaining``
(why), ``deciding`` (simulate, would-run, replay, diff, snapshot), ``demonstrating`` (demo), ``checking`` (lint,
doctor), ``extending`` (plugins); ``output_kinds`` has the kinds of documents. ``docs/design/0012-reading-commands.md``
explains how a reading command works.
"""

from kai.cli.starting import complete, main

__all__ = ["complete", "main"]
