"""Plans on old knowledge, one of each kind that ``nox -s chaos`` has: watches on a frozen API server."""

from tests.integration.chaos.rig import Plan, rigged
from tests.integration.chaos.stale import made_stale

PLAN = Plan(nodes=2, lease=(8.0, 6.0, 1.0), is_patient=False)


def test_decisions_during_silent_watches_cause_no_double_bookings(bare_control_plane, tmp_path):
    with rigged(bare_control_plane, tmp_path, PLAN) as rig, made_stale(rig, tmp_path) as stale:
        stale.blind(("pods",), "compact")
        stale.heir()
        report = rig.report
    assert report.violations == [], report.text()
    assert stale.rounds == 2
    assert report.bindings >= 10, "there was work"
