import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kai.actions.placing import place_group
from kai.deciding.engine.session import Session
from kai.deciding.engine.statement import Statement
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from kai.framework.decisions import Cause
from tests.doubles.audit import audit
from tests.properties.strategies import contended, snapshots
from tests.properties.watch import Watch, nothing_is_overcommitted, profile

choices = st.integers(0, 30)


def placed(session: Session) -> list[int]:
    """List pods with a place on a node that no open statement has evicted."""
    columns = session.columns
    return [
        int(pod)
        for pod in session.pods_in(ACTIVE_ALLOCATED)
        if columns.node[pod] >= 0 and not columns.evicted_status[pod]
    ]


def waiting(session: Session) -> list[int]:
    """List the groups that could be placed in a simulation: with pending pods, or with pods that were just evicted."""
    return [row for row in range(len(session.snapshot.groups)) if len(session.portion(row).chunk())]


def evict(session: Session, statement: Statement, which: int) -> None:
    pods = placed(session)
    if pods:
        statement.evict(np.array(sorted({pods[which % len(pods)], pods[which // 2 % len(pods)]}), np.int64))


def place(session: Session, statement: Statement, which: int, *, promise: bool) -> int:
    """Place the next chunk of a group; return the group, -1 if none waits."""
    groups = waiting(session)
    if not groups:
        return -1
    group = groups[which % len(groups)]
    portion = session.portion(group)
    only_promised = promise or bool((session.columns.status[portion.chunk()] == Status.RELEASING).any())
    place_group(session, statement, portion, session.all_nodes, promise=only_promised)
    return group


steps = st.lists(
    st.tuples(st.sampled_from(("evict", "place", "promise", "promise_all")), choices), min_size=1, max_size=8
)


def take(session: Session, statement: Statement, step: tuple[str, int]) -> None:
    verb, which = step
    if verb == "evict":
        evict(session, statement, which)
    elif verb == "promise_all":
        statement.promise_all(which % len(session.snapshot.groups))
    else:
        place(session, statement, which, promise=verb == "promise")


@given(contended(), st.sampled_from(("evict", "place", "promise", "promise_all")), choices)
def test_every_verb_is_undone_to_the_byte(snapshot, verb, which):
    session = Watch.of(snapshot, profile()).session
    for group in range(len(snapshot.groups)):
        before = session.ledger.fingerprint()
        with session.statement("test", Cause.RECLAIM, group) as statement:
            take(session, statement, (verb, which))
        assert session.ledger.fingerprint() == before
        audit(session.ledger)


@given(contended(), steps, steps)
def test_any_sequence_rolls_back_exactly_to_its_mark(snapshot, first, then):
    session = Watch.of(snapshot, profile()).session
    untouched = session.ledger.fingerprint()
    with session.statement("test", Cause.RECLAIM, 0) as statement:
        for step in first:
            take(session, statement, step)
        mark, before = statement.mark(), session.ledger.fingerprint()
        for step in then:
            take(session, statement, step)
        statement.roll_back(mark)
        assert session.ledger.fingerprint() == before
    assert session.ledger.fingerprint() == untouched
    audit(session.ledger)


@given(snapshots(groups=(2, 6)))
def test_what_was_undone_in_a_cycle_left_no_trace(snapshot):
    """Whatever was tried and given up, the ledger is what the committed decisions alone make of it."""
    watch = Watch.of(snapshot, profile())
    before = {}

    def remember(statement, *_args, **_options):
        before[id(statement)] = watch.session.ledger.fingerprint()

    class Remembering(Statement):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            remember(self)

        def discard(self):
            open_still = self._ledger.mark > self._begin
            super().discard()
            if open_still:
                assert watch.session.ledger.fingerprint() == before[id(self)]

    watch.session.statement = lambda action, cause=None, aggressor=-1, rule="": Remembering(
        watch.session, watch.session, action, cause, aggressor, rule
    )
    watch.run()


class SessionMachine(RuleBasedStateMachine):
    """A session under every verb, in statements with marks in them; nothing is ever overcommitted or left behind."""

    def __init__(self):
        super().__init__()
        self.watch = None
        self.statement = None
        self.marks = []
        self.outside = b""

    @property
    def session(self):
        return self.watch.session

    @initialize(snapshot=contended())
    def open_session(self, snapshot):
        self.watch = Watch.of(snapshot, profile())

    @precondition(lambda self: self.watch is not None and self.statement is None)
    @rule()
    def begin(self):
        self.outside = self.session.ledger.fingerprint()
        self.statement = self.session.statement("test", Cause.RECLAIM, 0)
        self.marks = []

    @precondition(lambda self: self.statement is not None)
    @rule(which=choices)
    def evict_pods(self, which):
        evict(self.session, self.statement, which)

    @precondition(lambda self: self.statement is not None)
    @rule(which=choices, promise=st.booleans())
    def place_a_group(self, which, promise):
        place(self.session, self.statement, which, promise=promise)

    @precondition(lambda self: self.statement is not None)
    @rule(which=choices)
    def promise_what_a_group_got(self, which):
        self.statement.promise_all(which % len(self.session.snapshot.groups))

    @precondition(lambda self: self.statement is not None)
    @rule()
    def leave_a_mark(self):
        self.marks.append((self.statement.mark(), self.session.ledger.fingerprint()))

    @precondition(lambda self: self.statement is not None and self.marks)
    @rule(which=choices)
    def roll_back_to_a_mark(self, which):
        at = which % len(self.marks)
        mark, then = self.marks[at]
        del self.marks[at:]
        self.statement.roll_back(mark)
        assert self.session.ledger.fingerprint() == then

    @precondition(lambda self: self.statement is not None)
    @rule()
    def discard(self):
        self.statement.discard()
        self.statement = None
        assert self.session.ledger.fingerprint() == self.outside

    @precondition(lambda self: self.statement is not None)
    @rule()
    def commit(self):
        self.watch.note(self.statement.commit())
        self.statement = None
        assert self.session.ledger.mark == self.session.ledger.final

    @invariant()
    def the_books_are_right(self):
        if self.watch is not None:
            audit(self.session.ledger)
            nothing_is_overcommitted(self.watch)


TestSession = SessionMachine.TestCase
TestSession.settings = settings(stateful_step_count=15)
