import attrs

from kai.deciding.configuration.profile_reading import default_configuration
from kai.lab.virtual.results.comparison import compare_runs
from kai.lab.virtual.results.metrics import PolicyInput, result_of
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import case, scene_of


def simulated(*, reclaims: bool) -> SimulationResult:
    default = default_configuration()
    actions = tuple(action for action in default.actions if reclaims or action != "reclaim")
    configuration = attrs.evolve(default, actions=actions)
    name = "default" if reclaims else "no-reclaim"
    return result_of(run(scene_of(case("reclaim.yaml")), configuration, until=8 * 3600.0), PolicyInput(name=name))


def test_two_policies_compare_by_figures_jobs_and_first_divergence():
    found = compare_runs(simulated(reclaims=True), simulated(reclaims=False)).comparison
    metrics = {metric.name: metric for metric in found.metrics}
    # Without reclaim `long` keeps its 8 GPUs for its 7500s, and `short` waits from 3600s until then.
    assert (metrics["owner wait max"].a, metrics["owner wait max"].b, metrics["owner wait max"].better) == (
        30,
        3900,
        "a",
    )
    assert (metrics["GPU-hours lost"].a, metrics["GPU-hours lost"].b) == (2.666667, 0.0)
    assert metrics["GPU-hours lost"].better == "b"
    assert [change.job for change in found.jobs] == ["default/long", "default/short"]
    assert [(change.a.reason, change.b.reason) for change in found.jobs if change.a and change.b] == [
        ("started T+0s, ended T+2h55m, 1 eviction", "started T+0s, ended T+2h5m, 0 evictions"),
        ("started T+1h, ended T+1h30m", "started T+2h5m, ended T+2h35m"),
    ]
    first = found.first_divergence
    assert first is not None
    assert first.decision_a == {
        "timeSeconds": 3600.0,
        "text": "evict default/long-0 n1 reclaim default/short",
    }
    assert first.decision_b == {"timeSeconds": 7500.0, "text": "bind default/short-0 n1"}


def test_the_same_run_twice_is_equal():
    one = simulated(reclaims=True)
    assert compare_runs(one, one).comparison.is_equal


def test_jobs_differing_only_by_nodes_show_their_nodes():
    one = simulated(reclaims=True)
    elsewhere = [attrs.evolve(job, nodes=("n7", "n8", "n9")) for job in one.jobs]
    (first, *_) = compare_runs(one, attrs.evolve(one, jobs=tuple(elsewhere))).comparison.jobs
    assert first.a is not None
    assert first.b is not None
    assert first.a.reason.endswith(", on n1")
    assert first.b.reason.endswith(", on n7, n8 and 1 more")


def test_close_times_are_printed_to_the_second():
    one = simulated(reclaims=True)
    later = [attrs.evolve(job, start_seconds=(job.start_seconds or 0.0) + 7.0) for job in one.jobs]
    changes = compare_runs(one, attrs.evolve(one, jobs=tuple(later))).comparison.jobs
    assert [(change.a.reason, change.b.reason) for change in changes if change.a and change.b] == [
        ("started T+0s, ended T+2h55m", "started T+7s, ended T+2h55m"),
        ("started T+1h0m30s, ended T+1h30m", "started T+1h0m37s, ended T+1h30m"),
    ]


def test_a_metric_that_one_result_lacks_is_unclear():
    one = simulated(reclaims=True)
    older = attrs.evolve(one, metrics={name: each for name, each in one.metrics.items() if name != "jain"})
    metrics = {metric.name: metric for metric in compare_runs(older, one).comparison.metrics}
    assert (metrics["fairness (Jain)"].a, metrics["fairness (Jain)"].better) == (None, "unclear")
