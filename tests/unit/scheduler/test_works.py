"""Writes under way: what cannot become orders leaves none of them."""

import pytest

from kai.scheduler import works
from kai.scheduler.effects import Decided
from tests.unit.intake import making
from tests.unit.scheduler.world import World


def test_a_statement_that_cannot_be_put_into_orders_leaves_nothing_under_way(monkeypatch):
    pods = [making.pod(f"p{number}", group="gang") for number in range(2)]
    world = World(making.queue("q"), making.group("gang"), making.node("n1"), *pods)
    world.lead()
    begin, calls = works.BindWork.begin, []

    def failing(self):
        calls.append(self)
        if len(calls) == 2:
            raise RuntimeError("broken")
        return begin(self)

    monkeypatch.setattr(works.BindWork, "begin", failing)
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
