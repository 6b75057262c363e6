"""The plugin of examples/kai-rack-power: a kind of its own, a column, a compiled filter, a metric."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kai.api.codec.manifest_text import load_values

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "examples" / "kai-rack-power"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder that holds the package as an installer leaves it."""
    target = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE / "kai_rack_power", target / "kai_rack_power")
    described = target / "kai_rack_power-0.1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: kai-rack-power\nVersion: 0.1.0\n")
    (described / "entry_points.txt").write_text("[kai.plugins]\nrack-power = kai_rack_power:RackPower\n")
    return target


METRICS = """
import sys
import anyio
from kai.cli.running.flags import Given
from kai.cli.running.process import Process
from kai.cluster.process.exposition import metrics_route
from kai.testing import check_scenario

assert check_scenario(sys.argv[1]) == ()
process = Process(Given(roles=(), values={}, named=frozenset()), (), {})
print(anyio.run(metrics_route(process.registry).answer).body.decode())
"""
"""What a process of the scheduler shows, after the cycles of a scenario."""


def run(installed, *arguments):
    return python(installed, "-m", "kai", *arguments)


def python(installed, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{installed}:{ROOT}", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_rack_fills_to_its_power_cap(installed):
    done = run(installed, "simulate", str(PACKAGE / "capped.yaml"), "--explain")
    assert "are in a rack that would exceed its power cap" in done.stdout
    assert "passed over" not in done.stderr
    found = json.loads(run(installed, "simulate", str(PACKAGE / "capped.yaml"), "-o", "json").stdout)
    assert found["pods"]["default/second-0"]["node"] == "n1"
    assert not found["pods"]["default/third-0"].get("node")


def test_the_metrics_of_the_scheduler_say_what_racks_draw(installed):
    shown = python(installed, "-c", METRICS, str(PACKAGE / "capped.yaml")).stdout
    assert [line for line in shown.splitlines() if line.startswith("rack_power")] == [
        'rack_power_watts{rack="a"} 1400.0',
        'rack_power_watts{rack="b"} 0.0',
    ]


def test_plugins_are_listed_with_the_rights_that_they_need(installed):
    done = run(installed, "plugins", "--config", str(PACKAGE / "policy.yaml"), "-o", "json")
    (found,) = [each for each in json.loads(done.stdout)["items"] if each["name"] == "rack-power"]
    assert found["rights"] == ["rackpowercaps.power.example.com"]


def test_the_pages_commands_run_and_its_files_exist(installed):
    shown = [line.split() for line in (PACKAGE / "README.md").read_text().splitlines() if line.startswith("    ")]
    assert [words[0] for words in shown] == ["pip", "kubectl", "kai"]
    files = [ROOT / word for words in shown for word in words if "examples/" in word]
    assert len(files) == 4
    assert all(file.exists() for file in files)
    assert "third" in run(installed, *shown[-1][1:]).stdout


def test_the_shipped_rights_equal_the_shown_ones():
    role, _ = load_values((PACKAGE / "rights.yaml").read_bytes(), "rights.yaml")
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["power.example.com"], ["rackpowercaps"])
    assert rule["verbs"] == ["get", "list", "watch"]


def test_it_has_at_most_150_lines():
    assert sum(len(file.read_text().splitlines()) for file in (PACKAGE / "kai_rack_power").glob("*.py")) <= 150
