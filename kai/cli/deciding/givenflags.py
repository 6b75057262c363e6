"""Flags that would change nothing for the inputs at hand: they are refused, not dropped without a word.

``--cycles``: how often a cluster is decided, as several commands take it.
"""

from collections.abc import Mapping

import click
from click.core import ParameterSource

from kai.simulation.cases.origin import MOST_CYCLES

cycles_option = click.option(
    "--cycles", type=click.IntRange(min=1, max=MOST_CYCLES), help="Number of scheduling cycles."
)


def is_given(name: str) -> bool:
    """Return whether a flag stands on the command line, even with its default."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(flags: Mapping[str, str], where: str, instead: str) -> None:
    """Refuse those of some flags that are given; ``flags`` are names of parameters with what people write.

    Raises: UsageError.
    """
    told = " and ".join(flag for name, flag in flags.items() if is_given(name))
    if told:
        raise click.UsageError(f"{told} cannot be used {where}\n{instead}")


def refuse_of_others(path: str) -> None:
    """Refuse flags about the schedulers of pods for a trace: its jobs name none, and its queues are made already.

    Raises: UsageError.
    """
    from kai.virtual.scenes.file_kinds import is_trace

    if is_trace(path):
        flags = {"schedulers": "--scheduler-name", "queue_from": "--queue-from"}
        refuse_given(flags, "with a trace", f"the jobs of {path} name no scheduler, and their queues are made")


def refuse_of_traces(path: str) -> None:
    """Refuse --skip-bad-rows and --since for a workload that is no trace.

    Raises: UsageError.
    """
    from kai.virtual.scenes.file_kinds import is_trace

    if not is_trace(path):
        refuse_given({"skips_bad_rows": "--skip-bad-rows", "since": "--since"}, "without a trace", f"{path} is none")
