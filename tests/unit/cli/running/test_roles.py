"""Settings of roles from flags: a shadow runs beside nothing that writes."""

from types import SimpleNamespace

import attrs
import pytest
from prometheus_client import CollectorRegistry

from kai.basics.errors import ConfigError
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.process import Process
from kai.cli.running.roles import podgrouper, scheduler_settings


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


def test_a_shadow_takes_no_lease_even_with_leader_election():
    assert settings("scheduler", "--leader-elect").leader_elect is True
    assert settings("scheduler", "--shadow", "--leader-elect").leader_elect is False


def test_the_process_of_a_shadow_competes_for_no_lease():
    def lease(*arguments):
        process = Process.of(read_flags(arguments, FLAGS, ROLES, TOGETHER), {})
        plan = SimpleNamespace(settings=settings(*arguments), watched=tuple, component=lambda name: name)
        return process._options(plan).lease

    assert lease("scheduler", "--leader-elect") is not None
    assert lease("scheduler", "--shadow", "--leader-elect") is None


@pytest.mark.parametrize(("role", "component"), [("podgrouper", "pod-grouper"), ("binder", "binder")])
def test_a_single_roles_events_keep_kai_schedulers_source(role, component):
    process = attrs.evolve(Process.of(read_flags((role,), FLAGS, ROLES, TOGETHER), {}), registry=CollectorRegistry())
    assert process._plan(SimpleNamespace(continued=None)).component("kai-scheduler") == component


@pytest.mark.parametrize(
    ("arguments", "keeps"),
    [
        ((), False),
        (("--pod-groups=needed",), True),
        (("--pod-groups=needed", "--bind-requests=always"), False),
        (("--pod-groups=needed", "--partition-label-value=east"), False),
        (("podgrouper", "--pod-groups=needed"), False),
        (("scheduler", "binder", "podgrouper", "--pod-groups=needed"), False),
    ],
)
def test_only_one_combined_process_may_keep_groups_in_memory(arguments, keeps):
    role, grouped = podgrouper(read_flags(arguments, FLAGS, ROLES, TOGETHER), lambda _: None)
    assert (role.name, grouped is not None) == ("podgrouper", keeps)


def test_another_value_for_pod_groups_is_refused():
    with pytest.raises(ConfigError, match="--pod-groups: found 'lazy', expected one of needed, always"):
        podgrouper(read_flags(("--pod-groups=lazy",), FLAGS, ROLES, TOGETHER), lambda _: None)
