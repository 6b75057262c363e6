"""A little of the chaos that ``nox -s chaos`` makes: kills and freezes under load, and nothing may be given twice."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from kai.cluster.process.decisions import BIND, EVICT, Decision, Gainer, Subject
from tests.integration.behaviour import Job, Part
from tests.integration.chaos.beneficiaries import BOUND, FUTILE, GONE, SHORT, UNTOLD, Beneficiaries
from tests.integration.chaos.history import Write
from tests.integration.chaos.load import Load, Running
from tests.integration.chaos.rig import Plan, rigged
from tests.integration.chaos.waiting import until_in_a_term


def test_kills_and_freezes_cause_no_double_bookings_or_leftovers(bare_control_plane, tmp_path):
    lease = (8.0, 6.0, 1.0)
    plan = Plan(restarts=4, standbys=2, freezes=3, seed=7, lease=lease, settle_every=3, is_patient=False)
    with rigged(bare_control_plane, tmp_path, plan) as rig:
        rig.run()
        report = rig.report
    assert report.violations == [], report.text()
    assert report.kills >= 6
    assert report.bindings >= 50, "there was a load"
    assert report.outcomes.total() == report.evictions
    assert report.outcomes[BOUND] > 0


def test_waiting_in_a_term_continues_in_the_next():
    epochs = itertools.count()
    asked = []

    def condition():
        asked.append(True)
        return len(asked) == 1000

    # Each look finds another term, so that none lasts as long as anything may take.
    assert until_in_a_term(condition, lambda: next(epochs), "all", seconds=60.0, every=0.0)


@pytest.mark.parametrize("epochs", [itertools.repeat(7), itertools.count()], ids=["one term", "many terms"])
def test_what_never_comes_is_found_however_terms_change(epochs):
    with pytest.raises(TimeoutError, match="all"):
        until_in_a_term(lambda: False, lambda: next(epochs), "all", seconds=0.0)


def test_a_job_chosen_for_deletion_is_locked_against_threads():
    free = []

    def take(lock):
        found = lock.acquire(blocking=False)
        if found:
            lock.release()
        return found

    class Chooser(random.Random):
        def choice(self, names):
            with ThreadPoolExecutor(1) as other:  # the lock is one that a thread may take twice
                free.append(other.submit(take, load._lock).result())
            return super().choice(names)

    class Deleting:
        def delete(self, *_):
            pass

    load = Load(stage=Deleting(), random=Chooser(1), gpus=2)
    load.jobs = {name: Running(Job(name=name, part=Part()), "lone", 1, {f"{name}-0"}) for name in ("a", "b")}
    load.shrink(0.5)
    assert len(load.jobs) == 1
    assert free == [False]


def decided(kind, pod, job, *, gainer="", action="reclaim"):
    of = Gainer(namespace="a", name=gainer, queue="q") if gainer else None
    subject = Subject(kind="Pod", namespace="a", name=pod, uid=pod)
    return Decision(cycle=1, time="", kind=kind, subject=subject, job=f"a/{job}", action=action, gainer=of)


def written(what, pod, at):
    return Write(life="", received=at, done=at, what=what, key=("a", pod), verb="create")


@pytest.mark.parametrize(
    ("decisions", "bound_at", "waiting", "outcome"),
    [
        ([decided(EVICT, "v", "old", gainer="new"), decided(BIND, "n", "new")], "5", (), BOUND),
        ([decided(EVICT, "v", "old", gainer="new"), decided(BIND, "n", "new")], "1", (), GONE),
        ([decided(EVICT, "v", "old", gainer="new"), decided(BIND, "n", "new")], "", ("n",), FUTILE),
        ([decided(EVICT, "v", "old", gainer="new"), decided(BIND, "n", "other")], "5", (), GONE),
        ([decided(EVICT, "v", "old", action="stalegangeviction")], "", (), SHORT),
        ([decided(EVICT, "v", "old")], "", (), FUTILE),
        ([decided(BIND, "v", "old")], "", (), UNTOLD),
    ],
    ids=["bound since", "bound before only", "waits still", "another was bound", "gang", "for no group", "no record"],
)
def test_an_eviction_is_judged_by_its_aggressors_fate(decisions, bound_at, waiting, outcome):
    writes = [written("pods/eviction", "v", "3"), *([written("pods/binding", "n", bound_at)] if bound_at else [])]
    found = Beneficiaries.of(writes, decisions, waiting)
    assert found.became() == {outcome: 1}
    assert len(found.futile()) == (outcome == FUTILE)
