"""What is worth knowing of a run, in sentences; two runs beside each other."""

import re

import attrs
import pytest

from kai.deciding.configuration.profile_reading import default_configuration
from kai.lab.virtual.results.comparison import compare_runs, remarks
from kai.lab.virtual.results.metrics import PolicyInput, result_of, saving_text
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import case, cluster, gang, job, scene_of

DAY = 86400.0


@pytest.mark.parametrize(("cause", "said"), [("reclaim", "reclaim"), ("preempt", "preemption")])
def test_a_remark_names_the_eviction_by_its_noun(cause: str, said: str):
    result = result_of(run(scene_of(case("reclaim.yaml")), until=8 * 3600.0), PolicyInput(name="default"))
    evictions = tuple(attrs.evolve(each, cause=cause) for each in result.evictions)
    first, *_ = remarks(attrs.evolve(result, evictions=evictions))
    assert first == f"1 job got GPUs by {said}; it waited 30s for pods to terminate."


def starved(quota: int) -> tuple[str, ...]:
    """Return what is said of two days in which jobs of one GPU come faster than they end, and one gang of two nodes."""
    queues = cluster(2, quota=16).replace("name: work", "name: small").replace("quota: 16", f"quota: {16 - quota}")
    mine = cluster(1, quota=quota).rpartition("---")[2]
    small = job("small", arrival="poisson(rate=6/h, count=300)", duration="4h").replace("queue: work", "queue: small")
    text = queues + "---" + mine + small + gang("big", pods=2, gpus=8, arrival="6h", duration="1h")
    return remarks(result_of(run(scene_of(text), until=2.5 * DAY)))


def test_a_gang_passed_by_younger_jobs_is_remarked():
    said = starved(quota=8)
    assert "1 job over several nodes waited over a day." in said
    (told,) = (text for text in said if "that came after big" in text)
    assert re.match(r"\d{2,3} jobs that came after big \(16 GPUs\) started before it \(\d+ in small\)\.", told)
    assert "All of them are smaller: kai holds no idle GPUs back for a job that waits." in told
    assert told.endswith(
        "Queue work is sure of its quota of 8 only: with a quota of 16 the job could take them back from other queues."
    )


def test_the_quota_that_is_said_to_end_it_does():
    assert not any("big" in text and "started before it" in text for text in starved(quota=16))


@pytest.mark.parametrize(
    ("saving", "jobs", "said"),
    [
        (0, 0, "No job saves its work at checkpoints: after an interruption it begins anew."),
        (0, 3, "No job saves its work at checkpoints: after an interruption it begins anew."),
        (3, 3, "Each job saves its work at checkpoints."),
        (1, 3, "1 of 3 jobs saves its work at checkpoints; after an interruption the others begin anew."),
        (2, 3, "2 of 3 jobs save their work at checkpoints; after an interruption the other begins anew."),
    ],
)
def test_one_sentence_counts_the_jobs_with_checkpoints(saving: int, jobs: int, said: str):
    assert saving_text(saving, jobs) == said


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
