"""Writes under way: what cannot become orders leaves none of them."""

import pytest

from kai.roles.scheduler.committing import binds
from kai.roles.scheduler.effects import Decided, RequestKept
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World

OWNER = {"kind": "Pod", "uid": "uid-p0"}


def test_a_statement_that_breaks_leaves_no_operation(monkeypatch):
    pods = [making.pod(f"p{number}", group="gang") for number in range(2)]
    world = World(making.queue("q"), making.group("gang"), making.node("n1"), *pods)
    world.lead()
    begin, calls = binds.BindOperation.begin, []

    def failing(self):
        calls.append(self)
        if len(calls) == 2:
            raise RuntimeError("broken")
        return begin(self)

    monkeypatch.setattr(binds.BindOperation, "begin", failing)
    event = Decided(
        term=world.term, cycle=1, snapshot=world.snapshot, decisions=(world.bind("p0", "n1"), world.bind("p1", "n1"))
    )
    with pytest.raises(RuntimeError):
        world.committer.step(event, world.time)
    world.committer.abandon(event)
    assert world.committer.under_way == 0
    world.decide(world.bind("p0", "n1"))
    world.settle()
    assert world.requests() == {"p0": "n1"}


def test_a_kept_request_is_checked_seldom_and_reported_once():
    world = World(making.node("n1"), making.pod("p0"), making.bind_request("p0", "n1"))
    world.lead()
    before = len(world.server.requests)
    for _ in range(120):  # a cycle each second
        world.expire("p0")
        world.settle()
        world.pass_time(1.0)
    assert len(world.server.requests) - before == 4
    assert [each for each in world.signals if isinstance(each, RequestKept)] == [
        RequestKept(name="p0", why="its node is there")
    ]


def test_an_undeletable_failed_request_counts_once():
    failed = making.bind_request("p0", "n1", status={"phase": "Failed"}, metadata={"ownerReferences": [OWNER]})
    world = World(making.node("n1"), making.pod("p0"), failed)
    world.lead()
    world.expire("p0")
    world.deliver(fault="refused")
    rests = world.committer.feedback.bind_backoff.next_due(world.time)
    for _ in range(120):  # a cycle each second
        world.pass_time(1.0)
        world.expire("p0")
        while world.wires:
            world.deliver(fault="refused")
    assert [each for each in world.signals if isinstance(each, RequestKept)] == [
        RequestKept(name="p0", why="a webhook said no")
    ]
    assert world.committer.feedback.bind_backoff.resting(rests - 0.1).keys() == {"uid-p0"}
    assert world.committer.feedback.bind_backoff.resting(rests + 0.1) == {}, "its bind failed once"
    world.pass_time(60.0)
    world.expire("p0")
    world.settle()
    assert world.requests() == {}


def test_a_pausing_write_is_sent_once_the_server_returns():
    world = World(making.queue("q"), making.group("gang"), making.node("n1"), making.pod("p0", group="gang"))
    world.lead()
    world.decide(world.bind("p0", "n1"))
    for _ in range(6):
        world.deliver(fault="unavailable")
        world.pass_time(max(0.0, world.wake - world.time))
    world.deliver(fault="unavailable")
    assert not world.wires
    world.committer.hurry(world.time)
    world.pass_time(0.0)
    assert world.wires
