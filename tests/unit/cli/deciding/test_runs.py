"""Runs over virtual time as the command shows them."""

import json
from pathlib import Path

import pytest

from kai.cli.command import run

CASE = str(Path(__file__).parents[2] / "virtual" / "cases" / "reclaim.yaml")
PAGE = """\
reclaim · 1 node · 8 GPUs · 2 leaf queues · 2 jobs · seed 0 · policy default

GPUs allocated, 0-8  T+0h    1h      2h      3h      4h      5h      6h      7h      8h
guest                ████████▁   ▇██████████▃
owner                        ▄▄▄▄▁
both                 ████████▄▄▄▄███████████▃
                     allocation is not activity: an allocated GPU may be idle

       GPU-HOURS  OF QUOTA  WAIT p50  p95  MAX  STARTED  EVICTED  LOST WORK
guest       19.4         -        0s   0s   0s    1 / 1        1  2.7 GPU-h
owner        2.0        3%       30s  30s  30s    1 / 1        0          -
idle        42.6         -         -    -    -        -        -          -

utilisation 33.4%   fairness (Jain) 0.913   fragmentation 100.0%   completion, mean 1h43m

Worth knowing
  1 job got GPUs by reclaim; it waited 30s for pods to terminate.
  Queue guest bears the cost: all evictions, 8 GPUs.
"""


def test_a_run_is_shown_as_a_page(capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", CASE, "--until", "8h", "-q"]) == 0
    assert run(["simulate", CASE, "--until", "8h"]) == 0
    assert capsys.readouterr().out == PAGE


def test_a_run_is_a_document_with_its_inputs(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert run(["simulate", CASE, "--until", "8h", "-o", "json", "--out", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["horizonSeconds"]) == ("SimulationResult", 28800.0)
    assert len(document["inputs"]["workloadSha256"]) == 64
    saved = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert saved["decisionHash"] == document["decisionHash"]
    assert json.loads((tmp_path / "out" / "timeline.json").read_text(encoding="utf-8"))["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--until", "soon"], 4, "--until: found 'soon', expected a duration"),
        (["--sweep", "plugins.binpack.gpu"], 4, "expected PATH=VALUE,VALUE"),
        (["--sweep", "queues.a=1"], 4, "expected seed, parameters.NAME or plugins.PLUGIN.OPTION"),
        (["--policy", "none.yaml"], 4, "none.yaml"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", CASE, *arguments]) == code
    assert said in capsys.readouterr().err
