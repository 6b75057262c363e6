"""Partitions of GPUs over virtual time, requested by the name of a resource: each pod gets half of a GPU."""

import pytest

from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import run
from kai.lab.virtual.scenes.loading import load
from tests.unit.lab.virtual.builders import case, cluster

HOUR = 3600.0
IMPLICIT = "deviceclass.resource.kubernetes.io/mig.nvidia.com"


def simulated(folder, name, asked, more=""):
    path = folder / "parts.yaml"
    text = case("partitions.yaml").replace("NAME", name).replace("ASK", asked)
    path.write_text(f"{text}---\n{more}" if more else text, encoding="utf-8")
    return result_of(run(load(str(path), None, until=HOUR).scene, until=HOUR))


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("example.com/half", "example.com/half"),
        ("nvidia.com/mig-3g.20gb", "nvidia.com/mig-3g.20gb"),
        ("nvidia.com/gpu", "nvidia.com/gpu"),
        ("example.com/other", IMPLICIT),
    ],
)
def test_a_named_partition_counts_as_its_part_of_gpus(tmp_path, name, asked):
    result = simulated(tmp_path, name, asked)
    assert [each.gpus for each in result.jobs] == [1.0]
    assert [each.gpus for each in result.stays] == [0.5, 0.5]


def test_a_name_also_offered_by_a_plugin_counts_whole(tmp_path):
    plugged = cluster(gpus=8).split("---")[0].replace("n1", "n2")
    result = simulated(tmp_path, "nvidia.com/gpu", "nvidia.com/gpu", plugged)
    assert [each.gpus for each in result.jobs] == [2.0]
