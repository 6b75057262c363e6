"""``kai jobs`` and ``kai why`` for users who may list one namespace only (``kai.answers.why.own_jobs``)."""

import json

import pytest

from kai.cli.command import run
from tests.doubles.list_server import listing
from tests.doubles.own_cluster import own_manifests

REMARK = "source: own conditions only (cannot list nodes); suggestions not verified"
REFUSED = 'error: not allowed to list nodes in all namespaces as "jane" in the cluster of context "prod"'


@pytest.fixture
def shown(tmp_path, capsys):
    def ask(*arguments, code=0, hidden=()):
        with listing(own_manifests()) as server:
            server.tenant, server.hidden = "jane", set(hidden)
            assert run([*arguments, "--kubeconfig", server.kubeconfig(tmp_path, namespace="ml")]) == code
        return capsys.readouterr()

    return ask


def test_own_jobs_are_listed_with_reasons_and_nothing_foreign(shown):
    said = shown("jobs")
    rows = [line.split() for line in said.out.splitlines()[1:]]
    assert [[row[0], row[4], row[5]] for row in rows] == [
        ["runs", "2/2", "Running"],
        ["bound", "0/2", "Waits"],
        ["few", "0/1", "Waits"],
        ["gang", "0/2", "Waits"],
    ]
    assert [row[8] for row in rows[1:]] == ["OverLimit", "NotReady", "GangDoesNotFit"]
    assert "secret" not in said.out
    assert said.err.splitlines()[-1] == REMARK


def test_a_job_is_explained_by_its_conditions(shown):
    said = shown("why", "bound")
    lines = said.out.splitlines()
    assert lines[0] == "bound waits: queue team may not use more than 4 GPUs, and this job would make it 7 GPUs."
    assert lines[1].startswith("OverLimit · queue team · 2 pods, 4 GPUs · waiting ")
    assert "  team   limit 4   used 3   this job 4   over by 3" in lines
    assert "  No change was tried." in lines
    assert said.err.splitlines()[-1] == REMARK


def test_all_own_jobs_that_wait_are_explained(shown):
    assert shown("why", "--all").out.splitlines()[0] == "3 jobs wait, for 3 reasons"


def test_a_job_is_found_by_its_pods(shown):
    assert shown("why", "runs-0").out.startswith("runs runs on n1.\n")
    assert shown("why", "bound", "--exit-code", code=1).out


def test_documents_say_that_they_are_not_complete(shown):
    document = json.loads(shown("jobs", "-o", "json").out)
    assert (document["source"]["type"], document["source"]["complete"]) == ("conditions", False)
    document = json.loads(shown("why", "bound", "-o", "json").out)
    assert document["source"]["complete"] is False
    assert document["reason"]["wireReason"] == "OverLimit"
    assert (document["suggestions"], document["allChangesTried"]) == ([], False)


def test_pods_that_cannot_be_listed_are_not_counted(shown):
    said = shown("jobs", "-o", "json", hidden=["pods"])
    assert {tuple(item["pods"].values()) for item in json.loads(said.out)["items"]} == {(None, None, None)}
    assert " 0/" not in shown("jobs", hidden=["pods"]).out


@pytest.mark.parametrize(
    "arguments",
    [
        ["queues"],
        ["nodes"],
        ["jobs", "--order"],
        ["jobs", "-A"],
        ["why", "queue/team"],
        ["why", "node/n1"],
        ["why", "--evicted", "-A"],
    ],
)
def test_what_takes_the_whole_cluster_names_the_right(shown, arguments):
    assert shown(*arguments, code=3).err.splitlines()[0] == REFUSED


def test_without_pod_group_rights_the_refusal_is_printed(shown):
    assert shown("jobs", code=3, hidden=["podgroups"]).err.splitlines()[0] == REFUSED


def test_a_job_of_others_is_unknown(shown):
    lines = shown("why", "secret", code=4).err.splitlines()
    assert lines == ["error: found no job secret among your own", "  help: kai jobs lists them"]
    assert shown("jobs", "--queue", "another").out == "no jobs\n"


def test_silence_holds_for_the_remark_as_well(shown):
    assert not shown("jobs", "-q").err
