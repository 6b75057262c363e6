from pathlib import Path

import pytest
import yaml

from kai.lab.request import Request

HERE = Path(__file__).parent
SNAPSHOT = HERE / "kai-snapshot-lab.zip"
EXPECTED = yaml.safe_load((HERE / "kai-snapshot-lab.expected.yaml").read_text())["then"]


@pytest.fixture(scope="module")
def result():
    return Request().run(str(SNAPSHOT))


def test_the_snapshot_is_read_whole(result):
    objects = result.case.objects
    assert (len(objects.nodes), len(objects.pods), len(objects.queues), len(objects.pod_groups)) == (13, 80, 8, 27)
    assert result.notes == ()


def test_the_same_pods_start_as_in_the_cluster(result):
    started = {job.name: (job.started, job.nodes) for job in result.overview.jobs if job.started}
    assert started == {name: (want["pods"], (want["node"],)) for name, want in EXPECTED["bound"].items()}


def test_nobody_is_evicted(result):
    assert [pod for pod, _ in result.overview.evictions] == EXPECTED["evicted"]


def test_waiting_groups_are_explained_as_in_the_cluster(result):
    told = {
        job.name: [str(explanation) for explanation in job.explanations]
        for job in result.overview.jobs
        if job.waiting_reason is not None and job.placed == 0
    }
    # The texts in the file are wrapped; only their white space differs.
    assert {name: [" ".join(text.split()) for text in texts] for name, texts in told.items()} == {
        name: [" ".join(text.split()) for text in texts] for name, texts in EXPECTED["pending"].items()
    }


def test_every_waiting_group_has_one_plain_reason(result):
    codes = {job.name: job.waiting_reason.code for job in result.overview.jobs if job.waiting_reason is not None}
    assert codes == {
        "elastic": "AtFairShare",
        "huge": "ClusterTooSmall",
        "late-chat": "NonPreemptibleOverQuota",
        "late-train": "GangDoesNotFit",
        "late-vision": "AtFairShare",
        "nb-1": "NonPreemptibleOverQuota",
        "rack-job": "TopologyHasNoRoom",
        "too-big": "OverLimit",
    }
