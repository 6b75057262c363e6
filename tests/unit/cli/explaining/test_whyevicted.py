"""``kai why --evicted``: of the present cycle, of events in the cluster, and of the decision log of a service."""

import json
from pathlib import Path

import pytest

from kai.answers.why.past_evictions import from_log
from kai.basics.errors import InputError
from kai.cli.command import run
from kai.cluster.process.decisions import EVICT, Decision, Gainer, Subject, line_of
from tests.doubles.list_server import listing
from tests.doubles.own_cluster import own_manifests

CLUSTER = """
cluster: {nodes: {n1: {gpu: 4}}}
queues: {lab: {quota: 4}, a: {parent: lab, quota: 4}, b: {parent: lab, quota: 0}}
groups:
  runs: {queue: b, members: 2, each: {gpu: 2}, runs_on: n1}
  big: {queue: a, each: {gpu: 4}}
"""
LATER = "2026-11-22T08:40:00Z"
NUMBERS = {"gpus": 2.0, "victimQueueUsedGpus": 4.0, "victimQueueFairShareGpus": 0.0}


def logged(pod, job, gainer, *, time="2026-01-30T08:00:00Z"):
    namespace, _, _ = job.partition("/")
    winner = gainer.partition("/")
    return Decision(
        cycle=1,
        time=time,
        kind=EVICT,
        subject=Subject(kind="Pod", namespace=namespace, name=pod),
        job=job,
        queue="b",
        action="reclaim",
        rule="fair share",
        gainer=Gainer(namespace=winner[0], name=winner[2], queue="a"),
        numbers=NUMBERS,
    )


@pytest.fixture
def log(tmp_path):
    def write(*decisions):
        path = tmp_path / "decisions.jsonl"
        path.write_bytes(b"".join(map(line_of, decisions)))
        return str(path)

    return write


@pytest.fixture
def asked(tmp_path, capsys):
    def ask(*arguments, code=0):
        path = tmp_path / "cluster.yaml"
        path.write_text(CLUSTER)
        assert run(["why", *arguments, "--evicted", "-f", str(path)]) == code
        return capsys.readouterr()

    return ask


def test_past_evictions_come_before_those_of_the_present_cycle(asked, log):
    path = log(logged("old-0", "ml/old", "ml/new"), logged("old-1", "ml/old", "ml/new"))
    text = asked("--decision-log", path).out
    before, now = text.split("\n\n")
    rows = [" ".join(line.split()) for line in before.splitlines()[1:]]
    assert rows == [
        "TIME JOB QUEUE PODS GPUS CAUSE FOR RULE",
        "2026-01-30T08:00:00Z ml/old b 2 4 reclaim ml/new (queue a) fair share",
        "b used 4 GPUs, fair share 0",
    ]
    assert now.splitlines()[0] == "Evicted"
    assert now.splitlines()[2].split()[:4] == ["runs", "b", "2", "4"]


def test_a_deleted_job_is_found_in_the_decision_log(asked, log):
    path = log(logged("old-0", "ml/old", "ml/new"), logged("other-0", "ml/other", "ml/new"))
    for name in ("old", "ml/old", "job/old", "old-0"):
        text = asked(name, "--decision-log", path).out
        assert "ml/old" in text
        assert "ml/other" not in text
    assert asked("ghost", "--decision-log", path, code=4).err.startswith("error: found no job ghost")


def test_unreadable_log_lines_are_skipped_with_one_note(asked, log):
    path = log(logged("old-0", "ml/old", "ml/new"), logged("old-1", "ml/old", "ml/new"))
    Path(path).write_bytes(b"\x00\n" + Path(path).read_bytes()[:-20])
    for arguments in ([], ["old"], ["-o", "json"], ["-o", "name"]):
        said = asked(*arguments, "--decision-log", path)
        assert said.err == (
            f"note: {path}: 2 lines that are no decisions were passed over: the first of them line 1, found no JSON\n"
        )
        assert "old-0" in said.out or "ml/old" in said.out
    assert asked("--decision-log", path, "-q").err == ""


