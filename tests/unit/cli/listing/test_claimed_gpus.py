"""What tables say of GPUs behind claims: partitions of one GPU, and a device that pods share."""

import json
from pathlib import Path

import pytest

from kai.cli.command import run

SCENARIOS = Path("tests/scenarios")
HALVES = SCENARIOS / "dra/a-gpu-with-its-partitions-is-one-gpu.yaml"
MIXED = SCENARIOS / "dra/whole-gpus-and-partitions-of-one-node-are-counted-together.yaml"
SHARED = SCENARIOS / "dra/two-pods-that-run-on-one-device-have-one-gpu.yaml"
TAKEN_BACK = SCENARIOS / "reclaim/one-half-of-a-gpu-is-reclaimed-and-the-other-stays.yaml"


def lines(capsys, *words):
    run([*map(str, words)])
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("scenario", "row", "room"),
    [
        (HALVES, "n1 - t█ 0 0: ½+½", "none, 0 of 1 GPUs are free"),
        (MIXED, "n1 - T█ t▄ · 1 1: ½", "1 pod x 1 GPU (1 of 3 GPUs are free)"),
        (SHARED, "n1 - T█ 0 -", "none, 0 of 1 GPUs are free"),
        (TAKEN_BACK, "n1 - b█ 0 0: ½+½×+½○", "none, 0 of 1 GPUs are free"),
    ],
)
def test_a_node_shows_its_gpus_and_their_sharers(capsys, scenario, row, room):
    found = lines(capsys, "nodes", "--from", scenario)
    assert found[1] == row
    assert found[-1] == f"largest gang that would start now without evicting: {room}"


@pytest.mark.parametrize(("scenario", "used", "wanted"), [(HALVES, 1, 2), (MIXED, 1.5, 1.5), (SHARED, 1, 1)])
def test_a_queue_uses_the_parts_that_its_pods_have(capsys, scenario, used, wanted):
    row = next(line for line in lines(capsys, "queues", "--from", scenario) if line.startswith("└─ team"))
    assert row.split()[5:7] == [f"{used:g}", f"{wanted:g}"]


def test_jobs_show_the_gpu_parts_of_their_claims(capsys):
    rows = [line.split() for line in lines(capsys, "jobs", "--from", HALVES)]
    assert {row[0]: row[3] for row in rows if row and row[0] in {"a", "b", "c"}} == {"a": "0.5", "b": "0.5", "c": "1"}


def test_json_says_which_pods_have_parts_of_a_gpu(capsys):
    run(["nodes", "--from", str(HALVES), "-o", "json"])
    (node,) = json.loads(capsys.readouterr().out)["items"]
    (gpu,) = node["slots"] if "slots" in node else node["gpus"]
    assert [(user["pod"], user["share"]) for user in gpu["users"]] == [("a-0", 0.5), ("b-0", 0.5)]
