"""``kai plugins new``: the package that is written can be installed, is enabled by its configuration, and passes."""

import ast
import json
import os
import subprocess
import sys

import pytest

from kai.cli.command import run


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["plugins", "new", "shady-rack"]) == 0
    out = capsys.readouterr()
    assert out.out.splitlines() == [
        f"kai-shady-rack/{name}"
        for name in (
            "README.md",
            "pyproject.toml",
            "policy.yaml",
            "kai_shady_rack/__init__.py",
            "kai_shady_rack/py.typed",
            "tests/test_kai_shady_rack.py",
        )
    ]
    assert out.err.startswith("next: pip install -e kai-shady-rack")
    return tmp_path / "kai-shady-rack"


def python(*arguments, path="", cwd=None):
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), environment.get("PYTHONPATH")]))
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)


def test_a_new_plugin_package_passes_its_own_tests(folder):
    done = python("pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_every_function_of_the_package_says_what_it_returns(folder):
    """An author may run ``mypy --strict`` over all of it, tests included."""
    for file in folder.rglob("*.py"):
        for each in ast.walk(ast.parse(file.read_text())):
            assert not isinstance(each, ast.FunctionDef) or each.returns is not None, f"{file.name}: {each.name}"


def test_a_new_plugin_package_installs_and_enables_by_configuration(folder, tmp_path):
    site = tmp_path / "site"
    install = ("--quiet", "--offline", "--no-deps", "--no-build-isolation", "--target", str(site), str(folder))
    done = python("uv", "pip", "install", *install)
    assert done.returncode == 0, done.stderr
    done = python("kai", "plugins", "--config", str(folder / "policy.yaml"), "-o", "json", path=site)
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in json.loads(done.stdout)["items"]}
    mine = found.pop("shady-rack")
    assert (mine["enabled"], mine["origin"], mine["hooks"]) == (True, "kai-shady-rack 0.1.0", ["NodeScore"])
    assert mine["does"] == "Score weight for nodes that carry label, whatever its value."
    assert found["proportion"]["enabled"]
    assert found["proportion"]["does"]


def test_what_is_written_keeps_the_rules_of_the_examples(folder):
    for arguments in (("check",), ("format", "--check")):
        done = python("ruff", *arguments, "--isolated", "--line-length=120", ".", cwd=folder)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Upper", "with_line", "-", "1st", "a b", "kai-"])
def test_a_name_that_no_plugin_can_have_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["plugins", "new", "--", name]) == 2
    assert "expected small letters, digits and hyphens, beginning with a letter" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["binpack", "kai-binpack"])
def test_the_name_of_a_plugin_of_kai_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["plugins", "new", name]) == 2
    assert f"NAME: found '{name}', expected a name that no plugin of kai has" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(folder, tmp_path, capsys):
    assert run(["plugins", "new", "shady-rack"]) == 4
    assert "found files, expected a folder that is empty" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert run(["plugins", "new", "other", "--into", str(tmp_path / "file")]) == 4
    assert "file: Not a directory" in capsys.readouterr().err
