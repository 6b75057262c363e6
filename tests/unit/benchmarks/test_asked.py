import csv

import pytest
import yaml
from click.testing import CliRunner

from benchmarks import asked
from benchmarks.asked import ASKED, Bound, Took, measured, read_bounds


def test_every_command_has_a_target_and_a_budget():
    bounds = read_bounds()
    assert bounds.keys() == ASKED.keys()
    assert all(bound.target_s > 0 and bound.budget_ratio > 0 for bound in bounds.values())


@pytest.mark.parametrize(
    ("took", "over"),
    [(Took(1, 30, 100), False), (Took(1, 31, 100), True), (Took(1, 30, 201), True)],
    ids=["within", "slow", "large"],
)
def test_time_and_memory_have_a_budget_each(took, over):
    assert took.exceeds(Bound(target_s=1, budget_ratio=30, budget_mb=200)) is over


def test_a_command_without_a_bound_of_memory_may_grow():
    assert not Took(1, 30, 10_000).exceeds(Bound(target_s=1, budget_ratio=30))


def test_the_files_of_a_command_are_made_alike(tmp_path):
    made = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        ASKED["simulate-1000"].make(folder)
        made.append((folder / "trace.csv").read_text())
    assert made[0] == made[1]
    rows = list(csv.DictReader(made[0].splitlines()))
    assert len(rows) == 1000
    assert {row["queue"] for row in rows} == {f"q{index}" for index in range(10)}


def test_a_thousand_files_have_a_job_each(tmp_path):
    ASKED["lint-1000"].make(tmp_path)
    jobs = [yaml.safe_load(path.read_text()) for path in tmp_path.glob("job-*.yaml")]
    assert len({job["metadata"]["name"] for job in jobs}) == 1000
    assert {job["kind"] for job in jobs} == {"Job"}


@pytest.fixture
def took(monkeypatch):
    """Let commands take given times in place of running, one after the other."""
    times = []
    monkeypatch.setattr(asked, "calibrate", lambda: 100.0)
    monkeypatch.setattr(asked, "_kai", lambda *_: times.pop(0))
    return times


def test_the_least_of_several_runs_counts_for_each_tree(took, tmp_path):
    took += [(3.0, 10.0), (1.0, 20.0), (2.0, 11.0), (4.0, 21.0)]
    ((id_, (before, now)),) = measured(("why-all",), (tmp_path, asked.ROOT), 2)
    assert id_ == "why-all"
    assert (before.seconds, now.seconds) == (2.0, 1.0)
    assert now.ratio == 10.0


def test_an_exceeded_budget_is_said_and_ends_with_one(took):
    took += [(1000.0, 10.0)]
    found = CliRunner().invoke(asked.main, ["why-all", "--runs", "1", "--check"])
    assert found.exit_code == 1
    assert "over its budget" in found.output


def test_without_a_check_an_exceeded_budget_is_only_said(took):
    took += [(1000.0, 10.0)]
    assert CliRunner().invoke(asked.main, ["why-all", "--runs", "1"]).exit_code == 0
