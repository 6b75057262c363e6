"""What is over is kept small, and comes back as it was."""

import gc
from math import inf, nan

import numpy as np
import pytest

from kai.lab.virtual.running.live_jobs import Life, LiveJob, Slot, Task
from kai.lab.virtual.running.meters import Meters
from kai.lab.virtual.running.records import (
    Ending,
    JobRecord,
    JobRecords,
    Loss,
    Records,
    Rows,
    Stay,
    packed,
    rows_of,
    unpacked,
)
from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import cluster, job, scene_of


def record(number: int, **changes: object) -> JobRecord:
    values = {
        "name": f"j{number}",
        "namespace": "trace",
        "queue": "work",
        "kind": "Job",
        "owner": f"o{number}",
        "user": "ann",
        "pods": 2,
        "alone": 0.1 + 0.2,
        "arrival": number / 3,
    }
    return JobRecord(**{**values, **changes})  # type: ignore[arg-type]  # fields of a record by name


def told(found: JobRecord) -> str:
    return repr(found)


@pytest.mark.parametrize("alone", [None, 1, 1.0, 1e-300, inf])
def test_a_packed_record_reads_back_unchanged(alone: float | None):
    records = JobRecords()
    full = record(7, alone=alone, waits=(0.1, 2.0), nodes=("n1", "n2"), ending=Ending.DONE, end=1 / 3, possible=nan)
    before = told(full)
    records.append(full)
    records.close(0)
    assert records[0] is not full
    assert [told(records[0]), *map(told, records), *map(told, records[:1])] == [before] * 3


def test_a_packed_record_can_still_be_changed():
    records = Records(Meters(["work"]))
    records.jobs.append(record(0))
    records.end(0, 5.0, Ending.FAILED)
    records.lose(0, 2.5, Loss.NODE)
    assert (records.jobs[0].lost, records.jobs[0].ending) == (2.5, Ending.FAILED)


def test_a_record_that_cannot_be_packed_stays_an_object():
    records = JobRecords()
    odd = record(0, owner="\ud800")
    records.append(odd)
    records.close(0)
    assert packed("\ud800") is None
    assert records[0] is odd


def test_rows_come_back_in_their_order_as_they_were():
    rows = rows_of(Stay)
    given = [Stay(job=at, node=f"n{at % 3}", start=at / 7, end=at / 3, gpus=0.1 * at) for at in range(1200)]
    for each in given:
        rows.append(each)
    assert len(rows) == 1200
    assert list(rows) == given
    assert list(rows) == given


def test_numpy_scalars_unpack_as_equal_plain_numbers():
    values = [np.float64(0.1), np.int64(3)]
    assert repr(unpacked(packed(values) or b"")) == "[0.1, 3]"


def test_finished_jobs_are_packed_below_256_bytes():
    many = "".join(job(f"j{number}", arrival=f"{number}m", duration="30s") for number in range(60))
    found = run(scene_of(cluster() + many)).records.jobs
    kept = [each for each in found._records if isinstance(each, bytes)]
    assert len(kept) == 60
    assert max(map(len, kept)) < 256


def test_jobs_that_are_over_are_freed_without_the_collector():
    many = "".join(job(f"j{number}", arrival=f"{number}m", duration="30s") for number in range(5))
    scene = scene_of(cluster() + many)
    gc.collect()
    gc.disable()
    try:
        run(scene)
        left = [type(each).__name__ for each in gc.get_objects() if isinstance(each, LiveJob | Task | Slot | Life)]
    finally:
        gc.enable()
    assert left == []


def test_lines_keep_what_they_are():
    rows = Rows[tuple[float, str]](tuple, lambda *line: line)
    rows.append((0.5, "bind a"))
    assert list(rows) == [(0.5, "bind a")]
