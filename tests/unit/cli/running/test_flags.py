"""Flags are read as Go's programs read them."""

import pytest

from kai.basics.errors import ConfigError
from kai.cli.running.flags import FLAGS, LEASES, ROLES, SCHEDULER, TOGETHER, read_flags


def read(*words):
    return read_flags(words, FLAGS, ROLES, TOGETHER)


def test_every_form_of_a_flag_means_the_same():
    for words in (("--schedule-period=2s",), ("--schedule-period", "2s"), ("-schedule-period=2s",)):
        assert read("scheduler", *words).number("schedule-period") == 2.0


def test_a_boolean_flag_may_stand_alone_without_value():
    given = read("--leader-elect", "scheduler", "--full-hierarchy-fairness=false")
    assert (given.truth("leader-elect"), given.truth("full-hierarchy-fairness")) == (True, False)
    assert given.roles == ("scheduler",)


def test_without_roles_the_flags_of_combined_roles_are_read():
    given = read("--plugin-server-port=8082", "--max-concurrent-reconciles=3", "--pod-label-selector=a=b,c=d")
    assert given.roles == ()
    assert given.mapping("pod-label-selector") == {"a": "b", "c": "d"}
    with pytest.raises(ConfigError, match="--webhook-addr: found a flag of admission"):
        read("--webhook-addr=1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--leader-electt",), "--leader-electt: found an unknown flag, expected --leader-elect"),
        (("sheduler",), "role: found 'sheduler', expected scheduler"),
        (("binder", "--scheduler-conf=x"), "--scheduler-conf: found a flag of scheduler, expected one of binder"),
        (
            ("scheduler", "--metrics-bind-address=:8080"),
            "expected one of scheduler, where the same is called --listen-address",
        ),
        (("--qps",), "--qps: found nothing, expected a value"),
        (("--qps=many",), "--qps: found 'many', expected a number"),
        (("--burst=many",), "--burst: found 'many', expected a whole number"),
        (("--schedule-period=soon",), "--schedule-period: found 'soon', expected a duration"),
        (("--leader-elect=maybe",), "--leader-elect: found 'maybe', expected true or false"),
        (("--leader-elect=tRUE",), "--leader-elect: found 'tRUE', expected true or false"),
        (("--plugins=[]",), r"--plugins: found '\[\]', expected a JSON object"),
        (("--gpu-memory-to-fraction-ratio=nan",), "found 'nan', expected a number"),
        (("--pod-label-selector=a",), "found 'a', expected key=value"),
        (("--v=loud",), "--v: found 'loud', expected a number"),
        (("--plugin-server-port=70000",), "--plugin-server-port: found '70000', expected a port from 0 to 65535"),
        (("admission", "--webhook-addr=-1"), "--webhook-addr: found '-1', expected a port from 0 to 65535"),
        (("--partition-label-value=a b",), '--partition-label-value: found "a b", expected letters, digits'),
        (("--queue-label-key=",), '--queue-label-key: found "", expected letters, digits'),
        (("--nodepool-label-key=a/b/c",), '--nodepool-label-key: found "a/b/c", expected letters, digits'),
    ],
)
def test_an_unusable_flag_is_refused_with_the_expected_value(words, message):
    with pytest.raises(ConfigError, match=message):
        read(*words)


def test_each_role_but_the_scheduler_has_its_own_lease():
    assert set(LEASES) == set(ROLES) - {SCHEDULER}
    assert len(set(LEASES.values())) == len(LEASES)
