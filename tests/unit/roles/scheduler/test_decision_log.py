"""The decision log of a scheduler: what is written, and that no cycle waits for it."""

from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from kai.basics.errors import ConfigError
from kai.cluster.process import decisions
from kai.cluster.process.decisions import read_decisions
from kai.framework.decisions import Bind, Cause, Evict, Nominate
from kai.intake import take_snapshot
from kai.roles.scheduler.reporting import decision_log
from kai.roles.scheduler.reporting.decision_log import DecisionLog, input_hash
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles.full_disk import Disk
from tests.unit.intake import making

INTAKE = SchedulerSettings().intake
FREE = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("cpu", "memory", "gpu")}


def snapshot_of(*more):
    shared = (making.queue("top", resources=FREE), making.queue("q", parent="top", resources=FREE), making.node("n"))
    jobs = [
        each
        for name in ("a", "b")
        for each in (
            making.group(name, minMember=1),
            making.pod(f"{name}-0", group=name, requests={"cpu": "10m", "nvidia.com/gpu": "2"}),
        )
    ]
    return take_snapshot(making.objects(*shared, *jobs, *more), making.NOW, INTAKE)


def written(tmp_path, play, **more):
    """Let a log take what a test plays, end it, and return what is in the file and how many were dropped."""
    dropped = []
    path = str(tmp_path / "decisions.jsonl")
    log = DecisionLog.to(path, 1, 2, dropped.append, **more)
    log.start()
    play(log)
    log.close()
    return list(read_decisions(path)), sum(dropped)


def test_each_decision_of_a_statement_is_a_line(tmp_path):
    snapshot = snapshot_of()
    groups = {group.name: row for row, group in enumerate(snapshot.groups)}
    facts = {
        "victim": {"used": (0, 0, 3000), "quota": (0, 0, -1), "fair_share": (0, 0, 1500.0)},
        "aggressor": {"used": (0, 0, 0), "quota": (0, 0, 2000), "fair_share": (0, 0, 2000.0)},
    }
    decisions = (
        Bind(pod=0, node=0),
        Nominate(pod=1, node=0, action="reclaim"),
        Evict(pod=0, cause=Cause.RECLAIM, aggressor=groups["b"], rule="beyond its share", facts=facts),
    )
    found, dropped = written(tmp_path, lambda log: log.decided(decisions, snapshot, 7, "reclaim"))
    assert dropped == 0
    assert [(each.kind, each.subject.name, each.job, each.node) for each in found] == [
        ("bind", "a-0", "default/a", "n"),
        ("hold", "b-0", "default/b", "n"),
        ("evict", "a-0", "default/a", ""),
    ]
    evicted = found[-1]
    assert (evicted.cycle, evicted.action, evicted.rule, evicted.queue) == (7, "reclaim", "beyond its share", "q")
    assert (evicted.gainer.namespace, evicted.gainer.name) == ("default", "b")
    assert evicted.numbers["gpus"] == 2.0
    assert evicted.numbers["victimQueueUsedGpus"] == 3.0
    assert evicted.numbers["victimQueueQuotaGpus"] == -1.0
    assert evicted.numbers["gainerQueueFairShareGpus"] == 2.0
    assert {each.input_hash for each in found} == {input_hash(snapshot)}


def test_a_waiting_job_is_logged_when_its_reason_changes(tmp_path):
    snapshot = snapshot_of()

    def report(code):
        reason = SimpleNamespace(code=SimpleNamespace(value=code), facts={"used": 3, "queue": "q"})
        record = SimpleNamespace(reasons=[reason])
        return SimpleNamespace(status=snapshot.pod_status, records={0: record})

    def play(log):
        for cycle, code in enumerate(("OverLimit", "OverLimit", "NoVictims", "OverLimit")):
            log.refused(snapshot, report(code), cycle)

    found, _ = written(tmp_path, play)
    assert [(each.cycle, each.kind, each.rule) for each in found] == [
        (0, "refuse", "OverLimit"),
        (2, "refuse", "NoVictims"),
        (3, "refuse", "OverLimit"),
    ]
    assert found[0].subject.kind == "PodGroup"
    assert found[0].numbers == {"used": 3.0}


def test_a_cycle_never_waits_for_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(decision_log, "_MOST_WAITING", 5)
    dropped = []
    log = DecisionLog.to(str(tmp_path / "log"), 1, 1, dropped.append)  # not started: nothing is ever taken
    log.decided((Bind(pod=0, node=0),) * 12, snapshot_of(), 1, "allocate")
    assert sum(dropped) == 7


def test_a_full_disk_drops_lines_and_is_logged_once(tmp_path):
    dropped = []
    log = DecisionLog.to(str(tmp_path / "log"), 1, 1, dropped.append)

    def full(lines):
        if lines:
            raise OSError(28, "No space left on device")

    log.file = SimpleNamespace(append=full, close=lambda: None, path=tmp_path / "log")
    with capture_logs() as lines:
        log.decided((Bind(pod=0, node=0),) * 3, snapshot_of(), 1, "allocate")
        log.start()
        log.close()
    assert sum(dropped) == 3
    assert [(line["event"], line["why"]) for line in lines] == [("decision log not written", "No space left on device")]


@pytest.mark.parametrize("room", [0, 40])
def test_decisions_after_a_full_disk_are_written(room, tmp_path, monkeypatch):
    disk, dropped, snapshot = Disk(), [], snapshot_of()
    monkeypatch.setattr(decisions, "open", disk.open, raising=False)

    def count(number):
        dropped.append(number)
        disk.room = None

    log = DecisionLog.to(str(tmp_path / "log"), 1, 1, count)
    disk.room = room
    with capture_logs() as lines:
        log.decided((Bind(pod=0, node=0),) * 3, snapshot, 1, "allocate")
        log.decided((Bind(pod=1, node=0),), snapshot, 2, "allocate")
        log.start()
        log.close()
    assert [(each.cycle, each.subject.name) for each in read_decisions(str(tmp_path / "log"))] == [(2, "b-0")]
    assert dropped == [3]
    assert log._written == log._taken == 4
    assert [line["why"] for line in lines] == ["No space left on device"]


def test_an_unencodable_decision_is_counted_and_skipped(tmp_path):
    def broken():
        raise ValueError("no words")

    def play(log):
        log._put([broken])
        log.decided((Bind(pod=0, node=0),), snapshot_of(), 2, "allocate")

    with capture_logs() as lines:
        found, dropped = written(tmp_path, play)
    assert [each.cycle for each in found] == [2]
    assert dropped == 1
    assert [line["why"] for line in lines] == ["ValueError: no words"]


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"--decision-log: found '.*nowhere/log' \(No such file or directory\)"):
        DecisionLog.to(str(tmp_path / "nowhere" / "log"), 1, 1, lambda _: None)


def test_the_input_hash_ignores_time_and_cycle():
    snapshot = snapshot_of()
    assert input_hash(snapshot) == input_hash(snapshot.at(making.NOW + 60.0, 9, snapshot.past))
    assert input_hash(snapshot) != input_hash(snapshot_of(making.pod("c-0", requests={"cpu": "1"})))
