import json
import re
import urllib.request
from math import inf

import pytest

from kai.basics.errors import ConfigError
from kai.cli.command import run
from kai.cli.demonstrating.demo import served


def test_without_a_terminal_each_happening_is_a_line(capsys):
    assert run(["demo", "reclaim"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == " 0:00:06  blue           + arrives in queue blue, 1 pod, 4 GPUs"
    shares = " 0:15:00                   blue used 24 GPUs, fair share 16; red used 0 GPUs, fair share 8"
    assert any(line == shares or line.startswith(f"{shares}; ") for line in lines)  # what was tried may stand behind
    assert " 0:15:30  red-train      > started on gpu-3, 8 GPUs, waited 30s" in lines
    assert "2 jobs got GPUs by reclaim" in out
    assert "\x1b" not in out
    assert "Lent and taken back." in err
    assert "kai demo lab" in err


def test_the_result_is_that_of_a_simulation(capsys):
    assert run(["demo", "gang", "-o", "json", "--until", "20m"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["horizonSeconds"], found["title"]) == ("SimulationResult", 1200.0, "gang")


def test_what_is_saved_can_be_asked_and_simulated_again(tmp_path, capsys):
    folder = tmp_path / "kept"
    assert run(["demo", "gang", "--until", "10m", "--save", str(folder), "-q"]) == 0
    policies = {"default.yaml", "no-reclaim.yaml"}
    assert {each.name for each in folder.iterdir()} == {"scene", "result.json", "timeline.json", "end.zip", *policies}
    capsys.readouterr()
    assert run(["jobs", "--from", str(folder / "end.zip"), "-o", "json"]) == 0
    jobs = {each["name"]: each["state"] for each in json.loads(capsys.readouterr().out)["items"]}
    assert jobs["small-a"] == "Running"
    saved = json.loads((folder / "result.json").read_text())
    again = ["simulate", str(folder / "scene" / "workload.yaml"), "--cluster", str(folder / "scene" / "cluster.yaml")]
    assert run([*again, "--until", "10m", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["decisionHash"] == saved["decisionHash"]


def test_saved_policies_are_compared_on_the_saved_scene(tmp_path, capsys):
    folder = str(tmp_path / "kept")
    assert run(["demo", "reclaim", "--until", "20m", "--save", folder]) == 0
    assert f"kai diff default.yaml no-reclaim.yaml --on {folder}" in capsys.readouterr().err
    assert run(["diff", "default.yaml", "no-reclaim.yaml", "--on", folder]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["default", "no-reclaim", "better"]
    assert "first divergence: T+15m: default evict" in out
    saved = json.loads((tmp_path / "kept" / "result.json").read_text())
    assert run(["simulate", folder, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["horizonSeconds"], found["decisionHash"]) == (1200.0, saved["decisionHash"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--speed", "fast"], "--speed: found 'fast', expected 0.1x or more"),
        (["--until", "soon"], "--until: found 'soon', expected a duration"),
        (["--dashboard", "0.0.0.0:8085"], "--dashboard: found '0.0.0.0:8085', expected an address of this machine"),
    ],
)
def test_a_flag_that_cannot_be_used_is_named(arguments, said, capsys):
    assert run(["demo", "gang", *arguments]) == 2
    assert said in capsys.readouterr().err.replace('"', "'")


def test_an_unknown_scene_is_a_wrong_usage(capsys):
    assert run(["demo", "moon"]) == 2
    assert "'moon' is not one of 'lab'" in capsys.readouterr().err


def test_an_unwritable_folder_is_refused_before_the_scene_begins(tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert run(["demo", "gang", "--until", "1m", "--save", str(taken)]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: {taken}: found a file where a folder belongs, expected a folder to write to\n"


def test_two_scenes_are_not_saved_into_one_folder(tmp_path, capsys):
    folder = str(tmp_path)
    assert run(["demo", "gang", "--until", "1m", "-q", "--save", folder]) == 0
    assert run(["demo", "gang", "--until", "2m", "-q", "--save", folder]) == 0
    (tmp_path / "scene" / "more.yaml").write_text("")
    capsys.readouterr()
    assert run(["demo", "gang", "--until", "1m", "--save", folder]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "scene: found more.yaml, expected an empty folder, or the files of scene gang alone" in captured.err


def test_the_dashboard_shows_the_last_cycle():
    from kai.cli.demonstrating.demo import watch_of
    from kai.cli.demonstrating.scenes import scene_named

    with served("127.0.0.1:0") as board:
        watched = watch_of(scene_named("gang").load(0).scene, 600.0)
        watched.onlooker = board.show
        watched.begin()
        watched.step()
        board.portal.call(lambda: board.feed.newer(0))
        with urllib.request.urlopen(f"{board.url}api/v1/jobs") as answer:  # noqa: S310 - our own page, on this machine
            names = {each["name"] for each in json.load(answer)["items"]}
    assert names == {"small-a", "small-b"}


def test_the_dashboard_lists_jobs_that_ended(tmp_path):
    from kai.cli.demonstrating.demo import watch_of
    from kai.cli.demonstrating.scenes import scene_named

    history = str(tmp_path / "history.db")
    with served("127.0.0.1:0", history) as board:
        watched = watch_of(scene_named("reclaim").load(0).scene, 3600.0, history)
        watched.onlooker = board.show
        watched.begin()
        while watched.run.next < inf:
            watched.step()
        with urllib.request.urlopen(f"{board.url}finished") as answer:  # noqa: S310 - our own page, on this machine
            page = answer.read().decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    # It ran for its 20 minutes after it had waited for 30 seconds, on 8 GPUs.
    assert "red-train default · PyTorchJob red - 8 30s 20m ✓ done" in text
    assert text.count("✓ done") == 5


@pytest.mark.parametrize(("flags", "taken"), [(["--dashboard", "127.0.0.1:0"], 20.0), ([], 0.0)])
def test_only_a_dashboard_without_terminal_waits_for_the_speed(monkeypatch, flags, taken):
    from kai.cli.demonstrating import demo

    pauses: list[float] = []
    wait = demo._print_lines
    monkeypatch.setattr(demo, "_print_lines", lambda *given, **more: wait(*given, **more, pause=pauses.append))
    assert run(["demo", "gang", "--until", "10m", "--speed", "30x", "-q", *flags]) == 0
    assert 0 <= taken - sum(pauses) < 5.0


def test_what_happens_is_there_before_the_next_pause(monkeypatch, tmp_path):
    from kai.cli.demonstrating import demo

    path, seen = tmp_path / "out", []
    wait = demo._print_lines

    def pause(_: float) -> None:
        seen.append(path.read_text(encoding="utf-8"))

    monkeypatch.setattr(demo, "_print_lines", lambda *given, **more: wait(*given, **more, pause=pause))
    with path.open("w", encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdout", file)
        assert run(["demo", "gang", "--until", "10m", "-q", "--dashboard", "127.0.0.1:0"]) == 0
    assert "small-a" not in seen[0]
    assert "small-a" in seen[1]


def test_a_port_that_is_taken_is_named():
    with served("127.0.0.1:0") as board:
        port = board.url.rstrip("/").rpartition(":")[2]
        with pytest.raises(ConfigError, match="expected a port that is free"), served(f"127.0.0.1:{port}"):
            pass
