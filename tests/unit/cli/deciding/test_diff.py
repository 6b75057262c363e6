"""``kai diff``: which flags count for which inputs; the others are refused."""

import json
from pathlib import Path

import pytest

from kai.cli.command import run

MOMENT = """
about: One starts, one waits.
cluster: {nodes: {n1: {gpu: 2}}}
queues: {root: {quota: 2}, a: {parent: root, quota: 2}}
groups: {starts: {queue: a, each: {gpu: 1}}, waits: {queue: a, each: {gpu: 2}}}
run: [allocate]
"""
CASE = str(Path(__file__).parents[2] / "lab" / "virtual" / "cases" / "reclaim.yaml")


@pytest.fixture
def moment(tmp_path: Path) -> str:
    path = tmp_path / "moment.yaml"
    path.write_text(MOMENT)
    return str(path)


@pytest.fixture
def saved(tmp_path: Path, moment: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the document of what was decided at one moment."""
    assert run(["simulate", moment, "-o", "json"]) == 0
    path = tmp_path / "saved.json"
    path.write_text(capsys.readouterr().out)
    return str(path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the document of a run over time."""
    path = tmp_path_factory.mktemp("ran") / "ran.json"
    assert run(["simulate", CASE, "--until", "1h", "--out", str(path)]) == 0
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> list[str]:
    assert run(["diff", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err.splitlines()


@pytest.mark.parametrize(
    "flag",
    [["--until", "1h"], ["--cluster", "c.csv"], ["--seed", "0"], ["--skip-bad-rows"], ["--since", "0"]],
    ids=lambda flag: flag[0],
)
def test_flags_over_time_are_refused_without_a_workload(
    capsys: pytest.CaptureFixture[str], moment: str, saved: str, ran: str, flag: list[str]
):
    for place in (moment, saved, ran):
        assert refused(capsys, place, place, *flag) == [
            f"error: {flag[0]} cannot be used without --on",
            "  help: --on names what two policies run on",
        ]


@pytest.mark.parametrize("sides", [("default", "default"), ("default", "other.yaml"), (CASE, "default")])
def test_default_without_a_named_cluster_is_refused(capsys: pytest.CaptureFixture[str], sides: tuple[str, str]):
    assert refused(capsys, *sides) == [
        "error: default is a policy, and no cluster is named",
        "  help: --on names what two policies run on",
    ]


def test_flags_over_time_are_refused_where_no_time_passes(capsys: pytest.CaptureFixture[str], moment: str):
    assert refused(capsys, "default", "default", "--on", moment, "--seed", "1", "--skip-bad-rows") == [
        "error: --seed and --skip-bad-rows cannot be used without virtual time",
        "  help: give --until, --cluster or a trace",
    ]


def test_cycles_are_refused_where_nothing_is_decided(capsys: pytest.CaptureFixture[str], saved: str, ran: str):
    for place in (saved, ran):
        assert refused(capsys, place, place, "--cycles", "2") == [
            "error: --cycles cannot be used with results that were saved",
            "  help: they are compared as they are",
        ]


def test_cycles_are_refused_over_virtual_time(capsys: pytest.CaptureFixture[str]):
    first, _ = refused(capsys, "default", "default", "--on", CASE, "--until", "1h", "--cycles", "2")
    assert first == "error: --cycles cannot be used with virtual time"


def test_cycles_count_where_one_side_is_decided(capsys: pytest.CaptureFixture[str], moment: str, saved: str):
    assert run(["diff", saved, moment, "--cycles", "2"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["simulate", "diff"])
def test_rows_are_left_out_of_traces_alone(capsys: pytest.CaptureFixture[str], command: str):
    arguments = [CASE] if command == "simulate" else ["default", "default", "--on", CASE]
    assert run([command, *arguments, "--until", "1h", "--skip-bad-rows"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --skip-bad-rows cannot be used without a trace",
        f"  help: {CASE} is none",
    ]


def test_a_page_needs_runs_over_time(capsys: pytest.CaptureFixture[str], moment: str):
    first, _ = refused(capsys, moment, moment, "--report", "page.html")
    assert first == "error: --report cannot be used with what is of one moment"


def test_diff_refuses_a_run_beside_a_snapshot(capsys: pytest.CaptureFixture[str], moment: str, ran: str):
    for pair in ((moment, ran), (ran, moment)):
        (line,) = refused(capsys, *pair, code=4)
        assert line.startswith(f"error: {moment}: found no result of a run over time, as {ran} is one, expected such")


def test_a_missing_file_beside_a_run_is_named(capsys: pytest.CaptureFixture[str], ran: str):
    assert run(["diff", ran, "none.json"]) == 4
    assert capsys.readouterr().err == "error: none.json: no such file or folder\n"


def test_saved_runs_are_labelled_by_their_file_names(capsys: pytest.CaptureFixture[str], ran: str, tmp_path: Path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(Path(ran).read_text()) | {"policy": "default", "seed": 1}))
    assert run(["diff", ran, str(other), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["b"]) == ("ran", "other")
