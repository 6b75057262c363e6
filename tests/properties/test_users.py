"""Laws of limits for users of a queue."""

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.axis import NONE
from kai.facts.model.groups import UNLIMITED, Shares
from kai.facts.state import budgets
from kai.framework.decisions import Recorder
from tests.properties.strategies import contended, snapshots
from tests.properties.test_determinism import SHORTCUTS
from tests.properties.turns import is_restless, turns_of
from tests.properties.watch import Watch, no_queue_exceeds_its_limit, nothing_is_overcommitted, profile

LAWS = (no_queue_exceeds_its_limit, nothing_is_overcommitted)
FREE = Shares(cpu=UNLIMITED, memory=UNLIMITED, gpu=UNLIMITED)

limited = st.one_of(snapshots(groups=(2, 7), users=True), contended(users=True, pods=8))


def decisions(snapshot, **parameters):
    sink = Recorder()
    run_cycle(snapshot, profile(**{"shortcuts": True, **parameters}), sink)
    return sink.decisions


@given(st.one_of(snapshots(groups=(2, 6), users=True), contended(users=True, nodes=(2, 4))))
def test_no_user_exceeds_a_limit_within_any_statement(snapshot):
    Watch.of(snapshot, profile(), laws=LAWS).run()


@given(limited)
def test_kernels_never_exceed_a_limit_of_users(snapshot):
    Watch.of(snapshot, profile(shortcuts=True), laws=LAWS).run()


@given(limited, st.sampled_from(SHORTCUTS))
def test_shortcuts_decide_the_same_with_limits_of_users(snapshot, shortcut):
    slow = decisions(snapshot, shortcuts=False)
    assert decisions(snapshot) == slow
    assert decisions(snapshot, without=(shortcut.name,)) == slow


@given(limited)
def test_unlimited_users_change_no_decision(snapshot):
    free = tuple(attrs.evolve(queue, per_user=FREE) for queue in snapshot.queues)
    none = tuple(attrs.evolve(queue, per_user=None) for queue in snapshot.queues)
    assert decisions(attrs.evolve(snapshot, queues=free)) == decisions(attrs.evolve(snapshot, queues=none))


@given(limited)
def test_accounts_that_cannot_bind_change_no_decision(snapshot):
    """The naive form: groups differ by all accounts, also by those whose limit no work could reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets, "_binding", lambda accounts, *_: accounts.account)
        wanted = decisions(snapshot.apart())
    assert decisions(snapshot.apart()) == wanted


@given(limited)
def test_queues_with_limits_of_users_come_to_rest(snapshot):
    assert not is_restless(turns_of(snapshot))


@given(snapshots(groups=(2, 7), users=True), st.randoms())
def test_accounts_sum_to_queues_in_any_order(snapshot, random):
    free = tuple(attrs.evolve(queue, per_user=FREE) for queue in snapshot.queues)
    names = [group.holder for group in snapshot.groups]
    shuffled = {name: f"user {at}" for at, name in enumerate(random.sample(names, len(names)))}
    groups = tuple(attrs.evolve(group, user=shuffled[group.holder]) for group in snapshot.groups)
    for each in (snapshot.groups, groups):
        session = Watch.of(attrs.evolve(snapshot, queues=free, groups=each), profile()).session
        users, columns = session.facts.users, session.columns
        for queue in range(len(free)):
            held = columns.user_used[users.queue == queue].sum(axis=0)
            assert held.tolist() == columns.queue_used[queue].tolist()


@given(snapshots(groups=(2, 7), users=True))
def test_each_account_is_below_its_own_user(snapshot):
    users = Watch.of(snapshot, profile()).session.facts.users
    queues = snapshot.queues
    for account, above in enumerate(users.above.tolist()):
        if above != NONE:
            assert users.user[account] == users.user[above]
        at = queues[users.queue[account]].parent
        while at >= 0 and queues[at].per_user is None:
            at = queues[at].parent
        assert at == (users.queue[above] if above != NONE else NONE)
    if len(users.limit):
        assert len(np.unique(np.stack([users.queue, users.user]), axis=1).T) == len(users.limit)
