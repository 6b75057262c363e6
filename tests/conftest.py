"""What every test gets: hypothesis profiles, one async backend, and an alarm for calls that block the event loop."""

import gc
import os
from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import settings

from kai.facts.kernels import run_compiled

# dev: quick, different every time, failures remembered. ci: the same examples on every run, so that a red run can be
# repeated. plain: as few as dev and the same on every run, for kernels as plain Python. nightly: as many as the night
# allows. No deadline anywhere: the first example may compile a kernel.
settings.register_profile("dev", max_examples=100, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("plain", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=50_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# Tables are as wide as the terminal; a test that wants a width sets it. Workers of xdist inherit that of the shell.
os.environ.pop("COLUMNS", None)

# Small clusters are decided plainly (`kai.facts.compiled.pace`), and all tests have small ones: what is to be tested is
# what large ones are decided with. The session `nojit` tests the plain form.
run_compiled()


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what imports and the collected tests made, and run less often.

    That is there to stay. Searching it again and again costs an eighth of the processor that the suite needs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def no_look_at_everything() -> Iterator[None]:
    """Let no scheduler that a test runs have the collector look through all that the tests made: that takes seconds.

    A scheduler does it once, after its first cycle. `tests/unit/api/memory` and `tests/architecture` try it.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kai.roles.scheduler.cycle.cycling.settle", lambda: None)
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio only: the Kubernetes client knows no other."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_blocking_call(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail an async test that blocks the event loop (sleeps, reads a file, connects) instead of awaiting."""
    if request.node.get_closest_marker("anyio") is None:
        yield
        return
    with blockbuster_ctx() as guard:
        for function in guard.functions.values():
            # Kubeconfig files are read in a thread, on an event loop that has nothing else to do.
            function.can_block_in("kai/cluster/transport/credentials.py", "_read")
        yield
