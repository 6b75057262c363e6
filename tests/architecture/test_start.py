"""The command starts quickly because it imports little."""

import subprocess
import sys

import pytest

from tests.architecture.source import modules

HEAVY = ("numba", "numpy", "kubernetes_asyncio", "aiohttp", "opentelemetry", "kai.kernels", "kai.framework")


LIGHT = [name for name in ("kai", "kai.errors", "kai.cli") if name in {module.name for module in modules()}]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_loads_nothing_heavy(module: str) -> None:
    look = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout.split()) == (0, []), seen.stderr
