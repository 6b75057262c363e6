"""Runs over virtual time that were saved: what is kept of them, and how any moment of them is looked at again."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from kai.cli.command import run
from kai.cli.deciding.runs import run_at

ROWS = """\
arrival_s,duration_s,gpus_per_pod,name,queue
0,3600,8,1118,a
60,3600,8,1119,a
600,60,1,1120,a
7500,60,16,1121,a
90000,60,1,1122,a
"""
CLUSTER = "shapes: {x: {gpu: 8}}\nqueues: {all: {quota: 8}, a: {parent: all, quota: 8}}\n"


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with results of a trace, whose files are no longer there."""
    folder = tmp_path_factory.mktemp("week")
    trace, cluster = folder / "trace.csv", folder / "cluster.yaml"
    trace.write_text(ROWS, encoding="utf-8")
    cluster.write_text(CLUSTER, encoding="utf-8")
    arguments = ["simulate", str(trace), "--cluster", str(cluster), "-q"]
    assert run([*arguments, "--out", str(folder / "out")]) == 0
    assert run([*arguments, "--out", str(folder / "week.json"), "--until", "1d"]) == 0
    both = ["--policy", "default", "--sweep", "plugins.binpack.gpu=0,1"]
    assert run([*arguments, "--out", str(folder / "both"), *both]) == 0
    trace.unlink()
    cluster.unlink()
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(["why", "--no-verify", *arguments]) == code
    captured = capsys.readouterr()
    return (captured.err if code else captured.out).splitlines()[0]


def test_a_folder_has_inputs_and_end_of_its_run(week: Path):
    names = {"result.json", "timeline.json", "inputs.zip", "end.zip"}
    assert {file.name for file in (week / "out").iterdir()} == names
    with zipfile.ZipFile(week / "out" / "inputs.zip") as archive:
        assert archive.read("1/trace.csv").decode() == ROWS
        (kept,) = json.loads(archive.read("runs.json"))["runs"]
    assert (kept["workload"], kept["cluster"], kept["untilSeconds"]) == ("1/trace.csv", "2/cluster.yaml", None)


@pytest.mark.parametrize(
    ("job", "at", "first"),
    [
        ("1118", "0s", "1118 runs on x-1."),
        ("1119", "30m", "1119 waits: no room; with this job queue a would use 16 GPUs, more than its fair share of 8"),
        ("1119", "90m", "1119 runs on x-1."),
        ("1119", "2h30m", "1119 is over: it arrived at T+1m, started at T+1h and ended at T+2h (done)."),
        ("1121", "2h", "1121 is not there yet: it arrives at T+2h5m, 5m later."),
        ("1121", "1d", "1121 can never run here: a pod asks for 16 GPUs, the largest node has 8 GPUs."),
        ("1122", "10m", "1122 is not there yet: it arrives at T+1d1h, 1d later."),
        ("1122", "", "1122 is over: it arrived at T+1d1h, started at T+1d1h and ended at T+1d1h (done)."),
    ],
)
def test_why_is_answered_of_any_job_at_any_time(
    week: Path, capsys: pytest.CaptureFixture[str], job: str, at: str, first: str
):
    assert said(capsys, job, "--from", str(week / "out"), *(["--at", at] if at else [])).startswith(first)


def test_why_prints_when_a_waiting_job_later_started(week: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["why", "--no-verify", "1119", "--at", "30m", "--from", str(week / "out")]) == 0
    assert capsys.readouterr().err == "note: in this run 1119 started at T+1h, 30m later\n"


