"""Faults at the writes of kai: sixty of those that ``nox -s chaos`` tries, and nothing may be given twice."""

from tests.integration.chaos.points import POINTS, Fault, Moment, Points, Trial, trials
from tests.integration.chaos.rig import Plan, rigged
from tests.integration.proxy import proxied

BINDING = POINTS[0]


def test_each_point_has_ten_trials():
    assert len({point.name for point in POINTS}) == len(POINTS) == 14
    assert len(trials(Fault)) == 10 * len(POINTS)
    met = [point.name for point in POINTS if point.is_met("PATCH", "/api/v1/namespaces/a/pods/b/status?x=/pods/c")]
    assert met == ["a condition of a pod"]


def test_faults_at_sixty_points_cause_no_double_bookings(bare_control_plane, tmp_path):
    kills = [Trial(BINDING, moment, Fault.KILL) for moment in Moment]
    wanted = [*trials((Fault.ERROR, Fault.LOST)), *kills, Trial(BINDING, Moment.SENT, Fault.PAUSE)]
    assert len(wanted) == 60
    with proxied(bare_control_plane) as proxy:
        bare_control_plane.front = proxy.url
        with rigged(bare_control_plane, tmp_path, Plan(nodes=2, is_patient=False)) as rig:
            points = Points.of(rig, proxy)
            left = points.run(wanted, rounds=12, at_once=len(wanted))
            report = rig.report
    assert report.violations == [], report.text()
    assert left == ()
    assert report.kills == len(kills)
    assert sorted(map(str, points.injector.hit)) == sorted(map(str, wanted))
