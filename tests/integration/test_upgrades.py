"""One upgrade and one rollback under load, of the fifty of ``nox -s upgrades``; they need a cluster of their own."""

import shutil

from tests.integration.chaos.rig import Plan, rigged
from tests.integration.chaos.upgrades import Upgrades
from tests.unit.deploy.rendering import LASTING


def test_upgrades_and_rollbacks_evict_no_pod(bare_control_plane, tmp_path):
    # Where there is no history of the repository the other revision is a copy; `nox -s upgrades` goes back far. Its
    # kernels are compiled as those of an image are: two replicas of it would compile them anew, for minutes.
    other = tmp_path / "other"
    for name in ("kai", "deploy"):
        shutil.copytree(LASTING.parents[1] / name, other / name)
    with rigged(bare_control_plane, tmp_path, Plan(seed=11, is_patient=False)) as rig:
        upgrades = Upgrades(rig, LASTING.parents[1], other)
        upgrades.run(2)
    assert upgrades.violations == [], rig.report.text()
    assert upgrades.rolls == 2
    assert upgrades.hand_overs, "a leader was replaced"
    assert rig.report.bindings >= 30, "there was a load"
