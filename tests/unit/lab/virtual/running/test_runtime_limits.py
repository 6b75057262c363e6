"""Jobs with limits of their run time, over virtual time."""

from math import inf

import pytest

from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import cluster, job, scene_of

LIMIT = "kai.scheduler/max-runtime"


def limited(text, **annotations):
    """Return a job's manifest with kai's annotations, - for _."""
    said = "".join(f'    kai.scheduler/{key.replace("_", "-")}: "{value}"\n' for key, value in annotations.items())
    return text.replace("    about: test\n", f"    about: test\n{said}", 1)


def records(text, until=inf):
    return {each.name: each for each in run(scene_of(text), until=until).records.jobs}


def test_a_job_without_a_limit_runs_to_its_end():
    found = records(cluster() + job("j", duration="2h"))["j"]
    assert (found.ending, found.end - found.start) == ("done", 7200.0)


@pytest.mark.parametrize(
    "text",
    [
        limited(job("j", duration="2h"), max_runtime="30m"),
        job("j", duration="2h", spec="  activeDeadlineSeconds: 1800\n"),
    ],
    ids=["kai's", "the Job's"],
)
def test_a_job_ends_at_its_limit(text):
    found = records(cluster() + text)["j"]
    assert (found.ending, found.end - found.start) == ("time limit", 1800.0)


def test_a_job_that_ends_before_its_limit_is_done():
    assert records(cluster() + limited(job("j", duration="29m"), max_runtime="30m"))["j"].ending == "done"


def test_a_queue_limits_its_jobs():
    queues = cluster().replace("metadata: {name: all}\nspec:\n", 'metadata: {name: all}\nspec:\n  maxRuntime: "10m"\n')
    found = records(queues + limited(job("j", duration="2h"), max_runtime="30m"))["j"]
    assert (found.ending, found.end - found.start) == ("time limit", 600.0)


def test_a_job_that_requeues_goes_on_after_its_delay():
    text = limited(
        job("j", duration="50m", checkpoint_every="1m"), max_runtime="30m", runtime_policy="requeue", requeue_delay="1h"
    )
    found = records(cluster() + text)["j"]
    assert found.ending == "done"
    assert found.end - found.start >= 50 * 60 + 3600


def test_a_job_that_yields_goes_on():
    text = limited(job("j", duration="2h"), max_runtime="30m", runtime_policy="yield")
    assert records(cluster() + text)["j"].ending == "done"