def test_only_jobs_of_the_namespace_are_told(asked, log):
    path = log(logged("old-0", "ml/old", "ml/new"), logged("x-0", "x/old", "ml/new"))
    text = asked("-n", "x", "--decision-log", path).out
    assert ("x/old" in text, "ml/old" in text) == (True, False)


def test_documents_name_each_pod_and_where_was_looked(asked, log):
    path = log(logged("old-0", "ml/old", "ml/new"))
    found = json.loads(asked("old", "--decision-log", path, "-o", "json").out)
    assert (found["kind"], found["items"], found["lookedAt"]) == ("EvictionList", [], ["decision log"])
    assert found["past"] == [
        {
            "time": "2026-01-30T08:00:00Z",
            "pod": "ml/old-0",
            "job": "ml/old",
            "queue": "b",
            "gpus": 2.0,
            "cause": "reclaim",
            "beneficiary": "ml/new",
            "beneficiaryQueue": "a",
            "rule": "fair share",
            "because": "b used 4 GPUs, fair share 0",
            "source": "decision log",
        }
    ]
    assert asked("old", "--decision-log", path, "-o", "name").out == "pod/old-0\n"


def test_a_long_record_shows_what_came_last(asked, log):
    times = [f"2026-01-30T08:{minute:02d}:00Z" for minute in range(25)]
    path = log(*(logged(f"old-{at}", "ml/old", "ml/new", time=time) for at, time in enumerate(times)))
    lines = asked("old", "--decision-log", path).out.splitlines()
    assert lines[1] == "  5 earlier rows not shown (-o wide)"
    assert times[4] not in "\n".join(lines)
    assert times[24] in "\n".join(lines)


