"""The plugin of examples/kai-tiers is installed into a folder of its own, and changes what queues get."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "examples" / "kai-tiers"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    words = ["uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation", "--target", target]
    done = subprocess.run([sys.executable, "-m", *words, PACKAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(installed, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(installed), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def shares(done):
    assert done.returncode == 0, done.stderr
    return {item["name"]: item["gpus"]["fairShare"] for item in json.loads(done.stdout)["items"]}


def test_a_label_of_a_queue_changes_what_it_gets(installed):
    words = ("kai", "queues", "-f", str(PACKAGE / "two-teams.yaml"), "-o", "json")
    assert shares(run(installed, *words)) == {"root": 10, "research": 5, "web": 5}
    with_tiers = run(installed, *words, "--config", str(PACKAGE / "policy.yaml"))
    assert shares(with_tiers) == {"root": 10, "research": 7, "web": 3}


def test_why_shows_the_weight_that_divides_shares(installed):
    words = ("kai", "why", "queue/research", "-f", str(PACKAGE / "two-teams.yaml"))
    done = run(installed, *words, "--config", str(PACKAGE / "policy.yaml"))
    assert done.returncode == 0, done.stderr
    assert "4 of 5 weights" in done.stdout
    assert "research    10      2       4     7           7" in done.stdout


def test_its_own_tests_pass(installed):
    done = run(installed, "pytest", "-q", "-p", "no:cacheprovider", str(PACKAGE / "tests"))
    assert done.returncode == 0, done.stdout
