import heapq
import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai.basics.errors import ConfigError
from kai.cluster.election.lease import (
    Election,
    Finished,
    LeaseSettings,
    OutcomeUnknown,
    ReadDone,
    ReadFailed,
    ReadLease,
    Record,
    Resigned,
    Ticked,
    WakeAt,
    WriteDone,
    WriteLease,
    WriteRefused,
)
from kai.cluster.port import Term


def options(identity="me_1", **changed):
    return LeaseSettings(namespace="kai", name="lock", identity=identity, **changed)


def election(**changed):
    return Election(options(**changed), lambda: 0.0)


def leading(now=0.0, **changed):
    machine = election(**changed)
    machine.step(ReadDone(None), now)
    machine.step(WriteDone(record=Record(holder="me_1", transitions=1, version="1"), sent_at=now), now)
    assert machine.is_leading(now)
    return machine


OTHER = Record(holder="you_1", transitions=4, version="9", duration=15.0)


def test_a_lease_that_does_not_exist_is_created():
    machine = election()
    assert machine.step(Ticked(), 0.0) == ReadLease()
    effect = machine.step(ReadDone(None), 0.0)
    assert effect == WriteLease(holder="me_1", transitions=1, begins=True)
    record = Record(holder="me_1", transitions=1, version="1")
    assert machine.step(WriteDone(record=record, sent_at=0.0), 1.0) == WakeAt(2.0)
    assert machine.term == Term(epoch=1, identity="me_1")


def test_a_held_lease_is_left_alone_for_its_duration():
    machine = election()
    assert machine.step(ReadDone(OTHER), 100.0) == WakeAt(100.5)
    assert isinstance(machine.step(ReadDone(OTHER), 114.9), WakeAt)
    effect = machine.step(ReadDone(OTHER), 115.0)
    assert (effect.holder, effect.transitions, effect.before) == ("me_1", 5, OTHER)


def test_a_renewal_by_its_holder_starts_the_wait_anew():
    machine = election()
    machine.step(ReadDone(OTHER), 100.0)
    machine.step(ReadDone(Record(holder="you_1", transitions=4, version="10")), 110.0)
    assert isinstance(
        machine.step(ReadDone(Record(holder="you_1", transitions=4, version="10")), 120.0),
        WakeAt,
    )


def test_a_lease_is_read_exactly_at_its_expiry():
    machine = election()
    machine.step(ReadDone(OTHER), 100.0)
    assert machine.step(ReadDone(OTHER), 114.7) == WakeAt(115.0)
    assert isinstance(machine.step(ReadDone(OTHER), 115.0), WriteLease)


def test_a_released_lease_is_taken_with_a_new_term():
    effect = election().step(ReadDone(Record(transitions=4, version="9")), 100.0)
    assert (effect.transitions, effect.begins) == (5, True)


def test_a_restarted_container_takes_its_own_lease_immediately():
    machine = election(identity="pod7_b", container="pod7")
    effect = machine.step(ReadDone(Record(holder="pod7_a", transitions=4, version="9")), 100.0)
    assert (effect.holder, effect.transitions) == ("pod7_b", 5)


def test_a_term_lasts_from_the_sending_of_its_renewal():
    machine = leading()
    record = Record(holder="me_1", transitions=1, version="2")
    machine.step(WriteDone(record=record, sent_at=2.0), 9.0)
    assert machine.is_leading(11.99)
    assert not machine.is_leading(12.0)


def test_a_process_that_slept_past_its_term_begins_another():
    machine = leading()
    effect = machine.step(Ticked(), 60.0)
    assert machine.term is None
    assert effect == ReadLease()
    effect = machine.step(ReadDone(Record(holder="me_1", transitions=1, version="1")), 60.0)
    assert (effect.transitions, effect.begins) == (2, True)


def test_an_answer_after_the_term_does_not_prolong_it():
    machine = leading()
    record = Record(holder="me_1", transitions=1, version="2")
    effect = machine.step(WriteDone(record=record, sent_at=9.0), 10.5)
    assert machine.term is None
    assert (effect.transitions, effect.begins) == (2, True)


def test_a_lease_taken_by_another_ends_the_term():
    machine = leading()
    assert machine.step(WriteRefused(), 2.0) == ReadLease()
    assert isinstance(machine.step(ReadDone(OTHER), 2.1), WakeAt)
    assert machine.term is None


def test_a_lost_renewal_counts_if_the_lease_shows_it():
    machine = leading()
    machine.step(OutcomeUnknown(sent_at=2.0), 7.0)
    machine.step(ReadDone(Record(holder="me_1", transitions=1, version="2")), 7.1)
    assert machine.lasts_until == 12.0


def test_a_lost_acquisition_counts_from_its_sending():
    machine = election()
    machine.step(ReadDone(None), 0.0)
    assert machine.step(OutcomeUnknown(sent_at=0.0), 5.0) == ReadLease()
    machine.step(ReadDone(Record(holder="me_1", transitions=1, version="1")), 5.1)
    assert machine.term == Term(epoch=1, identity="me_1")
    assert machine.lasts_until == 10.0


def test_a_renewal_that_did_not_land_prolongs_nothing():
    machine = leading()
    machine.step(OutcomeUnknown(sent_at=2.0), 7.0)
    machine.step(ReadDone(machine._seen), 7.1)
    assert machine.lasts_until == 10.0


def test_the_first_of_two_unanswered_renewals_counts():
    machine = leading()
    machine.step(OutcomeUnknown(sent_at=2.0), 5.0)
    machine.step(ReadDone(machine._seen), 5.1)
    machine.step(OutcomeUnknown(sent_at=7.2), 9.0)
    machine.step(ReadDone(Record(holder="me_1", transitions=1, version="2")), 9.1)
    assert machine.lasts_until == 12.0


def test_a_leader_without_an_answer_renews_before_it_reads():
    machine = leading()
    assert machine.step(Ticked(), 2.0) == renewal("1")
    assert machine.step(OutcomeUnknown(sent_at=2.0), 7.0) == renewal("1")
    assert machine.step(WriteRefused(), 7.1) == ReadLease()
    landed = Record(holder="me_1", transitions=1, version="2")
    assert machine.step(ReadDone(landed), 7.2) == WakeAt(9.0)
    assert machine.lasts_until == 12.0


def test_a_leader_cut_off_early_reads_before_it_renews():
    machine = leading()
    machine.step(Ticked(), 2.0)
    assert machine.step(OutcomeUnknown(sent_at=2.0), 2.1) == ReadLease()
    assert machine.step(ReadFailed(), 2.2) == WakeAt(4.0)
    assert machine.step(Ticked(), 4.0) == renewal("1")


def renewal(version):
    return WriteLease(holder="me_1", transitions=1, before=Record(holder="me_1", transitions=1, version=version))


def test_a_write_that_did_not_land_waits_before_repeating():
    machine = election()
    machine.step(ReadDone(None), 0.0)
    machine.step(OutcomeUnknown(sent_at=0.0), 0.0)
    assert isinstance(machine.step(ReadDone(None), 0.0), WakeAt)
    machine.step(ReadDone(None), 2.0)
    assert isinstance(machine.step(WriteRefused(), 2.0), WakeAt)


def test_reads_that_fail_are_repeated_in_peace():
    assert election().step(ReadFailed(), 5.0) == WakeAt(7.0)


def test_to_resign_gives_the_lease_back_and_ends():
    machine = leading()
    effect = machine.step(Resigned(), 1.0)
    assert (effect.holder, effect.ends, effect.transitions) == ("", True, 1)
    assert not machine.is_leading(1.0)
    assert machine.step(WriteDone(record=Record(transitions=1, version="3"), sent_at=1.0), 1.0) == Finished()


def test_whoever_does_not_lead_has_nothing_to_give_back():
    machine = election()
    machine.step(ReadDone(OTHER), 0.0)
    assert machine.step(Resigned(), 0.0) == Finished()


def test_resigning_is_given_up_after_three_refused_writes():
    machine = leading()
    effect, effects = machine.step(Resigned(), 0.0), []
    for _ in range(10):
        if isinstance(effect, Finished):
            break
        effects.append(effect)
        event = WriteRefused() if isinstance(effect, WriteLease) else ReadDone(machine._seen)
        effect = machine.step(event, 0.5)
    assert isinstance(effect, Finished)
    assert sum(isinstance(each, WriteLease) for each in effects) == 3


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_times_with_which_two_could_lead_are_refused(times):
    duration, renew_within, retry = times
    with pytest.raises(ConfigError, match="leader election: durations: found"):
        options(duration=duration, renew_within=renew_within, retry=retry)


# --- Many of them --------------------------------------------------------------------------------------------------


class World:
    """A lease on a server, and processes that compete for it over a bad network.

    Writes are checked by version where they land, as the server does, and may land long after their sender gave up.
    """

    def __init__(self, seed, faults=0.15):
        self.draw = random.Random(seed)
        self.faults = faults
        self.now = 0.0
        self.record = None
        self.version = 0
        self.queue = []
        self.order = itertools.count()
        self.machines = {}
        self.lives = itertools.count(1)
        self.terms = []
        self.overlaps = []

    def at(self, delay, action):
        heapq.heappush(self.queue, (self.now + delay, next(self.order), action))

    def start(self, slot):
        identity = f"pod{slot}_{next(self.lives)}"
        machine = Election(options(identity=identity), self.draw.random)
        self.machines[slot] = machine
        self.send(slot, machine, Ticked())

    def send(self, slot, machine, event):
        if self.machines.get(slot) is not machine:
            return  # killed meanwhile
        before = machine.term
        effect = machine.step(event, self.now)
        if machine.term is not None and machine.term != before:
            self.terms.append(machine.term)
        leaders = [each for each in self.machines.values() if each.is_leading(self.now)]
        if len(leaders) > 1:
            self.overlaps.append((self.now, [each.term for each in leaders]))
        self.do(slot, machine, effect)

    def do(self, slot, machine, effect):
        def later(delay, event):
            self.at(delay, lambda: self.send(slot, machine, event))

        pause = self.draw.uniform(0, 30) if self.draw.random() < self.faults / 5 else 0.0
        latency = pause + self.draw.uniform(0.001, 0.2 if self.draw.random() > self.faults else 6.0)
        failing = self.draw.random() < self.faults
        match effect:
            case WakeAt():
                later(max(0.0, effect.time - self.now) + pause, Ticked())
            case ReadLease() if failing:
                later(latency, ReadFailed())
            case ReadLease():
                record = self.record
                later(latency, ReadDone(record))
            case WriteLease():
                self.write(effect, later, latency, failing)

    def write(self, effect, later, latency, failing):
        sent_at = self.now

        def land(is_answered):
            if effect.before.version != ("" if self.record is None else self.record.version):
                if is_answered:
                    later(latency / 2, WriteRefused())
                return
            self.version += 1
            self.record = Record(holder=effect.holder, transitions=effect.transitions, version=str(self.version))
            if is_answered:
                later(latency / 2, WriteDone(record=self.record, sent_at=sent_at))

        if not failing:
            self.at(latency / 2, lambda: land(True))
            return
        later(5.0, OutcomeUnknown(sent_at=sent_at))
        if self.draw.random() < 0.7:
            self.at(self.draw.uniform(0, 25.0), lambda: land(False))

    def run(self, seconds, slots=3):
        for slot in range(slots):
            self.start(slot)
        for number in range(int(seconds // 40)):
            slot = self.draw.randrange(slots)
            self.at(number * 40 + self.draw.uniform(0, 40), lambda slot=slot: self.start(slot))
        while self.queue and self.now < seconds:
            self.now, _, action = heapq.heappop(self.queue)
            action()


@settings(max_examples=150)
@example(206, 0.4)
@example(2075, 0.15)
@given(st.integers(0, 1 << 32), st.sampled_from([0.15, 0.4]))
def test_two_never_lead_at_once_and_epochs_only_grow(seed, faults):
    world = World(seed, faults)
    world.run(600.0)
    assert not world.overlaps
    epochs = [term.epoch for term in world.terms]
    assert epochs == sorted(set(epochs))


@settings(max_examples=40)
@given(st.integers(0, 1 << 32))
def test_when_faults_end_somebody_leads_soon_and_stays(seed):
    world = World(seed)
    world.run(200.0)
    world.faults = 0.0
    world.at(0.0, lambda: None)
    end = world.now + 80.0
    stable = None
    while world.queue and world.now < end:
        world.now, _, action = heapq.heappop(world.queue)
        action()
        leaders = [each.term for each in world.machines.values() if each.is_leading(world.now)]
        if leaders and leaders[0] != stable:
            stable, since = leaders[0], world.now
    assert stable is not None
    assert since < end - 20.0
