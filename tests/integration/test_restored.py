"""An etcd that is put back to a backup while kai works, with both of its API servers killed and started again."""

from tests.integration.chaos.rig import Plan, rigged
from tests.integration.chaos.stale import made_stale

PLAN = Plan(nodes=2, lease=(8.0, 6.0, 1.0), is_patient=False)


def test_a_restored_backup_causes_no_double_bookings(bare_control_plane, tmp_path):
    with rigged(bare_control_plane, tmp_path, PLAN) as rig, made_stale(rig, tmp_path) as stale:
        stale.restored(is_moved_on=False)
        report = rig.report
    assert report.violations == [], report.text()
    assert stale.rounds == 1
    assert report.bindings >= 10, "there was work"
