"""What readers look at in their threads is nothing that the next cycle works on."""

import threading
from unittest import mock

import numpy as np

from kai.dashboard.feed import Feed
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.state.base import Base
from kai.framework.decisions import Recorder
from tests.doubles.two_tenants import ended_cycle


def opened(snapshot, profile):
    return Session(snapshot, profile, Recorder(), Silent())


def test_a_shown_cycle_has_its_own_memory():
    cycle, feed = ended_cycle(), Feed()
    feed.show(cycle)
    one, other = cycle.outcome.last, feed.cycle.outcome.last
    assert (other.number, other.report, other.decisions) == (one.number, one.report, one.decisions)
    assert other.snapshot == one.snapshot
    assert other.snapshot.memory is not one.snapshot.memory


def test_reader_and_cycle_sessions_never_share_books():
    """The worst order in which two threads can go: both have found the books before one of them opens these."""
    cycle, feed = ended_cycle(), Feed()
    profile, decided_on = cycle.outcome.profile, cycle.outcome.last.snapshot
    opened(decided_on, profile).release()
    feed.show(cycle)
    found = {}
    has_looked, may_open = threading.Event(), threading.Event()

    def look():
        found["reader"] = opened(feed.cycle.outcome.last.snapshot, profile)

    reader = threading.Thread(target=look)
    room, differing = Base.room, Base._differing

    def make_room(base):
        if threading.current_thread() is reader:
            has_looked.set()
            may_open.wait(10)
        elif not reader.ident:
            reader.start()
            has_looked.wait(10)
        return room(base)

    def find_differing(base, left, snapshot):
        rows = differing(base, left, snapshot)
        if threading.current_thread() is not reader:
            may_open.set()
            reader.join(10)
        return rows

    with mock.patch.multiple(Base, room=make_room, _differing=find_differing):
        session = opened(decided_on, profile)
    may_open.set()
    reader.join(10)
    assert not np.shares_memory(session.columns.arena, found["reader"].columns.arena)