def test_a_cluster_that_is_away_leaves_the_decision_log(tmp_path, capsys, monkeypatch, log):
    path = log(logged("old-0", "ml/old", "ml/new"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert run(["why", "old", "--evicted", "--decision-log", path]) == 0
    said = capsys.readouterr()
    assert "ml/old" in said.out
    assert said.err.startswith("source: decision log only (no cluster: ")
    assert run(["why", "ghost", "--evicted", "--decision-log", path]) == 4
    assert capsys.readouterr().err.startswith("error: found no eviction of ghost on record")


@pytest.mark.parametrize(
    "arguments",
    [["--decision-log", ""], ["queue/a", "--decision-log", "x"]],
    ids=["empty", "queue"],
)
def test_what_cannot_be_asked_is_refused(asked, arguments):
    asked(*arguments, code=2)


def test_a_log_alone_says_what_was_passed_over(tmp_path, capsys, monkeypatch, log):
    path = log(logged("old-0", "ml/old", "ml/new"))
    Path(path).write_bytes(Path(path).read_bytes() + b'{"cycle"')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert run(["why", "old", "--evicted", "--decision-log", path]) == 0
    note = f"note: {path}: 1 line that is no decision was passed over: line 2, found cut short"
    assert capsys.readouterr().err.splitlines().count(note) == 1


def test_a_decision_log_needs_a_question_about_evictions(tmp_path, capsys):
    assert run(["why", "x", "--decision-log", str(tmp_path / "x")]) == 2
    assert "is used with --evicted" in capsys.readouterr().err


def test_a_log_that_is_not_there_is_said(asked):
    assert asked("--decision-log", "none", code=4).err.startswith("error: none: found no such file")


# --- Events in the cluster -----------------------------------------------------------------------------------------


def event(group, pod, gainer, *, cause="reclaim", namespace="ml", time="2026-11-22T08:30:00Z"):
    """Return the event that kai and KAI-Scheduler write on the pod group of an evicted pod."""
    place, _, name = gainer.partition("/")
    annotations = {"num-evicted-pods": "1", "evictor-action-type": cause}
    if gainer:
        annotations |= {"evictor-pod-group-name": name, "evictor-pod-group-namespace": place}
    return {
        "metadata": {"name": f"{group}.1", "namespace": namespace, "annotations": annotations},
        "involvedObject": {"kind": "PodGroup", "namespace": namespace, "name": group},
        "reason": "Evict",
        "type": "Normal",
        "message": f"Pod {namespace}/{pod} was preempted by workload {gainer}.\nteam uses <GPU: 4>.",
        "lastTimestamp": time,
        "count": 1,
    }


@pytest.fixture
def live(tmp_path, capsys):
    def ask(*arguments, events=(), tenant="", hidden=(), code=0):
        with listing(own_manifests()) as server:
            server.tenant, server.hidden = tenant, set(hidden)
            server.lists["v1/events"] = list(events)
            config = server.kubeconfig(tmp_path, namespace="ml")
            assert run(["why", *arguments, "--evicted", "--kubeconfig", config]) == code
        return capsys.readouterr()

    return ask


def test_events_tell_when_for_whom_and_by_which_rule(live):
    said = live("bound", events=[event("bound", "bound-0", "other/secret"), event("gang", "gang-0", "ml/runs")])
    row = " ".join(said.out.splitlines()[2].split())
    assert row == "2026-11-22T08:30:00Z ml/bound team 1 - reclaim other/secret (queue team) fair share"
    assert "ml/gang" not in said.out
    assert said.out.splitlines()[-1].startswith("events are kept for an hour by default; --decision-log ")
    assert "team uses <GPU: 4>" not in said.out
    assert "team uses <GPU: 4>" in live("bound", "--detail", events=[event("bound", "bound-0", "ml/runs")]).out


def test_no_event_is_said(live):
    assert live("bound").out.splitlines()[0] == "no pod has to go and no eviction is on record"


def test_other_events_are_passed_over(live):
    strange = [
        {**event("bound", "bound-0", "ml/runs"), "involvedObject": {"kind": "Pod", "name": "bound-0"}},
        {**event("bound", "bound-0", "ml/runs"), "reason": "Pipelined"},
        {"reason": "Evict", "metadata": {"namespace": "ml"}},
    ]
    assert "no eviction is on record" in live("bound", events=strange).out


def test_an_eviction_without_a_gainer_has_none(live):
    alone = event("bound", "bound-0", "", cause="stalegangeviction")
    row = live("bound", events=[alone]).out.splitlines()[2].split()
    assert row[5:] == ["stalegangeviction", "-", "gang", "below", "its", "minimum"]


def test_one_namespaces_users_see_elsewhere_as_another_queue(live):
    events = [
        event("bound", "bound-0", "other/secret"),
        event("bound", "bound-1", "ml/runs", time="2026-11-22T08:40:00Z"),
    ]
    said = live("bound", events=events, tenant="jane")
    assert "another queue" in said.out
    assert "ml/runs" in said.out
    assert "secret" not in live("bound", "--detail", "-o", "json", events=events, tenant="jane").out
    assert said.err.splitlines()[-1].startswith("source: own conditions only (cannot list nodes)")


def test_events_that_may_not_be_listed_are_said(live):
    refused = live("bound", tenant="jane", hidden=["events"], code=3).err
    assert refused.startswith("error: not allowed to list nodes")


def test_an_eviction_on_record_twice_is_told_once(live, log):
    path = log(logged("bound-0", "ml/bound", "ml/runs", time="2026-11-22T08:29:58.500Z"))
    events = [event("bound", "bound-0", "ml/runs"), event("bound", "bound-1", "ml/runs")]
    found = json.loads(live("bound", "--decision-log", path, "-o", "json", events=events).out)
    assert [(each["pod"], each["source"]) for each in found["past"]] == [
        ("ml/bound-0", "decision log"),
        ("ml/bound-1", "events"),
    ]
    assert found["lookedAt"] == ["events", "decision log"]


@pytest.mark.parametrize("text", [b"\nhello there\n", b"\n\xff\xfe\x00", b"\nkind: Pod\n"])
def test_a_file_without_a_decision_is_no_log(text, tmp_path):
    path = tmp_path / "text.yaml"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"text\.yaml: line 2: found .*, expected a decision of kai run"):
        from_log(str(path), lambda _: True)


def test_an_empty_log_has_no_eviction(tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"")
    assert from_log(str(path), lambda _: True) == ()
