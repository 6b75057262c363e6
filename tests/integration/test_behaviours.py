"""What the peer's end-to-end tests ask for, as cases in ``behaviours``, with all of kai on a real API server.

Cases for which kai runs alike are in classes together: programs are started once for a class, and classes may run in
processes of their own. Those of kai as shipped are many, and divided evenly.
"""

import pytest

from tests.integration.behaviour import SHIPPED, Play, suites
from tests.integration.installation import CRDS, install
from tests.integration.stage import scene, staged
from tests.unit.deploy.rendering import DEPLOY

PARTS = 3


@pytest.fixture(scope="session")
def plane(lasting_control_plane):
    """Return a control plane in which all of kai may run."""
    install(lasting_control_plane, DEPLOY / "base")
    lasting_control_plane.define(CRDS)
    return lasting_control_plane


@pytest.fixture(scope="class")
def kai(plane, tmp_path_factory, request):
    """Run kai as the cases of a class ask for it."""
    with staged(plane, tmp_path_factory.mktemp("kai")) as stage:
        request.cls.setting.start(stage)
        yield stage


def behaviours(setting, cases):
    """Return a class with a test for each case."""

    @pytest.mark.parametrize("case", cases)
    def test_behaviour(kai, case):
        with scene(kai) as stage:
            Play(stage).perform(case)

    return type("Behaviours", (), {"setting": setting, "test_behaviour": staticmethod(test_behaviour)})


def cases(suite):
    """Return the cases of a suite."""
    return [pytest.param(case, id=f"{suite.name}: {sentence}") for sentence, case in suite.cases.items()]


ALL = suites()
AS_SHIPPED = [case for suite in ALL if suite.setting == SHIPPED for case in cases(suite)]
# One class for each file that says how kai is to run, without anybody's having to name it here.
CLASSES = {
    **{suite.name: behaviours(suite.setting, cases(suite)) for suite in ALL if suite.setting != SHIPPED},
    **{f"as_shipped_{part}": behaviours(SHIPPED, AS_SHIPPED[part::PARTS]) for part in range(PARTS)},
}
globals().update({"Test" + name.title().replace("_", ""): each for name, each in CLASSES.items()})
