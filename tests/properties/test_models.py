"""Laws of limits and quotas by model of GPU."""

from typing import Any

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.axis import GPU
from kai.facts.model.groups import ModelBounds
from kai.framework.decisions import Cause, Evict, Recorder
from kai.testing import snapshot as snapshot_of
from tests.properties.strategies import MODELS, contended, snapshots
from tests.properties.test_determinism import SHORTCUTS
from tests.properties.test_fairness import where_paths_part, within
from tests.properties.turns import is_restless, turns_of
from tests.properties.watch import Watch, no_queue_exceeds_its_limit, nothing_is_overcommitted, profile

LAWS = (no_queue_exceeds_its_limit, nothing_is_overcommitted)


@given(snapshots(groups=(2, 6), models=True))
def test_no_queue_exceeds_a_model_limit_within_any_statement(snapshot):
    Watch.of(snapshot, profile(), laws=LAWS).run()


@given(contended(models=True, nodes=(2, 4)))
def test_contending_queues_never_exceed_a_model_limit(snapshot):
    Watch.of(snapshot, profile(), laws=LAWS).run()


@given(st.one_of(snapshots(groups=(2, 7), models=True), contended(models=True, pods=8)))
def test_kernels_never_exceed_a_model_limit(snapshot):
    Watch.of(snapshot, profile(shortcuts=True), laws=LAWS).run()


@given(st.one_of(snapshots(groups=(2, 7), models=True), contended(models=True, pods=8)), st.sampled_from(SHORTCUTS))
def test_shortcuts_decide_the_same_with_limits_of_models(snapshot, shortcut):
    slow = decisions(snapshot, shortcuts=False)
    assert decisions(snapshot) == slow
    assert decisions(snapshot, without=(shortcut.name,)) == slow


@given(st.one_of(snapshots(groups=(2, 6)), contended()), st.lists(st.sampled_from(MODELS), min_size=5, max_size=5))
def test_models_without_a_limit_change_no_decision(snapshot, models):
    free = {model: ModelBounds() for model in MODELS if model}
    named = attrs.evolve(
        snapshot,
        nodes=tuple(attrs.evolve(node, gpu_model=model) for node, model in zip(snapshot.nodes, models, strict=False)),
        queues=tuple(attrs.evolve(queue, models=free) for queue in snapshot.queues),
    )
    assert decisions(named) == decisions(snapshot)


@given(snapshots(models=True))
def test_use_by_model_sums_to_the_gpu_use(snapshot):
    named = {model: ModelBounds() for model in ("h100", "a100", "other")}
    queues = tuple(attrs.evolve(queue, models={**named, **queue.models}) for queue in snapshot.queues)
    nodes = tuple(attrs.evolve(node, gpu_model=node.gpu_model or "other") for node in snapshot.nodes)
    columns = Watch.of(attrs.evolve(snapshot, queues=queues, nodes=nodes), profile()).session.columns
    assert np.array_equal(columns.queue_models.sum(axis=1), columns.queue_used[:, GPU])


def decisions(snapshot, **parameters):
    sink = Recorder()
    run_cycle(snapshot, profile(**{"shortcuts": True, **parameters}), sink)
    return sink.decisions


OWED = {"models": True, "owed": True}


def shortfalls(watch, models):
    """Return int64[Q, M]: what queues lack of what they deserve of each model, if they use ``models``."""
    return np.maximum(watch.session.policy.fair_shares.models - models, 0)


@attrs.define
class Reclaims:
    """What queues used of each model before the statement at hand, and how many reclaims were by model."""

    before: Any = None

    def judge(self, watch, decisions):
        now = watch.session.columns.queue_models
        lost = [each for each in decisions if isinstance(each, Evict) and each.cause is Cause.RECLAIM]
        if lost and watch.session.policy.fair_shares.models is not None:
            before = watch.opening_models if self.before is None else self.before
            assert (shortfalls(watch, now) <= shortfalls(watch, before)).all()
            gone = [each for each in lost if each.moved_to < 0]
            if any(self.is_by_model(watch, each) for each in gone):
                assert shortfalls(watch, now).sum() < shortfalls(watch, before).sum()
        self.before = now.copy()

    @staticmethod
    def is_by_model(watch, evict):
        """Say that a queue loses a pod although it is within its share and its quota of all GPUs."""
        groups, queues = watch.session.facts.groups.queue, watch.session.facts.queues
        _, giver = where_paths_part(
            watch.session, int(groups[evict.aggressor]), int(groups[watch.session.facts.pods.group[evict.pod]])
        )
        return within(watch.used[giver], queues.allocatable[giver]) and within(watch.used[giver], queues.quota[giver])


