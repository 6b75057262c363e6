import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kai.cli import about as command
from kai.cli.command import run
from kai.facts.compiled import warm
from kai.facts.compiled.warm import Warmth


@pytest.fixture
def ready(monkeypatch):
    """Have 98 kernels ready, two of them compiled for it."""

    def made(*modules, tell):
        assert "kai.plugins.topology.plugin" in modules
        for done in range(3):
            tell(done, 2)
        return Warmth(98, 2, Path("/kept/kernels-1"))

    monkeypatch.setattr(warm, "warm", made)


def test_warm_prints_counts_of_kernels_and_their_folder(ready, capsys):
    assert run(["warm"]) == 0
    said = capsys.readouterr()
    assert said.out == "98 kernels ready, 2 compiled just now, kept in /kept/kernels-1\n"
    assert said.err == "compiling kernels (once, a minute or two) ...\n"


def test_programs_get_a_document(ready, capsys):
    assert run(["warm", "-q", "-o", "json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["kind"], said.err) == ("Kernels", "")
    assert {name: document[name] for name in ("kernels", "compiled", "directory")} == {
        "kernels": 98,
        "compiled": 2,
        "directory": "/kept/kernels-1",
    }


def test_warm_loads_plugins_first_and_names_a_missing_one(monkeypatch, ready, capsys):
    points = (
        EntryPoint("topology", "kai.plugins.topology:Topology", "kai.plugins"),
        EntryPoint("gone", "kai_gone:Gone", "kai.plugins"),
    )
    monkeypatch.setattr(command, "entry_points", lambda group: points if group == "kai.plugins" else ())
    assert run(["warm", "-q"]) == 1
    message = "error: plugin 'gone' cannot be loaded from kai_gone:Gone: No module named 'kai_gone'\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("warmth", "text"),
    [
        (Warmth(0, 0, None), "error: there are no kernels to compile while NUMBA_DISABLE_JIT is set\n"),
        (Warmth(5, 5, None), "error: 5 kernels run, but nothing can be kept: NUMBA_CACHE_DIR names no such place\n"),
    ],
)
def test_a_build_that_keeps_no_kernels_fails(warmth, text, monkeypatch, capsys):
    monkeypatch.setattr(warm, "warm", lambda *_modules, **_told: warmth)
    assert run(["warm"]) == 1
    assert capsys.readouterr().err == text
