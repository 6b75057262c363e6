"""Refuse flags that have no effect on the inputs at hand, instead of ignoring them. Also the flag ``--cycles``."""

from collections.abc import Mapping

import click
from click.core import ParameterSource

from kai.answers.cases.origin import MOST_CYCLES

cycles_option = click.option(
    "--cycles", type=click.IntRange(min=1, max=MOST_CYCLES), help="Number of scheduling cycles."
)


def is_given(name: str) -> bool:
    """Return whether a flag was typed, even with its default value."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(flags: Mapping[str, str], where: str, instead: str) -> None:
    """Refuse each of ``flags`` that was typed; it maps names of parameters to flags as they are written.

    Raises: UsageError.
    """
    refused = " and ".join(flag for name, flag in flags.items() if is_given(name))
    if refused:
        raise click.UsageError(f"{refused} cannot be used {where}\n{instead}")


def refuse_of_others(path: str) -> None:
    """Refuse flags about other schedulers' pods for a trace: its jobs name no scheduler, and its queues exist already.

    Raises: UsageError.
    """
    from kai.lab.virtual.scenes.file_kinds import is_trace

    if is_trace(path):
        flags = {"schedulers": "--scheduler-name", "queue_from": "--queue-from"}
        refuse_given(flags, "with a trace", f"the jobs of {path} name no scheduler, and their queues are made")


def refuse_of_traces(path: str) -> None:
    """Refuse --skip-bad-rows and --since for a workload that is no trace.

    Raises: UsageError.
    """
    from kai.lab.virtual.scenes.file_kinds import is_trace

    if not is_trace(path):
        refuse_given({"skips_bad_rows": "--skip-bad-rows", "since": "--since"}, "without a trace", f"{path} is none")
