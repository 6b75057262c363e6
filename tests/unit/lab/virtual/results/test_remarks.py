"""What is worth knowing of a run, in sentences."""

import re

import attrs
import pytest

from kai.lab.virtual.results.metrics import PolicyInput, result_of, saving_text
from kai.lab.virtual.results.remarks import remarks
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
