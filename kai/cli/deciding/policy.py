"""A configuration for simulations: its settings replace those of the case, which keeps all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kai.cli.running.configuring import read_text, setup_of, with_flags
from kai.cli.running.flags import read_flags
from kai.cli.running.roleflags import FLAGS, PARAMETER_OF, ROLES, SCHEDULER, SETTING_OF, TOGETHER
from kai.cli.running.roles import configuration_of, intake_of
from kai.lab.request import Policy

if TYPE_CHECKING:
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
