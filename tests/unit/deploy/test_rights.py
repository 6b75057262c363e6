"""Which rights an audit log shows in use."""

import json

import pytest

from tests.integration.rights import shipped, unused, used

LEASE = {"namespace": "kai-scheduler", "apiGroup": "coordination.k8s.io", "resource": "leases", "name": "kai-scheduler"}
BINDING = {"namespace": "team", "resource": "pods", "subresource": "binding", "name": "p"}


def told(verb, ref, agent="kai/0.1.0 (linux)"):
    return json.dumps({"verb": verb, "userAgent": agent, "objectRef": ref})


def left(*lines):
    return set(unused(used(lines)))


def test_all_rights_are_left_where_no_call_was_made():
    assert len(left()) == len(shipped())


@pytest.mark.parametrize(
    ("call", "right"),
    [
        (told("create", BINDING), "kai:binder: create core pods/binding"),
        (told("create", LEASE), "kai:leader-election in kai-scheduler: create coordination.k8s.io leases"),
    ],
)
def test_a_call_uses_its_right_and_no_other(call, right):
    assert left() - left(call) == {right}


@pytest.mark.parametrize(
    "line",
    [
        told("create", BINDING, agent="kubectl"),
        told("get", BINDING),
        told("create", {**LEASE, "namespace": "elsewhere"}),
        json.dumps({"verb": "get", "userAgent": "kai/0.1.0", "requestURI": "/livez"}),
    ],
)
def test_calls_of_others_and_calls_elsewhere_use_none(line):
    assert left(line) == left()