def test_a_time_may_be_a_date(week: Path, capsys: pytest.CaptureFixture[str]):
    head = "arrival_s,duration_s,gpus_per_pod,name,queue\n"
    (week / "t.csv").write_text(head + "2026-11-02T08:00:00,1h,8,1118,a\n", encoding="utf-8")
    (week / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    place = str(week / "dated.json")
    assert run(["simulate", str(week / "t.csv"), "--cluster", str(week / "c.yaml"), "--out", place, "-q"]) == 0
    assert said(capsys, "1118", "--at", "2026-11-02T08:30:00", "--from", place) == "1118 runs on x-1."
    early = said(capsys, "1118", "--at", "2026-11-02", "--from", place, code=4)
    assert early == f"error: {place}: found a time before the run, expected one of the run"


def test_results_in_one_file_have_their_inputs_beside_them(week: Path, capsys: pytest.CaptureFixture[str]):
    assert said(capsys, "1119", "--at", "90m", "--from", str(week / "week.json")) == "1119 runs on x-1."
    late = said(capsys, "1119", "--at", "2d", "--from", str(week / "week.json"), code=4)
    assert late.endswith("week.json: found 2d, expected a time of the run, which ended at 1d")


def test_a_runs_end_is_a_snapshot_that_commands_read(week: Path, capsys: pytest.CaptureFixture[str]):
    assert said(capsys, "1121", "--from", str(week / "out" / "end.zip")).startswith("1121 can never run here: ")


def test_other_commands_look_at_the_same_moment(week: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["jobs", "--from", str(week / "out"), "--at", "30m", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == [
        f"podgroup.scheduling.run.ai/{name}" for name in ("1118", "1119", "1120")
    ]


def test_of_several_runs_one_is_named_by_its_result(week: Path, capsys: pytest.CaptureFixture[str]):
    line = said(capsys, "1119", "--at", "30m", "--from", str(week / "both"), code=4)
    assert "found 2 runs, expected one of them: " in line
    assert "result-2.json (plugins.binpack.gpu=1)" in line
    assert said(capsys, "1119", "--at", "2h", "--from", str(week / "both" / "result-2.json")).startswith("1119 is over")
    found = run_at(str(week / "both" / "result-1.json"))
    assert found is not None
    assert found.policy.changes == ("plugins.binpack.gpu=0",)


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (["--at", "soon"], "error: command line: --at: found 'soon', expected a duration such as"),
        (["--at", "-5m"], "error: command line: --at: found '-5m', expected 0 or more"),
    ],
)
def test_a_time_that_is_none_is_refused(
    week: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], first: str
):
    assert said(capsys, "1119", "--from", str(week / "out"), *arguments, code=2).startswith(first)


def test_a_moment_needs_a_run(week: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert said(capsys, "1119", "--at", "3d", code=2) == (
        "error: --at is used with --from: the result of kai simulate --out"
    )
    place = str(week / "out" / "end.zip")
    assert said(capsys, "1119", "--at", "3d", "--from", place, code=2).startswith(
        f"error: --at 3d: found no run over time at {place}, expected a result of one"
    )
    shutil.copy(week / "out" / "result.json", tmp_path)
    assert "found no inputs of its run, expected them at" in said(capsys, "1119", "--from", str(tmp_path), code=4)
    (tmp_path / "inputs.zip").write_bytes(b"no archive")
    assert "inputs.zip: found no inputs of a run" in said(capsys, "1119", "--from", str(tmp_path), code=4)


def test_never_started_jobs_have_reasons_in_json_and_text(
    week: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    result = json.loads((week / "out" / "result.json").read_text())
    reasons = {job["name"]: (job["reason"], job["reasonText"]) for job in result["jobs"]}
    text = "1121 can never run here: a pod asks for 16 GPUs, the largest node has 8 GPUs."
    assert reasons == {
        **dict.fromkeys(("1118", "1119", "1120", "1122"), (None, None)),
        "1121": ("NoNodeLargeEnough", text),
    }
    (tmp_path / "t.csv").write_text(ROWS, encoding="utf-8")
    (tmp_path / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    assert run(["simulate", str(tmp_path / "t.csv"), "--cluster", str(tmp_path / "c.yaml")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"1 job never started: 1121. At the end {text}" in out
