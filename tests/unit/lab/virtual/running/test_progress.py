"""What a run says of itself while it goes on."""

from math import inf

import pytest

from kai.basics.progress import heard_by
from kai.lab.virtual.running.progress import progress_into, show_all
from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import cluster, job, scene_of


@pytest.mark.parametrize(
    ("until", "half", "where"),
    [(7200.0, 500, "T+1h of 2h, 1 job ended"), (inf, 500, "T+0s, 1 of 2 jobs arrived, 0 ended")],
    ids=["against the horizon", "against arrivals"],
)
def test_a_run_reports_its_time_jobs_and_end(until: float, half: int, where: str):
    heard: list[tuple[str, int, int, str | None]] = []
    text = cluster() + job("first", duration="10m") + job("second", arrival="1h", duration="10m")
    with heard_by(lambda *told: heard.append(told)):
        run(scene_of(text), until=until)
    told = [each for each in heard if each[0] == "simulating case"]
    assert ("simulating case", half, 1000, where) in told
    assert told[-1] == ("simulating case", 1000, 1000, "")
    assert [done for _, done, _, _ in told] == sorted({done for _, done, _, _ in told})


def test_parallel_runs_report_their_joint_progress():
    told, heard = [0, 0, 0], list[tuple[str, int, int, str | None]]()
    progress_into(told, 0)("simulating a", 1000, 1000, "")
    progress_into(told, 1)("simulating b", 250, 500, "T+1h of 2h")
    progress_into(told, 2)("compiling kernels", 5, 9, None)
    assert told == [999, 500, 0]  # what came out of the first one is not there yet
    told[0] = 1000
    with heard_by(lambda *each: heard.append(each)):
        show_all(told, 2)
    assert heard == [("simulating 3 runs, 2 at a time", 1500, 3000, "1 ended")]