_free = st.sampled_from((2, 3, 4))
_owing_queues = st.lists(
    st.tuples(
        st.sampled_from((-1, -1, -1, 0, 1)),  # parent, if it comes before
        st.sampled_from((1, 2, 2, 3, 4, 0)),  # quota
        st.sampled_from((0, 1, 2, 3, 4)),  # quota of H100s
        st.sampled_from((0, 0, 2)),  # quota of A100s
    ),
    min_size=2,
    max_size=4,
)
_owing_groups = st.lists(
    st.tuples(
        st.integers(0, 3),  # queue
        st.sampled_from(("h1", "h1", "h1", "h2", "a1", "", "")),  # where it runs
        st.sampled_from((1, 1, 2, 2, 3)),  # members
        st.sampled_from((False, False, True)),  # whether it needs all of them
        st.sampled_from((1, 1, 1, 2)),  # GPUs of each
        st.sampled_from(("h100", "h100", "a100", "")),  # what it selects
        st.sampled_from((True, True, True, False)),  # preemptible
    ),
    min_size=5,
    max_size=10,
)


@st.composite
def owing(draw):
    """Draw a cluster whose queues have quotas of two models, run on one of them and wait for it."""
    sizes = {name: draw(_free) for name in draw(st.sampled_from((("h1", "a1"), ("h1", "a1", "h2"))))}
    models = {name: "h100" if name.startswith("h") else "a100" for name in sizes}
    nodes = {name: {"gpu": sizes[name], "model": models[name], "labels": {"kind": models[name]}} for name in sizes}
    queues, groups = {}, {}
    for row, (parent, quota, fast, slow) in enumerate(draw(_owing_queues)):
        above = {"parent": f"q{parent}"} if 0 <= parent < row else {}
        queues[f"q{row}"] = {"quota": quota, "models": {"h100": {"quota": fast}, "a100": {"quota": slow}}, **above}
    parents = {queue.get("parent") for queue in queues.values()}
    leaves = [name for name in queues if name not in parents]
    for row, (queue, node, members, needs_all, gpus, model, preemptible) in enumerate(draw(_owing_groups)):
        place = {"runs_on": node} if node and sizes.get(node, 0) >= members * gpus else {}
        if place:
            sizes[node] -= members * gpus
        groups[f"g{row}"] = {
            "queue": leaves[queue % len(leaves)],
            "members": members,
            "minimum": members if needs_all else 1,
            "each": {"gpu": gpus},
            "preemptible": preemptible,
            **({"selector": {"kind": model}} if model and (not place or models[node] == model) else {}),
            **place,
        }
    return snapshot_of(nodes, groups, queues)


@given(st.one_of(owing(), contended(**OWED, nodes=(2, 4), groups=(4, 8))), st.booleans())
def test_each_reclaim_by_model_lowers_what_queues_lack(snapshot, movable):
    using = profile("allocate", "consolidation", "reclaim", allow_consolidating_reclaim=movable)
    Watch.of(snapshot, using, judges=(Reclaims().judge,)).run()


@given(owing())
def test_kernels_lower_what_queues_lack_by_each_reclaim(snapshot):
    Watch.of(snapshot, profile("reclaim", shortcuts=True), judges=(Reclaims().judge,)).run()


@given(st.one_of(owing(), snapshots(groups=(2, 7), **OWED)), st.sampled_from(SHORTCUTS))
def test_shortcuts_decide_the_same_with_quotas_of_models(snapshot, shortcut):
    slow = decisions(snapshot, shortcuts=False)
    assert decisions(snapshot) == slow
    assert decisions(snapshot, without=(shortcut.name,)) == slow


@given(st.one_of(owing(), contended(**OWED)))
def test_queues_with_quotas_of_models_come_to_rest(snapshot):
    assert not is_restless(turns_of(snapshot))


@given(st.one_of(snapshots(groups=(2, 6), **OWED), contended(**OWED)))
def test_quotas_of_absent_models_change_no_decision(snapshot):
    queues = tuple(attrs.evolve(queue, models={"l40s": ModelBounds(quota=4000.0)}) for queue in snapshot.queues)
    none = tuple(attrs.evolve(queue, models={}) for queue in snapshot.queues)
    assert decisions(attrs.evolve(snapshot, queues=queues)) == decisions(attrs.evolve(snapshot, queues=none))
