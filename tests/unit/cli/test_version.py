import json

import yaml

from kai.answers.documents.document import installed
from kai.cli.command import run


def test_versions_of_all_parts_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert run(["version"]) == 0
    first = capsys.readouterr().out.splitlines()[0].split()
    assert first == ["kai", installed("kai-scheduler")]
    assert run(["version", "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert run(["version", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert {"kai", "python", "numba", "numpy"} <= set(as_json)


def test_a_part_that_is_not_installed_is_told():
    assert installed("no-such-distribution") == "not installed"
