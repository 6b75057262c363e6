"""The command starts quickly because it imports little."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "numpy", "kubernetes_asyncio", "aiohttp", "opentelemetry", "kai.kernels", "kai.framework")


@pytest.mark.parametrize("module", ["kai", "kai.errors", "kai.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    look = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout.split()) == (0, []), seen.stderr
