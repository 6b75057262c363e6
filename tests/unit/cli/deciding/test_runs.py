"""Runs over virtual time as the command shows them."""

import json
from pathlib import Path

import attrs
import pytest

from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.deciding.diff import runs_text
from kai.cli.deciding.runlines import run_text, runs_table
from kai.deciding.configuration.profile_reading import default_configuration
from kai.lab.virtual.results.comparison import compare_runs
from kai.lab.virtual.results.metrics import PolicyInput, result_of
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.simulation import run as simulated
from kai.lab.virtual.scenes.loading import load

CASE = str(Path(__file__).parents[2] / "lab" / "virtual" / "cases" / "reclaim.yaml")
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

utilisation 33.4%   goodput 29.3%   fairness (Jain) 0.913   fragmentation 100.0%   completion, mean 1h43m
goodput: allocated less lost work. 1 of 2 jobs saves its work at checkpoints; \
after an interruption the other begins anew.

Worth knowing
  1 job got GPUs by reclaim; it waited 30s for pods to terminate.
  Queue guest bears the cost: all evictions, 8 GPUs.
"""


def test_a_run_is_shown_as_a_page(capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", CASE, "--until", "8h"]) == 0
    assert capsys.readouterr().out == PAGE


def test_a_queue_that_does_not_exist_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    workload = tmp_path / "typo.yaml"
    workload.write_text(Path(CASE).read_text("utf-8").replace("queue: guest", "queue: gest"), encoding="utf-8")
    assert run(["simulate", str(workload), "--until", "8h"]) == 0
    assert "Jobs never start: queue gest does not exist; is it guest?" in capsys.readouterr().out


def test_a_workload_file_without_workload_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster, workload = tmp_path / "cluster.yaml", tmp_path / "workload.yaml"
    cluster.write_text("shapes: {x: {gpu: 8}}\nqueues: {a: {}}\n", encoding="utf-8")
    workload.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", encoding="utf-8")
    assert run(["simulate", str(workload), "--until", "8h", "--cluster", str(cluster)]) == 4
    assert "workload.yaml: found no workload" in " ".join(capsys.readouterr().err.split())


def test_an_event_of_an_unknown_node_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("queues: {x: {}}\nevents: [{at: 1h, node: n7, fail: 1h}]\n", encoding="utf-8")
    assert run(["simulate", CASE, "--until", "8h", "--cluster", str(cluster)]) == 4
    told = " ".join(capsys.readouterr().err.split())
    assert "cluster.yaml: events: node: found 'n7', expected the name of a node of" in told


def test_a_cluster_without_a_node_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster = tmp_path / "wrong.yaml"
    cluster.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    assert run(["simulate", CASE, "--until", "8h", "--cluster", str(cluster)]) == 0
    told = capsys.readouterr()
    assert "has no node: the nodes are those of" in " ".join(f"{told.out}{told.err}".split())


GROUP = """\
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: g, namespace: d}
spec: {queue: owner, minMember: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: d, annotations: {pod-group-name: g}}
spec: {schedulerName: kai-scheduler, containers: [{name: m, image: x}]}
"""


def test_a_workload_also_in_the_cluster_names_both_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    workload, cluster = tmp_path / "workload.yaml", tmp_path / "cluster.yaml"
    workload.write_text(GROUP)
    cluster.write_text(f"{Path(CASE).read_text()}\n---\n{GROUP}")
    assert run(["simulate", str(workload), "--until", "8h", "--cluster", str(cluster)]) == 4
    told = capsys.readouterr()
    first = next(line for line in f"{told.out}{told.err}".splitlines() if "T004" in line)
    assert first.startswith(f"{workload}:3:18: T004 podgroup d/g is defined twice: first at {cluster}:")


def test_what_asks_for_silence_still_gets_the_answer(capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", CASE, "--until", "8h", "-q"]) == 0
    assert capsys.readouterr() == (PAGE, "")
    assert run(["diff", "default", "default", "--on", CASE, "--until", "8h", "-q"]) == 0
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def sides() -> list[SimulationResult]:
    """Return a run with reclaiming and one without."""
    default = default_configuration()
    without = attrs.evolve(default, actions=tuple(name for name in default.actions if name != "reclaim"))
    policies = {"default": default, "no-reclaim": without}
    scene = load(CASE, None).scene
    return [
        result_of(simulated(scene, each, until=28_800.0), PolicyInput(name=name)) for name, each in policies.items()
    ]


@pytest.mark.parametrize("columns", [60, 80])
def test_no_line_is_wider_than_the_terminal(columns: int, sides: list[SimulationResult]):
    console = Console(columns=columns)
    six = [attrs.evolve(sides[0], policy=f"plugins.binpack.gpu={number}") for number in range(6)]
    page, table = run_text(sides[0], console), runs_table(six, console)
    compared = runs_text(compare_runs(*sides), console)
    for text in (page, table, compared):
        assert [line for line in text.splitlines() if len(line) > columns] == []
    assert "completion, mean 1h43m" in page
    assert all(each.policy in table for each in six)
    assert "first divergence: T+1h" in compared


@pytest.mark.parametrize("more", [("--sweep", "seed=0,1"), ("--policy", "default", "--policy", "default")])
def test_several_runs_are_not_made_of_standard_input(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", "-", "--until", "1h", *more]) == 4
    said = "standard input: it is read once, and here alone, expected a file or a folder for several runs"
    assert capsys.readouterr().err == f"error: {said}\n"


def test_the_chart_has_room_for_nodes_that_come_later(sides: list[SimulationResult]):
    grown = attrs.evolve(sides[0], counts={**sides[0].counts, "gpus": 0.0})
    assert (
        run_text(grown, Console(columns=80)).partition("\n")[2]
        == run_text(sides[0], Console(columns=80)).partition("\n")[2]
    )


def test_figures_that_are_shown_alike_make_neither_side_better(sides: list[SimulationResult]):
    compared = compare_runs(*sides)
    metrics = [
        attrs.evolve(each, a=0.77001, b=0.77, change=-0.00001, better="a") for each in compared.comparison.metrics
    ]
    alike = attrs.evolve(compared, comparison=attrs.evolve(compared.comparison, metrics=tuple(metrics)))
    line = next(each for each in runs_text(alike, Console()).splitlines() if each.startswith("utilisation"))
    assert line.split() == ["utilisation", "77.0%", "77.0%"]


def test_a_run_is_a_document_with_its_inputs(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert run(["simulate", CASE, "--until", "8h", "-o", "json", "--out", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["horizonSeconds"]) == ("SimulationResult", 28800.0)
    assert len(document["inputs"]["workloadSha256"]) == 64
    guest, _ = document["jobs"]
    assert (guest["lostGpuSeconds"], guest["crashedGpuSeconds"]) == (pytest.approx(9600.0, abs=300), 0.0)
    saved = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert saved["decisionHash"] == document["decisionHash"]
    assert json.loads((tmp_path / "out" / "timeline.json").read_text(encoding="utf-8"))["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--until", "soon"], 2, "--until: found 'soon', expected a duration such as"),
        (["--until", "99999999d"], 2, "--until: found '99999999d', expected a duration of at most 292 years"),
        (["--until", "0s"], 2, "--until: found '0s', expected more than 0"),
        (["--sweep", "seed=0,a"], 2, "--sweep seed: found 'a', expected a whole number of 0 or more"),
        (["--sweep", "plugins.binpack.gpu"], 2, "expected PATH=VALUE,VALUE"),
        (["--sweep", "queues.a=1"], 2, "expected seed, parameters.NAME or plugins.PLUGIN.OPTION"),
        (["--policy", "none.yaml"], 4, "none.yaml"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", CASE, *arguments]) == code
    assert said in capsys.readouterr().err
