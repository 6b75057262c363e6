import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import against, command
from benchmarks.against import ROOT, checked_out, compare
from benchmarks.campaign import RunFailedError
from benchmarks.catalogue import find_workload
from tests.unit.benchmarks.examples import sample

OTHER = Path("/other")
W0, W1 = find_workload("w0"), find_workload("w1")


def takes(**warm_ms):
    """Return what measures: for each workload the cycles of process after process, by turns of the two revisions."""
    left = {workload: list(times) for workload, times in warm_ms.items()}
    asked = []

    def take(root, workload):
        asked.append((root, workload))
        if not left[workload]:
            raise RunFailedError("exit code 1:\nit is not known")
        return sample(*left[workload].pop(0))

    take.asked = asked
    return take


def test_the_least_of_several_runs_in_turns_is_compared():
    take = takes(w0=[(20.0, 11.0), (12.0, 13.0), (10.0, 30.0), (14.0, 15.0)])
    said = []
    found = compare([W0], OTHER, 2, take, said.append)
    assert [(each.before_ms, each.now_ms) for each in found.compared] == [(10.0, 12.0)]
    assert take.asked == [(OTHER, "w0"), (ROOT, "w0")] * 2
    assert [each.workload for each in found.slower(0.15)] == ["w0"]
    assert found.slower(0.25) == ()
    assert said[-1] == "w0 run 2 of 2: 10.00 ms before, 12.00 ms now"
    assert found.table(0.15).splitlines()[1].split() == ["w0", "10.00", "12.00", "+20.0%", "slower"]


def test_a_workload_failing_on_one_side_is_not_compared():
    found = compare([W0, W1], OTHER, 2, takes(w0=[], w1=[(5.0,), (5.0,)] * 2), [].append)
    assert [each.workload for each in found.compared] == ["w1"]
    assert found.table(0.15).splitlines()[-1] == "w0: not compared, it is not known"


@pytest.mark.parametrize(("slack", "code"), [("0.15", 1), ("0.25", 0)])
def test_the_command_fails_where_something_is_slower(monkeypatch, slack, code):
    monkeypatch.setattr(command, "process", lambda *_: takes(w0=[(10.0,), (12.0,)]))
    result = CliRunner().invoke(command.main, ["against", "HEAD", "w0", "--runs", "1", "--slack", slack])
    assert result.exit_code == code, result.output
    assert "+20.0%" in result.output


def test_a_revision_is_checked_out_only_while_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(against, "ROOT", tmp_path)
    for name in ("before", "now"):
        (tmp_path / "file").write_text(name, encoding="ascii")
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        subprocess.run(["git", "add", "file"], cwd=tmp_path, check=True)
        author = ["-c", "user.name=kai", "-c", "user.email=kai@example.org"]
        subprocess.run(["git", *author, "commit", "-qm", name], cwd=tmp_path, check=True)
    with checked_out("HEAD~1") as tree:
        assert (tree / "file").read_text(encoding="ascii") == "before"
    assert not tree.exists()
    assert (tmp_path / "file").read_text(encoding="ascii") == "now"
    with pytest.raises(RunFailedError, match="git worktree add"), checked_out("no-such-revision"):
        pass


def test_each_revision_is_measured_by_its_own_program(monkeypatch):
    asked = []
    monkeypatch.setattr(against, "take_sample", lambda *arguments: asked.append(arguments) or sample(5.0))
    against.process(3, 60.0)(OTHER, "w0")
    assert asked == [("w0", 3, 60.0, OTHER)]
