"""Settings of roles from flags: a shadow runs beside nothing that writes."""

import pytest

from kai.cli.running.flags import read_flags
from kai.cli.running.roleflags import FLAGS, ROLES, TOGETHER
from kai.cli.running.roles import scheduler_settings
from kai.errors import ConfigError


def settings(*arguments):
    return scheduler_settings(read_flags(arguments, FLAGS, ROLES, TOGETHER))


def test_a_shadow_is_asked_for_by_a_flag():
    assert settings("scheduler").shadow is False
    found = settings("scheduler", "--shadow", "--shadow-patience=5m")
    assert (found.shadow, found.shadow_patience_seconds) == (True, 300.0)


@pytest.mark.parametrize("roles", [(), ("scheduler", "binder")])
def test_a_shadow_beside_roles_that_write_is_refused(roles):
    with pytest.raises(ConfigError, match=r"--shadow: found the roles binder.*, which write, expected scheduler alone"):
        settings(*roles, "--shadow")


def test_a_shadow_that_competes_for_a_lease_is_refused():
    with pytest.raises(ConfigError, match="--leader-elect: found beside --shadow, which writes no lease"):
        settings("scheduler", "--shadow", "--leader-elect")
