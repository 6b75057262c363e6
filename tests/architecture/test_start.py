"""The command starts quickly because it imports little."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, modules

HEAVY = ("numba", "numpy", "kubernetes_asyncio", "aiohttp", "opentelemetry", "kai.facts.kernels", "kai.framework")


HELP = (["--help"], ["run", "--help"], ["run", "scheduler", "--help"], ["run", "scheduler", "binder", "-h"])
"""What a person types to read: nothing that works is needed for it."""
SERVING = ("anyio", "attr", "cattrs", "msgspec", "structlog", "rich", "prometheus_client", "yaml")
LIGHT = [name for name in ("kai", "kai.basics.errors", "kai.cli") if name in {module.name for module in modules()}]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_loads_nothing_heavy(module: str) -> None:
    look = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout.split()) == (0, []), seen.stderr


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_a_help_text_loads_nothing_that_works(words: list[str]) -> None:
    look = (
        "import sys, kai.cli.command as command\n"
        f"status = command.run({words!r})\n"
        f"print(*sorted(set(sys.modules) & set({(*HEAVY, *SERVING)!r})), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stderr.split()) == (0, [])
    assert seen.stdout.startswith("Usage: kai")


ROLES = {
    "scheduler": ("kai.roles.admission", "kai.roles.binder", "kai.roles.podgrouper", "kai.roles.controllers"),
    "binder": ("kai.roles.admission", "kai.roles.scheduler", "kai.roles.podgrouper", "numba", "numpy"),
    "podgrouper": ("kai.roles.admission", "kai.roles.scheduler", "kai.roles.binder", "numba", "numpy"),
    "queue-controller": ("kai.roles.admission", "kai.roles.scheduler", "kai.roles.binder", "numba", "numpy"),
    "podgroup-controller": ("kai.roles.admission", "kai.roles.scheduler", "kai.roles.binder", "numba", "numpy"),
}
"""What a process with one role has no need of. Plugins are named by entry points, so theirs count for the scheduler."""


@pytest.mark.parametrize("role", ROLES)
def test_a_process_loads_the_parts_of_its_role_alone(role: str) -> None:
    look = (
        "import sys\n"
        "from kai.cli.running.flags import read_flags\n"
        "from kai.cli.running.process import Process\n"
        "from kai.cli.running.flags import FLAGS, ROLES, TOGETHER\n"
        "from kai.cluster.process.tracing import make_tracing\n"
        f"process = Process.of(read_flags([{role!r}], FLAGS, ROLES, TOGETHER), {{}})\n"
        "process._plan(make_tracing('kai', endpoint=''))\n"
        f"print(*sorted(set(sys.modules) & set({ROLES[role]!r})))"
    )
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout.split()) == (0, []), seen.stderr


SMALL = (["version"], ["plugins"], ["plugins", "--time", "examples/lab"], ["simulate", "examples/lab"])
"""Commands that a person types first. What they decide on is small, so nothing is compiled for it."""


@pytest.mark.parametrize("words", SMALL, ids=" ".join)
def test_the_first_commands_do_without_the_compiler(words: list[str]) -> None:
    look = (
        "import sys, kai.cli.command as command\n"
        f"status = command.run({words!r})\n"
        "print(*sorted(set(sys.modules) & {'numba', 'llvmlite'}), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    seen = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stderr.splitlines()[-1:]) == (0, [""]), seen.stderr


ANSWERING = (["jobs", "-f", "examples/lab"], ["why", "rl-sim", "-f", "examples/lab"], ["simulate", "examples/lab"])


@pytest.mark.parametrize("words", ANSWERING, ids=" ".join)
def test_a_short_command_ends_before_any_garbage_collection(words: list[str]) -> None:
    look = (
        "import gc, sys, kai.cli.command as command\n"
        "gc.collect()\n"
        "looks = [each['collections'] for each in gc.get_stats()]\n"
        "try:\n"
        f"    command.main({words!r})\n"
        "finally:\n"
        "    more = [each['collections'] for each in gc.get_stats()]\n"
        "    print(*(after - before for after, before in zip(more, looks)), gc.get_freeze_count() > 0, file=sys.stderr)"
    )
    seen = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stderr.splitlines()[-1:]) == (0, ["0 0 0 True"]), seen.stderr


SERVICE = ("aiohttp", "anyio", "kubernetes_asyncio", "llvmlite", "numba", "opentelemetry", "prometheus_client", "rich")
"""What serves, reaches a cluster, compiles or draws: manifests are decided without it."""


@pytest.mark.parametrize("words", ANSWERING, ids=" ".join)
def test_manifests_are_decided_without_what_serves(words: list[str]) -> None:
    look = (
        "import sys, kai.cli.command as command\n"
        f"status = command.run({words!r})\n"
        f"print(*sorted(set(sys.modules) & set({SERVICE!r})), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    seen = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stderr.splitlines()[-1:]) == (0, [""]), seen.stderr


TEXTS = ("yaml", "kai.manifests", "kai.roles.podgrouper", "kai.lab.scenarios.scenario")
"""What reads texts and makes pods of workloads."""
UNASKED = ("kai.plugins.numa", "kai.plugins.fragmentation", "kai.plugins.dra.claim_answers", "cel_expr_python")
"""Plugins that no configuration here names, and what allocates claims, of which there are none."""
LISTING = (*TEXTS, *UNASKED, "kai.answers.why.explanation", "kai.cluster", "numba")


@pytest.mark.parametrize("words", [["jobs", "-A"], ["queues"], ["nodes"]], ids=" ".join)
def test_listing_a_snapshot_imports_nothing_unneeded(words: list[str], tmp_path: Path) -> None:
    snapshot = str(tmp_path / "lab.zip")
    saved = subprocess.run(
        [sys.executable, "-m", "kai", "snapshot", snapshot, "-q", "--from", "examples/lab"], cwd=ROOT, check=False
    )
    look = (
        "import sys, kai.cli.command as command\n"
        f"status = command.run({[*words, '--from', snapshot]!r})\n"
        f"print(*sorted(set(sys.modules) & set({LISTING!r})), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    seen = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (saved.returncode, seen.returncode, seen.stderr.splitlines()[-1:]) == (0, 0, [""]), seen.stderr
