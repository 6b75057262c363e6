import json
from pathlib import Path

import pytest
import yaml

from kai.cli.command import run

CASES = yaml.safe_load((Path(__file__).parent / "first-use.yaml").read_text())
CLUSTER = """\
cluster: {nodes: {n9: {gpu: 4}}}
queues: {root: {quota: 4}, a: {parent: root, quota: 4}, default-queue: {parent: root}}
"""
COMMANDS = {
    "simulate": ("simulate",),
    "lint": ("lint",),
    "would-run": ("would-run", "--from", "cluster.yaml"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_every_input_gets_an_answer(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(CLUSTER)
    Path(case["file"]).write_bytes(case["bytes"] if "bytes" in case else case["text"].encode())
    for command, (name, *flags) in COMMANDS.items():
        wanted = case[command]
        code = run([name, case["file"], *flags])
        said = capsys.readouterr()
        assert "this is a bug of kai" not in said.err, command
        assert said.out + said.err, f"{command} says nothing"
        assert code == wanted["exit"], command
        if "says" in wanted:
            assert wanted["says"] in (said.out + said.err).splitlines(), command
        if "jobs" in wanted:
            run([name, case["file"], *flags, "-o", "json"])
            jobs = json.loads(capsys.readouterr().out)["jobs"]
            assert {job["name"]: job["state"] for job in jobs} == wanted["jobs"]


def test_at_least_forty_inputs_were_made_up():
    assert sum(not case["about"].startswith("first-use/") for case in CASES) >= 40
