import json

import pytest

from kai.answers.outcomes.job_states import State
from kai.answers.why.own_jobs import read_own
from kai.basics.errors import UnreachableError
from kai.cluster.transport.access import Access
from tests.doubles.list_server import listing
from tests.doubles.own_cluster import GANG, OwnGroup, own_manifests

REFUSED = UnreachableError("not allowed", is_forbidden=True, missing="list nodes")


@pytest.fixture
def read(tmp_path):
    def ask(groups=None, namespace="ml", hidden=()):
        with listing(own_manifests() if groups is None else own_manifests(groups)) as server:
            server.tenant, server.hidden = "jane", set(hidden)
            own = read_own(Access(kubeconfig=server.kubeconfig(tmp_path, namespace="ml")), namespace, REFUSED)
        return own, {each.line.job.name: each for each in own.jobs}

    return ask


def test_own_jobs_show_pod_states_and_written_reasons(read):
    _, jobs = read()
    seen = {
        name: (each.line.job.state, each.line.job.waiting_reason and each.line.job.waiting_reason.code)
        for name, each in jobs.items()
    }
    assert seen == {
        "runs": (State.RUNNING, None),
        "few": (State.WAITS, "NotReady"),
        "gang": (State.WAITS, "GangDoesNotFit"),
        "bound": (State.WAITS, "OverLimit"),
    }
    job = jobs["runs"].line.job
    assert (job.queue, job.gpus, job.minimum, job.placed, job.nodes) == ("team", 4000, 2, 2, ("n1",))


def test_slices_of_gpus_count_as_queues_count_them(read):
    slices = json.loads(
        json.dumps(OwnGroup(name="cut").manifests()).replace("nvidia.com/gpu", "nvidia.com/mig-3g.20gb")
    )

    class Cut:
        def manifests(self):
            return slices

    _, jobs = read([Cut()])
    line = jobs["cut"].line
    assert (line.job.gpus, [pod.gpus for pod in line.pods]) == (12_000, [6000, 6000])
    unseen = OwnGroup(name="unseen", status={"resourcesStatus": {"requested": {"nvidia.com/mig-3g.20gb": "2"}}})
    _, jobs = read([unseen], hidden=["pods"])
    assert jobs["unseen"].line.job.gpus == 6000


def test_what_takes_other_rights_is_unknown_and_not_guessed(read):
    _, jobs = read()
    line = jobs["gang"].line
    assert (line.job.priority, line.job.preemptible, line.position, line.keys) == (None, None, None, ())
    explanation = jobs["gang"].explanation
    assert not explanation.suggestions.changes
    assert not explanation.suggestions.all_tried
    assert explanation.waiting.endswith("is not known without the right to list nodes")


def test_the_source_says_that_it_is_not_complete(read):
    own, _ = read()
    assert (own.origin.type, own.origin.complete) == ("conditions", False)
    assert own.remark == "source: own conditions only (cannot list nodes); suggestions not verified"


def test_without_pod_rights_the_groups_status_decides(read):
    status = {"resourcesStatus": {"requested": {"nvidia.com/gpu": "4"}}}
    held = {"resourcesStatus": {**status["resourcesStatus"], "allocated": {"nvidia.com/gpu": "4"}}}
    groups = [
        OwnGroup(name="waits", told=[GANG], status=status),
        OwnGroup(name="runs", status=held),
        OwnGroup(name="part", told=[GANG], status=held),
        OwnGroup(name="silent", status=status),
        OwnGroup(name="empty"),
    ]
    _, jobs = read(groups, hidden=["pods"])
    assert {name: each.line.job.state for name, each in jobs.items()} == {
        "waits": State.WAITS,
        "runs": State.RUNNING,
        "part": State.PARTIAL,
        "silent": State.WAITS,
        "empty": State.EMPTY,
    }
    assert {each.line.counted for each in jobs.values()} == {False}
    assert jobs["waits"].line.job.gpus == 4000
    assert jobs["silent"].line.job.waiting_reason.code == "NotTried"


def test_a_group_that_the_scheduler_cannot_follow_is_impossible(read):
    told = [{"reason": "PodGroupRefused", "message": "spec.subGroups: found too many"}]
    _, jobs = read([OwnGroup(name="wrong", told=told)])
    assert jobs["wrong"].line.job.state is State.IMPOSSIBLE


def test_the_last_eviction_is_told_without_a_name(read):
    group = OwnGroup(name="gone", told=[GANG])
    manifests = group.manifests()
    stamp = {"kai.scheduler/last-eviction-timestamp": "2026-11-22T09:30:00Z"}
    manifests[0] = {**manifests[0], "metadata": {**manifests[0]["metadata"], "annotations": stamp}}

    class Evicted:
        def manifests(self):
            return manifests

    _, jobs = read([Evicted()])
    texts = [each.text for each in jobs["gone"].explanation.evidence if each.label == "evicted"]
    assert texts == ["its pods were evicted at 2026-11-22T09:30:00Z"]


def test_jobs_of_one_name_bear_their_namespace(tmp_path):
    groups = [OwnGroup(name="train"), OwnGroup(name="train", namespace="other")]
    with listing(own_manifests(groups)) as server:
        own = read_own(Access(kubeconfig=server.kubeconfig(tmp_path)), "", REFUSED)
    assert sorted(line.job.title for line in own.lines) == ["ml/train", "other/train"]


def test_without_pod_group_rights_reading_is_refused(read):
    with pytest.raises(UnreachableError, match=r"not allowed to list podgroups of scheduling.run.ai in namespace ml"):
        read(hidden=["podgroups"])


def test_each_job_says_since_when_it_waits(read):
    own, jobs = read()
    explanation = jobs["bound"].explanation
    assert explanation.waited == pytest.approx(own.now - explanation.since)
