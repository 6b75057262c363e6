import os

import pytest

from kai.cli.command import run


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
