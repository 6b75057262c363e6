"""The plugin of examples/kai-same-rack is installed into a folder of its own, as a third party's would be, and used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "examples" / "kai-same-rack"
SCENARIO = """
about: Pods of a group that grows go where the group already is.
cluster:
  nodes:
    n1: {gpu: 4, labels: {topology.kubernetes.io/rack: a}}
    n2: {gpu: 4, labels: {topology.kubernetes.io/rack: b}}
    n3: {gpu: 4, labels: {topology.kubernetes.io/rack: b}}
queues: {root: {quota: 12}, a: {parent: root, quota: 12}}
groups:
  other: {queue: a, each: {gpu: 2}, runs_on: n1}
  grows: {queue: a, members: 2, minimum: 1, each: {gpu: 4}, runs_on: [n3]}
  small: {queue: a, members: 2, minimum: 1, each: {gpu: 1}, runs_on: [n2]}
run: [allocate]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    install = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-build-isolation",
    ]
    done = subprocess.run([*install, "--target", target, PACKAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(installed, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(installed), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def test_it_is_found_by_its_entry_point(installed):
    done = run(installed, "kai", "plugins", "--config", str(PACKAGE / "policy.yaml"), "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = [each for each in json.loads(done.stdout)["items"] if each["name"] == "same-rack"]
    assert (found["origin"], found["enabled"], found["hooks"]) == ("kai-same-rack 0.2.0", True, ["NodeScore"])
    assert found["options"]["weight"] == "number, 0 or more, default 1"


def test_it_decides_where_pods_go(installed, tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    without, with_it = tmp_path / "without.yaml", tmp_path / "with.yaml"
    plugins = {"proportion": {}, "priority": {}, "availability": {}, "binpack": {}}
    without.write_text(json.dumps({"plugins": plugins}))
    with_it.write_text(json.dumps({"plugins": {**plugins, "same-rack": {"weight": 100}}}))
    where = {}
    for policy in (without, with_it):
        done = run(
            installed, "kai", "simulate", str(scenario), "--config", str(policy), "--actions", "allocate", "-o", "json"
        )
        assert done.returncode == 0, done.stderr
        where[policy] = json.loads(done.stdout)["pods"]["default/small-1"]["node"]
    assert where == {without: "n1", with_it: "n2"}


def test_the_configuration_that_is_shown_changes_nothing_else(installed, tmp_path):
    """The plugin of the documentation, without weight, beside the default ones: the same decisions."""
    shown = (PACKAGE / "policy.yaml").read_text()
    for page in ("README.md", "docs/plugins.md"):
        assert "with:" in (ROOT / page).read_text()
    policy = tmp_path / "policy.yaml"
    policy.write_text(shown.replace("weight: 3", "weight: 0"))
    printed = set()
    for config in ([], ["--config", str(policy)]):
        done = run(installed, "kai", "simulate", "examples/lab", "--actions", "allocate", *config)
        assert done.returncode == 0, done.stderr
        assert "note:" not in done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1


def test_a_misspelt_option_is_refused_with_a_suggestion(installed, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("with: {same-rack: {wieght: 3}}\n")
    done = run(installed, "kai", "simulate", "examples/lab", "--config", str(policy))
    assert done.returncode == 4
    assert done.stderr.splitlines() == [
        f"error: {policy}: with.same-rack.wieght is not an option of kai-same-rack 0.2.0",
        "  help: did you mean weight (number, 0 or more, default 1)?",
    ]


def test_its_own_tests_pass(installed):
    done = run(installed, "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr
