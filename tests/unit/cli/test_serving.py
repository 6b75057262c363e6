"""Commands that ask the service: the same tables, the very documents, and a last line that says so."""

import json
from contextlib import contextmanager

import pytest
from anyio.from_thread import start_blocking_portal

from kai.cli.command import run
from kai.cluster.clock import SystemClock
from kai.cluster.process.connections import serve
from kai.cluster.process.decisions import EVICT, Decision, Gainer, Subject, line_of
from kai.dashboard.access import LocalAccess, TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import LIMITS, Dashboard
from tests.doubles.two_tenants import OURS, SECRETS, ended_cycle
from tests.unit.dashboard.test_server import Rights

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: prod
clusters: [{name: prod, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: jane, user: {token: tenant}}]
contexts: [{name: prod, context: {cluster: prod, user: jane, namespace: amber}}]
"""


@contextmanager
def service(rights=None, last=None):
    """Serve a dashboard from a thread; yield its URL."""
    feed = Feed()
    feed.show(ended_cycle() if last is None else last)
    access = LocalAccess() if rights is None else TokenAccess(rights)
    answers, clock = AnswerCache(feed, SystemClock()), SystemClock()
    board = Dashboard(answers=answers, access=access, pages=make_pages(answers, access, clock, list), patience=600)
    with start_blocking_portal() as portal:
        serving, port = portal.start_task(serve, "127.0.0.1", 0, board.respond, LIMITS)
        yield f"http://127.0.0.1:{port}"
        serving.cancel()


@pytest.fixture(scope="module")
def everything():
    with service() as url:
        yield url


@pytest.fixture(scope="module")
def ours():
    with service(Rights(tenant={f"podgroups/{OURS}"})) as url:
        yield url


@pytest.fixture(scope="module")
def labelled():
    with service(last=ended_cycle(labels={"walrus-waits": {"app": "web"}, "team-zebra": {"team": "zebra"}})) as url:
        yield url


@pytest.fixture
def shown(tmp_path, capsys):
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)

    def ask(url, *arguments, code=0):
        assert run([*arguments, "--service", url, "--kubeconfig", str(path)]) == code
        return capsys.readouterr()

    return ask


def test_an_address_needs_no_kubeconfig(everything, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert run(["queues", "--service", everything]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("company ")
    assert run(["queues", "--service", "kai-scheduler/kai-dashboard"]) == 4
    assert capsys.readouterr().err.startswith("error: no cluster: give --kubeconfig or set KUBECONFIG")


@pytest.mark.parametrize("place", ["foo", "localhost:8085", "a/b/c", "http://", "ftp://host/path"])
def test_what_is_no_place_of_a_service_is_refused(place, capsys):
    assert run(["queues", "--service", place]) == 2
    said = capsys.readouterr().err.splitlines()[0]
    assert said == f"error: --service: found {place!r}, expected a URL or NAMESPACE/NAME"


def test_the_tables_are_drawn_of_what_the_service_answers(shown, everything):
    assert [line.split()[0] for line in shown(everything, "queues").out.splitlines()[1:4]] == ["company", "├─", "└─"]
    nodes = shown(everything, "nodes").out.splitlines()
    assert [line.split()[0] for line in nodes[1:3]] == ["basalt-1", "basalt-2"]
    jobs = shown(everything, "jobs", "-A").out
    assert {line.split()[0] for line in jobs.splitlines()[1:]} >= {"ours-runs", "ours-waits", "quokka"}
    assert shown(everything, "why", "ours-waits").out.startswith("ours-waits ")
    assert shown(everything, "why", "queue/team-amber").out.startswith("team-amber is entitled to 4 GPUs")
    assert "jobs wait, for" in shown(everything, "why", "--all", "-A").out


def test_service_reasons_show_job_sizes_that_no_evidence_measures(shown):
    with service(last=ended_cycle(limit=6)) as url:
        drawn = shown(url, "why", "--all", "-A").out
    assert "OverLimit · queue team-zebra · 1 pod, 2 GPUs\n" in drawn


def test_the_source_line_notes_the_service_and_omissions(shown, everything, ours):
    assert shown(everything, "queues").err.splitlines()[-1] == f"source: service {everything}, cycle 1"
    last = shown(ours, "jobs").err.splitlines()[-1]
    assert last == f"source: service {ours}, cycle 1; what you may not list is left out"


def test_documents_are_those_of_the_service(shown, ours):
    document = json.loads(shown(ours, "jobs", "-o", "json").out)
    assert (document["kind"], document["source"]["type"], document["source"]["complete"]) == (
        "JobList",
        "service",
        False,
    )
    assert [item["name"] for item in document["items"]] == ["ours-runs", "ours-waits"]
    explained = json.loads(shown(ours, "why", "ours-waits", "-o", "json").out)
    assert (explained["kind"], explained["subject"]["name"]) == ("Explanation", "ours-waits")


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "-A"],
        ["jobs", "--pods"],
        ["why", "ours-waits", "--detail"],
        ["why", "--all", "-A"],
        ["why", "--evicted", "-A"],
        ["jobs", "-o", "wide"],
    ],
)
def test_no_table_names_another_tenant(shown, ours, arguments):
    said = shown(ours, *arguments)
    assert not [secret for secret in SECRETS if secret in said.out + said.err]


@pytest.mark.parametrize("arguments", [["queues"], ["nodes"], ["why", "node/basalt-1"], ["jobs", "-n", "cobalt"]])
def test_what_is_not_allowed_leaves_with_3(shown, ours, arguments):
    assert shown(ours, *arguments, code=3).err.startswith("error: ")


def test_a_job_that_may_not_be_listed_is_unknown(shown, ours):
    assert shown(ours, "why", "quokka", code=4).err.startswith(
        "error: found no job quokka among the jobs that you may list"
    )


def test_a_service_that_is_away_leaves_with_3(shown):
    assert shown("http://127.0.0.1:9", "jobs", code=3).err == "error: http://127.0.0.1:9: refused the connection\n"


def firsts(said):
    return [line.split()[0] for line in said.out.splitlines()]


def test_pods_nodes_and_evictions_are_asked_for_as_well(shown, everything):
    pods = shown(everything, "jobs", "--pods", "--queue", "team-amber")
    assert firsts(pods) == ["POD", "ours-runs-0", "ours-waits-0", "ours-waits-1"]
    assert shown(everything, "why", "node/basalt-2").out.startswith("basalt-2 is full: of 4 GPUs")
    assert shown(everything, "why", "basalt-2").out.startswith("basalt-2 is full: of 4 GPUs")
    assert shown(everything, "why", "team-amber").out.startswith("team-amber is entitled to 4 GPUs")
    assert shown(everything, "why", "ours-waits-1").out.startswith("ours-waits ")
    assert shown(everything, "why", "--evicted", "-A").out.strip() == "no pod has to go and no eviction is on record"
    document = json.loads(shown(everything, "why", "ours-runs", "--evicted", "-o", "json").out)
    assert (document["kind"], document["past"], document["lookedAt"]) == ("EvictionList", [], ["service"])
    assert shown(everything, "why", "nothing-like-it", code=4).err.startswith("error: found no job nothing-like-it")


def test_a_decision_log_adds_to_what_the_service_remembers(shown, everything, ours, tmp_path):
    path = tmp_path / "log"
    evicted = Decision(
        cycle=1,
        time="2026-01-30T08:00:00Z",
        kind=EVICT,
        subject=Subject(kind="Pod", namespace="amber", name="old-0"),
        job="amber/old",
        gainer=Gainer(namespace="zebra", name="new", queue="team-zebra"),
    )
    path.write_bytes(line_of(evicted) + b"{")
    said = shown(everything, "why", "--evicted", "-A", "--decision-log", str(path))
    assert "amber/old" in said.out
    assert "zebra/new" in said.out
    assert f"note: {path}: 1 line that is no decision was passed over: line 2, found cut short" in said.err
    document = json.loads(shown(everything, "why", "old", "--evicted", "--decision-log", str(path), "-o", "json").out)
    assert document["lookedAt"] == ["service", "decision log"]
    assert "zebra" not in shown(ours, "why", "--evicted", "--decision-log", str(path)).out


def test_labels_are_asked_for_as_well(shown, labelled):
    assert firsts(shown(labelled, "jobs", "-A", "-l", "app=web")) == ["JOB", "walrus-waits"]
    assert firsts(shown(labelled, "queues", "-l", "team=zebra"))[1] == "team-zebra"
    assert shown(labelled, "why", "--all", "-A", "-l", "app=web").out.startswith("1 job waits")
    assert shown(labelled, "why", "--all", "-A", "-l", "app=none").out.startswith("no job waits")
    assert shown(labelled, "why", "walrus-waits", "-A", "-l", "app=none", code=4).err.startswith("error: found no job")
    assert "no eviction" in shown(labelled, "why", "--evicted", "-A", "-l", "app=web").out
