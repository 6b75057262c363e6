"""Files of runs over virtual time: what is written, and what is said before anything runs."""

import html
import json
import re
import shlex
from pathlib import Path

import pytest

from kai.cli.command import run
from kai.cli.deciding.runs import Wanted
from kai.lab.report import page

CASE = str(Path(__file__).parents[2] / "lab" / "virtual" / "cases" / "reclaim.yaml")


@pytest.fixture
def plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an empty script in the place of plotly.js."""
    path = tmp_path / "plotly.min.js"
    path.write_text("window.Plotly = {};")
    monkeypatch.setattr(page, "require_plotly", lambda: path)


@pytest.mark.usefixtures("plotly")
def test_a_report_is_one_file_with_its_command(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "page.html"
    assert run(["simulate", CASE, "--until", "8h", "--report", str(path)]) == 0
    assert f"report: {path}" in capsys.readouterr().err
    text = path.read_text(encoding="utf-8")
    assert f"<code>kai simulate {CASE} --until 8h --report {path}</code>" in text
    assert "33.4% of 64.0 GPU-hours" in text


@pytest.mark.usefixtures("plotly")
def test_the_command_on_a_page_can_be_typed(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    folder, path = tmp_path / "a day", tmp_path / "a page.html"
    (folder / "scene").mkdir(parents=True)
    (folder / "scene" / "reclaim.yaml").write_bytes(Path(CASE).read_bytes())
    (folder / "mine.yaml").write_text("actions: [allocate]\n", encoding="utf-8")
    assert run(["simulate", str(folder / "scene"), "--until", "8h", "--out", str(folder)]) == 0
    flags = ["--policy", "mine.yaml", "--report", str(path)]
    assert run(["simulate", str(folder), *flags]) == 0
    (line,) = re.findall("<code>(kai .*)</code>", path.read_text(encoding="utf-8"))
    assert shlex.split(html.unescape(line)) == ["kai", "simulate", str(folder), *flags]
    capsys.readouterr()


@pytest.mark.usefixtures("plotly")
def test_two_saved_results_are_compared_on_one_page(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    for name, more in (("a", []), ("b", ["--sweep", "plugins.binpack.gpu=false"])):
        assert run(["simulate", CASE, "--until", "8h", "--out", str(tmp_path / f"{name}.json"), *more]) == 0
    a, b, path = (str(tmp_path / name) for name in ("a.json", "b.json", "both.html"))
    assert run(["diff", a, b, "--report", path]) == 0
    assert "What changes from one run to the other?" in Path(path).read_text(encoding="utf-8")
    assert run(["diff", CASE, CASE, "--report", path]) == 2
    assert "--report cannot be used with what is of one moment" in capsys.readouterr().err


def test_the_command_that_does_it_again_has_all_flags():
    wanted = Wanted(until="8h", policies=("a b.yaml", "default"), seed=3, sweeps=("seed=1,2",), skips_bad_rows=True)
    again = "kai simulate x --until 8h --seed 3 --policy 'a b.yaml' --policy default --sweep seed=1,2 --skip-bad-rows"
    assert wanted.again("simulate", "x") == again


def test_several_results_are_lines_of_one_file(tmp_path: Path):
    path = tmp_path / "result.json"
    assert run(["simulate", CASE, "--until", "8h", "--sweep", "seed=0,1", "--out", str(path)]) == 0
    seeds = [json.loads(line)["inputs"]["seed"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert seeds == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--report", "none/page.html"], 4, "none/page.html: found no folder none, expected one to write to"),
        (["--out", "none/result.json"], 4, "none/result.json: found no folder none"),
        (["--out", CASE], 4, f"{CASE}: found a file, expected a folder, or a name that ends in .json or .parquet"),
    ],
)
@pytest.mark.usefixtures("plotly")
def test_an_unwritable_place_is_refused_before_the_run(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kai.lab.virtual.experiments.carry_out_all", None)
    assert run(["simulate", CASE, "--until", "8h", *arguments]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "name", "extra"), [("--report", "x.html", "report"), ("--out", "x.parquet", "traces")]
)
def test_a_missing_extra_is_one_line_before_anything_runs(
    flag: str,
    name: str,
    extra: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(page, "find_spec", lambda _: None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setattr("kai.lab.virtual.experiments.carry_out_all", None)
    assert run(["simulate", CASE, "--until", "8h", flag, str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert f"pip install 'kai-scheduler[{extra}]'" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["out", "out/deep", "x.json"])
def test_a_forbidden_place_is_refused_before_the_run(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kai.lab.virtual.experiments.carry_out_all", None)
    monkeypatch.setattr("os.access", lambda place, _: place != tmp_path)
    place = tmp_path / name
    assert run(["simulate", CASE, "--until", "8h", "--out", str(place)]) == 4
    wanted = f"error: {place}: found no right to write to {tmp_path}, expected a place to write to\n"
    assert capsys.readouterr().err == wanted
    assert not list(tmp_path.iterdir())


def test_a_folder_below_a_file_is_refused_before_running(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kai.lab.virtual.experiments.carry_out_all", None)
    (tmp_path / "taken").write_text("")
    assert run(["simulate", CASE, "--until", "8h", "--out", str(tmp_path / "taken" / "out")]) == 4
    assert "taken, a file, expected a folder to write to" in capsys.readouterr().err


def test_the_history_of_a_run_is_what_reports_read(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "usage.db"
    assert run(["simulate", CASE, "--until", "8h", "--history", str(path)]) == 0
    assert f"kai report jobs --file {path}" in capsys.readouterr().err
    assert run(["report", "utilisation", "--file", str(path), "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["spans"][0]["rows"]
    (gpus,) = [row for row in rows if row["resource"] == "gpu"]
    assert (gpus["capacityHours"], gpus["percent"]) == (64.0, 33.44)


def test_histories_of_several_runs_are_numbered(tmp_path: Path):
    assert run(["simulate", CASE, "--until", "1h", "--sweep", "seed=0,1", "--history", str(tmp_path / "usage.db")]) == 0
    assert {each.name for each in tmp_path.iterdir()} == {"usage-1.db", "usage-2.db"}


def test_a_history_needs_a_folder(capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", CASE, "--until", "1h", "--history", "none/usage.db"]) == 4
    assert "none/usage.db: found no folder none" in capsys.readouterr().err
