"""Arguments: selectors, and paths that are empty."""

import os

import pytest

from kai.basics.errors import InputError
from kai.cli.arguments import read_selector
from kai.cli.command import run

LABELS = {"app": "web", "tier": "gold", "kai.scheduler/queue": "a"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app == web", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=db", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("kai.scheduler/queue=a,tier in (gold, silver)", True),
        ("tier notin (gold)", False),
        ("missing notin (gold)", True),
        ("missing in (gold)", False),
        ("app=web,tier=silver", False),
        ("app=", False),
    ],
)
def test_a_selector_matches_as_kubectls_does(text, matches):
    assert read_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["=x", "app=x=y", "app in x", "a b", "app=x,,", "app=ü"])
def test_a_malformed_selector_is_refused_with_an_example(text):
    with pytest.raises(
        InputError, match=r"command line: --selector: found .*, expected a label selector such as app=x"
    ):
        read_selector(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["snapshot", "", "-f", "x.yaml"],
        ["simulate", "x.yaml", "--config", ""],
        ["replay", "x.zip", "--policy", ""],
        ["plugins", "--config", ""],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_empty_path_is_wrong_usage(arguments, capsys):
    assert run(arguments) == 2
    assert "found an empty path, expected a file or a folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["simulate", "lint", "would-run", "replay", "jobs"])
def test_a_file_without_rights_is_wrong_input(command, tmp_path, monkeypatch, capsys):
    path = tmp_path / "secret.yaml"
    path.write_text("{}")
    # Tests may run as root, whom no mode of a file keeps out.
    monkeypatch.setattr(os, "access", lambda *_, **__: False)

    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(type(path), "read_bytes", refuse)
    monkeypatch.setattr("kai.lab.sources.loading.is_archive", lambda _: False)
    monkeypatch.setattr("zipfile.is_zipfile", lambda _: False)
    assert run([command, *(["-f"] if command == "jobs" else []), str(path)]) == 4
    said = capsys.readouterr()
    assert "secret.yaml" in f"{said.out}{said.err}"
    assert "Permission denied" in f"{said.out}{said.err}"
