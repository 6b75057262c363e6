import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.model.axis import GPU
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, GpuKind, Status
from kai.framework.decisions import Bind, Cause, Evict, Nominate
from tests.properties.strategies import WHOLE_TREES, contended, snapshots
from tests.properties.watch import Watch, profile


def leaves_of(session, group):
    portion = session.portion(group)
    return [
        (portion.active(leaf), portion.holding(1 << Status.PIPELINED, portion.pods_of(leaf)), portion.minimum(leaf))
        for leaf in portion.leaves
    ]


def gangs_start_whole(watch, decisions):
    """Whoever is bound is so with a whole gang beside it, without counting on promises."""
    session = watch.session
    for group in {int(session.facts.pods.group[each.pod]) for each in decisions if isinstance(each, Bind)}:
        for active, promised, minimum in leaves_of(session, group):
            assert active - len(promised) >= minimum, (group, active, promised, minimum)


def aggressors_get_whole_gangs(watch, decisions):
    """Whoever is promised a place by taking others' has, with what it got, a whole gang."""
    session = watch.session
    for group in {each.aggressor for each in decisions if isinstance(each, Evict) and each.cause is not Cause.STALE}:
        for active, _, minimum in leaves_of(session, group):
            leaving = minimum - active
            assert leaving <= 0 or session.portion(group).is_gang_satisfied(), (group, active, minimum)


@given(snapshots(groups=(2, 6), trees=WHOLE_TREES))
def test_a_gang_starts_whole_or_not_at_all(snapshot):
    Watch.of(snapshot, profile(), judges=(gangs_start_whole,)).run()


@given(contended(trees=WHOLE_TREES))
def test_an_aggressor_gets_its_whole_gang(snapshot):
    Watch.of(snapshot, profile(), judges=(gangs_start_whole, aggressors_get_whole_gangs)).run()


def evictions_are_for_somebody(watch, decisions):
    """A pod is evicted only when in the same breath the aggressor gets a place, and only by the rule of its cause."""
    session = watch.session
    groups, facts = session.snapshot.groups, session.facts
    evicted = [each for each in decisions if isinstance(each, Evict)]
    gaining = {int(facts.pods.group[each.pod]) for each in decisions if isinstance(each, Bind | Nominate)}
    assert len({each.pod for each in evicted}) == len(evicted)
    for each in evicted:
        victim = int(facts.pods.group[each.pod])
        if each.cause is Cause.STALE:
            assert each.aggressor == -1
            continue
        assert each.aggressor in gaining, (each, gaining)
        assert victim != each.aggressor
        assert groups[victim].preemptible
        mine, theirs = int(facts.groups.queue[each.aggressor]), int(facts.groups.queue[victim])
        match each.cause:
            case Cause.RECLAIM:
                assert mine != theirs
            case Cause.PREEMPT:
                assert mine == theirs
                assert groups[victim].priority < groups[each.aggressor].priority
            case Cause.CONSOLIDATE:
                assert each.moved_to >= 0
        moved = [one for one in decisions if isinstance(one, Nominate) and one.pod == each.pod]
        assert [one.node for one in moved] == ([each.moved_to] if each.moved_to >= 0 else [])


@given(contended())
def test_nobody_is_evicted_for_nothing(snapshot):
    Watch.of(snapshot, profile(), judges=(evictions_are_for_somebody,)).run()


@given(snapshots(groups=(2, 6)))
def test_no_cluster_evicts_a_pod_for_nothing(snapshot):
    Watch.of(snapshot, profile(), judges=(evictions_are_for_somebody,)).run()


def path(session, queue):
    out = []
    while queue >= 0:
        out.append(queue)
        queue = int(session.facts.queues.parent[queue])
    return out[::-1]


def where_paths_part(session, mine, theirs):
    """Return the queues of both sides where their paths from the top part, or the last ones compared."""
    pairs = list(zip(path(session, mine), path(session, theirs), strict=False))
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])


def within(amounts, bounds, slack=0.0):
    return bool(np.all((bounds < 0) | (amounts <= bounds + slack)))


