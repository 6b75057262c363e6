"""Where a dashboard may listen: what others can reach asks for tokens, or the process does not start."""

import pytest

from kai.cli.running.dashboards import wanted_dashboard
from kai.cli.running.flags import read_flags
from kai.cli.running.roleflags import FLAGS, ROLES, TOGETHER
from kai.errors import ConfigError


def wanted(*arguments):
    return wanted_dashboard(read_flags(arguments, FLAGS, ROLES, TOGETHER))


def test_without_the_flag_there_is_none():
    assert wanted("scheduler") is None
    assert wanted("scheduler", "--dashboard=0") is None


def test_alone_the_flag_is_an_address_of_this_machine():
    found = wanted("scheduler", "--dashboard")
    assert (str(found.address), found.asks_for_tokens) == ("127.0.0.1:8085", False)
    assert wanted("--dashboard", "scheduler").address == found.address


@pytest.mark.parametrize("address", [":8085", "0.0.0.0:8085", "10.0.0.1:80", "[::]:8085", "example.com:80"])
def test_others_may_reach_it_only_with_tokens(address):
    with pytest.raises(ConfigError) as refused:
        wanted("scheduler", f"--dashboard={address}")
    (line,) = str(refused.value).splitlines()
    assert line.startswith("--dashboard: found ")
    assert "--dashboard-auth=token" in line
    assert wanted("scheduler", f"--dashboard={address}", "--dashboard-auth=token").asks_for_tokens


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:8085", "localhost:8085"])
def test_addresses_of_this_machine_need_none(address):
    assert not wanted("scheduler", f"--dashboard={address}").asks_for_tokens


def test_another_way_to_be_known_does_not_start():
    with pytest.raises(ConfigError, match=r"--dashboard-auth: found 'none', expected one of local, token"):
        wanted("scheduler", "--dashboard", "--dashboard-auth=none")
