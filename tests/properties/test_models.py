"""Laws of limits by model of GPU."""

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.axis import GPU
from kai.facts.model.groups import ModelBounds
from kai.framework.decisions import Recorder
from tests.properties.strategies import MODELS, contended, snapshots
from tests.properties.test_determinism import SHORTCUTS
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
