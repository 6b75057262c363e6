"""A little of the chaos that ``nox -s chaos`` makes: kills and freezes under load, and nothing may be given twice."""

from tests.integration.chaos.rig import Plan, rigged


def test_kills_and_freezes_give_nothing_twice_and_leave_nothing_behind(bare_control_plane, tmp_path):
    plan = Plan(restarts=4, standbys=2, freezes=3, seed=7, lease=(4.0, 3.0, 0.5), settle_every=3)
    with rigged(bare_control_plane, tmp_path, plan) as rig:
        rig.run()
        report = rig.report
    assert report.violations == [], report.text()
    assert report.kills >= 6
    assert report.bindings >= 50, "there was a load"
