"""What the peer's end-to-end tests ask for, as cases in ``behaviours``, with all of kai on a real API server."""

import pytest

from tests.integration.behaviour import Play, suites
from tests.integration.installation import install
from tests.integration.stage import scene, staged
from tests.unit.deploy.rendering import DEPLOY


@pytest.fixture(scope="module")
def kai(bare_control_plane, tmp_path_factory):
    """Run all roles in one process, as ``deploy/base`` does."""
    install(bare_control_plane, DEPLOY / "base")
    with staged(bare_control_plane, tmp_path_factory.mktemp("kai")) as stage:
        stage.start("kai")
        yield stage


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{suite}: {sentence}") for suite, sentence, case in suites()])
def test_behaviour(kai, case):
    with scene(kai) as stage:
        Play(stage).perform(case)