def nobody_within_quota_pays(watch, decisions):
    """A queue within its quota loses no pod to another's; and who takes stays within its fair share."""
    session = watch.session
    queues, facts, shapes = session.facts.queues, session.facts, session.snapshot.shapes
    lost = [each for each in decisions if isinstance(each, Evict) and each.cause is Cause.RECLAIM and each.moved_to < 0]
    for each in lost:
        mine = int(facts.groups.queue[each.aggressor])
        theirs = int(facts.groups.queue[facts.pods.group[each.pod]])
        _, giver = where_paths_part(session, mine, theirs)
        assert not within(watch.used[giver], queues.quota[giver]), (giver, watch.used[giver], queues.quota[giver])
    if lost:
        aggressor = lost[0].aggressor
        mine = int(facts.groups.queue[aggressor])
        gained = [
            each.pod for each in decisions if isinstance(each, Nominate) and facts.pods.group[each.pod] == aggressor
        ]
        # A request by memory is taken to be a part of the smallest device, and counts rounded up on the one it gets.
        devices = sum(
            shapes[facts.pods.shape[pod]].gpu.devices
            for pod in gained
            if shapes[facts.pods.shape[pod]].gpu.kind is GpuKind.MEMORY
        )
        used = watch.used[mine] + sum(session.accepted(pod) for pod in gained)
        slack = np.array([0.0, 0.0, 10.0 * devices + 1e-6])
        assert within(used, queues.fair_share[mine], slack), (mine, used, queues.fair_share[mine])


@given(contended(groups=(4, 8)))
def test_reclaim_spares_queues_within_quota_from_greedy_ones(snapshot):
    Watch.of(snapshot, profile("reclaim"), judges=(nobody_within_quota_pays,)).run()


@given(contended(groups=(4, 8)), st.booleans())
def test_nor_does_it_when_allocate_and_consolidation_came_before(snapshot, movable):
    using = profile("allocate", "consolidation", "reclaim", allow_consolidating_reclaim=movable)
    Watch.of(snapshot, using, judges=(nobody_within_quota_pays,)).run()


@given(contended())
def test_only_stale_gangs_lose_non_preemptible_pods(snapshot):
    watch = Watch.of(snapshot, profile())
    report = watch.run()
    stale = {each.pod for each in watch.sink.decisions if isinstance(each, Evict) and each.cause is Cause.STALE}
    for pod in range(len(snapshot.pods)):
        group = int(snapshot.pod_group[pod])
        stood = (ACTIVE_ALLOCATED >> int(snapshot.pod_status[pod])) & 1
        if stood and group >= 0 and not snapshot.groups[group].preemptible and pod not in stale:
            assert report.status[pod] == snapshot.pod_status[pod]
            assert report.node[pod] == snapshot.pod_node[pod]


@given(snapshots(groups=(2, 6)))
def test_only_gangs_below_their_minimum_are_stale(snapshot):
    watch = Watch.of(snapshot, profile("stalegangeviction", default_staleness_grace_seconds=0.0))
    standing = {}
    for row in range(len(snapshot.groups)):
        portion = watch.session.portion(row)
        standing[row] = all(
            len(portion.holding(ACTIVE_USED, portion.pods_of(leaf))) >= portion.minimum(leaf) for leaf in portion.leaves
        )
    watch.run()
    for each in watch.sink.decisions:
        assert isinstance(each, Evict)
        assert not standing[int(snapshot.pod_group[each.pod])]


@given(snapshots(groups=(2, 6)))
def test_fair_shares_exceed_the_total_only_by_quotas(snapshot):
    session = Watch.of(snapshot, profile()).session
    shares = session.policy.fair_shares
    quota = np.where(session.facts.queues.quota < 0, shares.total, session.facts.queues.quota)
    tops = session.facts.queues.parent < 0
    granted = np.minimum(quota, shares.requested)[tops].sum(axis=0)
    assert np.all(shares.fair_share[tops].sum(axis=0) <= np.maximum(shares.total, granted) + 1e-6)
    assert np.all(shares.fair_share[:, GPU] <= shares.requested[:, GPU] + 1000.0)
