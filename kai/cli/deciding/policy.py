"""A configuration for simulations: its settings replace those of the case, which keeps all others.

Refuse flags that have no effect on the inputs at hand, instead of ignoring them. Also the flag ``--cycles``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click
from click.core import ParameterSource

from kai.answers.cases.origin import MOST_CYCLES
from kai.cli.running.configuring import read_text, setup_of, with_flags
from kai.cli.running.flags import read_flags
from kai.cli.running.roleflags import FLAGS, PARAMETER_OF, ROLES, SCHEDULER, SETTING_OF, TOGETHER
from kai.cli.running.roles import configuration_of, intake_of
from kai.lab.request import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.deciding.configuration.registry import Registry


def load_policy(path: str) -> Policy:
    """Return the policy in a file; for a SchedulingShard with the flags that it renders to, as for `kai run`.

    Raises: ConfigError.
    """
    return policy_of(read_text(path), path)


def policy_of(text: bytes, place: str, registry: Registry | None = None) -> Policy:
    """Return the policy in a text, as ``load_policy``; ``place`` names the text in errors.

    Raises: ConfigError.
    """
    setup = setup_of(text, place, registry)
    if setup.shard is None:
        return Policy(configuration=setup.configuration, said=setup.said, document=setup.document)
    given = with_flags(read_flags([SCHEDULER], FLAGS, ROLES, TOGETHER), setup.shard, place)
    parameters = configuration_of(given)[0].parameters
    intake = intake_of(given)
    changed = {
        PARAMETER_OF[name]: getattr(parameters, PARAMETER_OF[name]) for name in given.named & PARAMETER_OF.keys()
    }
    own = setup.configuration
    return Policy(
        configuration=attrs.evolve(own, parameters=attrs.evolve(own.parameters, **changed)),
        said=setup.said | changed.keys(),
        document=setup.document,
        settings={SETTING_OF[name]: getattr(intake, SETTING_OF[name]) for name in given.named & SETTING_OF.keys()},
    )


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
