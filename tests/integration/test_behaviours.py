"""What the peer's end-to-end tests ask for, as cases in ``behaviours``, with all of kai on a real API server."""

import pytest

from tests.integration.behaviour import Play, suites
from tests.integration.installation import CRDS, install
from tests.integration.stage import scene, staged
from tests.unit.deploy.rendering import DEPLOY

CASES = [
    pytest.param(suite.setting, case, id=f"{suite.name}: {sentence}")
    for suite in suites()
    for sentence, case in suite.cases.items()
]


@pytest.fixture(scope="module")
def theatre(bare_control_plane, tmp_path_factory):
    """Return a stage on which kai does not run yet."""
    install(bare_control_plane, DEPLOY / "base")
    bare_control_plane.define(CRDS)
    with staged(bare_control_plane, tmp_path_factory.mktemp("kai")) as stage:
        yield stage


@pytest.fixture(scope="module")
def kai(theatre, request):
    """Run kai as a suite asks for it; suites that ask for the same come one after the other."""
    request.param.start(theatre)
    yield theatre
    for program in tuple(theatre.programs):
        theatre.stop(program)


@pytest.mark.parametrize(("kai", "case"), CASES, indirect=["kai"], scope="module")
def test_behaviour(kai, case):
    with scene(kai) as stage:
        Play(stage).perform(case)
