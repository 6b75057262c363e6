"""Fixtures of the tests that run against a real control plane.

Building its programs takes minutes, once: ``nox -s integration``, one of the sessions that ``make test`` runs, does it
first. Whoever calls pytest without it has these tests skipped, except where the run counts as CI.

These tests mostly wait, so the session runs three modules, or classes of them, at a time, each in a process and with a
control plane of its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration import programs
from tests.integration.controlplane import CONTROLLERS, ControlPlane
from tests.integration.installation import install
from tests.integration.proxy import Latency, proxied
from tests.integration.stage import Stage, staged
from tests.unit.deploy.rendering import DEPLOY

# What takes longest begins first, or all other processes wait at the end for the one that has it. A process that has
# fewer than three tests left is given the next module right away: what follows one long test is short.
_FIRST = (
    "test_faults",
    "test_scheduler",
    "test_chaos",
    "test_upgrades",
    "test_takeover",
    "test_behaviours",
    "test_split",
    "test_past_usage",
    "test_fractions",
    "test_definitions",
    "test_day_two",
    "test_flood",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take longest; the order of all others stays as it was drawn."""
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


@pytest.fixture(scope="module")
def bare_control_plane(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver for one module; nothing of kai is in it at first.

    Nodes, queues and definitions have no namespace to be kept apart by, and one that a module left behind would decide
    whether the next one passes. A control plane of its own costs a module four seconds. A module may name
    flags of its API server, as ``API_SERVER_FLAGS``, and which controllers run, as ``CONTROLLERS``.
    """
    flags = getattr(request.module, "API_SERVER_FLAGS", ())
    with started(tmp_path_factory, flags, getattr(request.module, "CONTROLLERS", CONTROLLERS)) as plane:
        yield plane


@pytest.fixture(scope="session")
def lasting_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane for the one module of which classes may run apart from each other."""
    with started(tmp_path_factory) as plane:
        yield plane


@pytest.fixture(scope="session")
def helm() -> Path:
    """Return the program, or leave out the test that asks for it where it is not built."""
    return built(programs.HELM)


def built(name: str) -> Path:
    """Return a program, or leave out the test that asks for it where it is not built."""
    found = programs.find_program(name)
    if found is None:
        if programs.are_required():
            pytest.fail(f"{name} is not built, and CI must not pass without these tests")
        pytest.skip(f"{name} is not built; `nox -s integration` builds it once")
    return found


@pytest.fixture(scope="module")
def whole(bare_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run all roles in one process, on all that is shipped."""
    install(bare_control_plane, DEPLOY)
    with staged(bare_control_plane, tmp_path_factory.mktemp("whole")) as stage:
        stage.start("kai")
        yield stage


@contextmanager
def started(
    tmp_path_factory: pytest.TempPathFactory,
    flags: tuple[str, ...] = (),
    controllers: tuple[str, ...] = CONTROLLERS,
) -> Iterator[ControlPlane]:
    """Run a control plane, or leave out the test that asks for it where there are no programs."""
    found = programs.Programs(*map(built, programs.CONTROL_PLANE))
    folder = tmp_path_factory.mktemp("control-plane")
    plane = ControlPlane.start(found, folder, flags=flags, controllers=controllers)
    try:
        with slowed(plane):
            yield plane
    finally:
        plane.stop()


@contextmanager
def slowed(plane: ControlPlane) -> Iterator[None]:
    """Put a proxy with drawn latencies before the API server where ``KAI_TEST_LATENCY`` asks for it."""
    latency = Latency.read(os.environ.get("KAI_TEST_LATENCY", ""))
    if latency is None:
        yield
        return
    with proxied(plane, latency) as proxy:
        plane.front = proxy.url
        yield


@pytest.fixture(scope="module")
def control_plane(bare_control_plane: ControlPlane) -> ControlPlane:
    """Return the control plane with what ``overlays/split`` ships in it: kinds, namespaces, rights, classes."""
    install(bare_control_plane, DEPLOY / "overlays" / "split")
    return bare_control_plane
