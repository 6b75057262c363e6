"""``kai doctor``: lines for people, findings for programs, exit codes."""

import json

import attrs
import pytest

from kai.cli.checking import doctor
from kai.cli.command import run
from tests.unit.doctor.cluster import HEALTHY, deployment, queue, with_lists

THEIRS = deployment("kai-scheduler-default", "ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17")


@pytest.fixture
def shown(monkeypatch, capsys):
    def show(seen, *words):
        monkeypatch.setattr(doctor, "_look", lambda *_: (seen, "lab"))
        code = run(["doctor", *words])
        return code, capsys.readouterr().out

    return show


def test_a_healthy_cluster_has_a_line_for_each_check(shown):
    code, text = shown(HEALTHY)
    lines = text.splitlines()
    assert code == 0
    assert lines[0] == "ok    API server v1.34.1"
    assert "ok    3 queues, none without its parent" in lines
    assert lines[-1] == "0 of 34 checks need attention"


def test_a_failed_check_shows_its_help_and_exits_1(shown):
    code, text = shown(with_lists(deployments=(THEIRS,)))
    assert code == 1
    at = text.index("fail  D007 the scheduler of KAI-Scheduler runs (kai-scheduler-default, 1 replica")
    assert text[at:].splitlines()[1].startswith("        help: kubectl -n kai-scheduler scale deploy")
    assert text.splitlines()[-1] == "1 of 34 checks needs attention"


def test_a_warning_does_not_change_the_exit_code(shown):
    code, text = shown(with_lists(queues=(queue("a", quota=9, limit=4),)), "--only", "d032")
    assert code == 0
    assert text.startswith("warn  D032 queue a: its limit of 4 GPUs")
    assert text.splitlines()[-1] == "1 of 1 checks needs attention"


def test_programs_get_findings_with_the_fields_that_are_promised(shown):
    code, text = shown(with_lists(queues=(queue("a", "gone"),)), "-o", "json", "--only", "D031,D001")
    document = json.loads(text)
    assert code == 1
    assert (document["apiVersion"], document["kind"]) == ("output.kai/v1", "Findings")
    bad, well = document["items"]
    assert (bad["code"], bad["severity"], bad["object"], bad["found"]) == ("D031", "fail", "queue/a", "gone")
    assert (well["code"], well["severity"], well["help"]) == ("D001", "ok", None)


def test_the_checks_are_listed_without_a_cluster(capsys):
    assert run(["doctor", "--list"]) == 0
    assert "D007  KAI-Scheduler beside kai\n" in capsys.readouterr().out


def test_an_unknown_check_is_said(capsys):
    assert run(["doctor", "--only", "D077"]) == 2
    assert "'D077', expected the code of a check" in capsys.readouterr().err


def test_a_cluster_that_cannot_be_reached_ends_with_3(tmp_path, capsys):
    path = tmp_path / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {token: abc}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}, {name: z, context: {cluster: c, user: u}}]\n"
    )
    assert run(["doctor", "--kubeconfig", str(path)]) == 3
    told, *helps = capsys.readouterr().err.splitlines()
    assert told.startswith('error: cannot reach the cluster of context "x"')
    assert helps == ["  help: kai doctor --context z"]


UNREAD = attrs.evolve(
    HEALTHY,
    lists={},
    unread=dict.fromkeys(("pods", "queues", "deployments", "crds"), "not allowed"),
)


def test_without_any_right_doctor_names_rights_and_exits_3(shown, capsys):
    code, _ = shown(UNREAD, "--only", "D003,D007,D010,D031")
    assert code == 3
    assert run(["doctor", "--only", "D003,D007,D031", "-q"]) == 3
    assert capsys.readouterr().err == (
        "error: nothing in the cluster lab could be checked: not allowed to list "
        "customresourcedefinitions.apiextensions.k8s.io, pods, deployments.apps, queues.scheduling.run.ai\n"
        "  help: ask for a cluster role with list for these, or for another context\n"
    )


@pytest.mark.parametrize("only", ["D010", "D031,D009"])
def test_checks_that_run_or_need_no_right_exit_0(shown, only):
    assert shown(UNREAD if only == "D010" else attrs.evolve(HEALTHY, unread={"queues": "x"}), "--only", only)[0] == 0


def test_an_unread_cluster_for_other_reasons_names_no_right(shown, capsys):
    assert shown(attrs.evolve(HEALTHY, unread={"queues": "etcd is away"}), "--only", "D031")[0] == 3
    assert run(["doctor", "--only", "D031"]) == 3
    assert capsys.readouterr().err == "error: nothing in the cluster lab could be checked\n"


def test_the_list_of_checks_has_a_document(capsys):
    assert run(["doctor", "--list", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "CheckList"
    assert document["items"][0] == {"code": "D001", "title": "API server"}
