from pathlib import Path

import attrs
import pytest

from kai.lab.virtual.results.documents import write_tables
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import run
from tests.unit.lab.virtual.builders import case, scene_of

pyarrow = pytest.importorskip("pyarrow.parquet", reason="the extra traces is not installed")


def test_jobs_series_stays_and_evictions_become_parquet_tables(tmp_path: Path):
    result = result_of(run(scene_of(case("reclaim.yaml")), until=8 * 3600.0))
    other = attrs.evolve(result, policy="other", evictions=())
    names = write_tables(tmp_path / "result.parquet", [result, other])
    assert names == ["result-series.parquet", "result-stays.parquet", "result-evictions.parquet"]
    jobs, series, stays, evictions = (
        pyarrow.read_table(tmp_path / name).to_pylist() for name in ("result.parquet", *names)
    )
    assert [(row["policy"], row["name"], row["endSeconds"]) for row in jobs] == [
        ("default", "long", 10530.0),
        ("default", "short", 5430.0),
        ("other", "long", 10530.0),
        ("other", "short", 5430.0),
    ]
    assert jobs[0]["waitsSeconds"] == list(result.jobs[0].waits_seconds)
    assert [row["used/guest"] for row in series[: len(series) // 2]] == list(result.series.columns["used/guest"])
    assert {row["job"] for row in stays} == {"default/long", "default/short"}
    assert [(row["policy"], row["cause"], row["aggressor"]) for row in evictions] == [
        ("default", "reclaim", "default/short")
    ]


def test_a_run_without_evictions_writes_an_empty_table(tmp_path: Path):
    result = attrs.evolve(result_of(run(scene_of(case("reclaim.yaml")), until=60.0)), evictions=())
    write_tables(tmp_path / "x.parquet", [result])
    table = pyarrow.read_table(tmp_path / "x-evictions.parquet")
    assert (table.num_rows, table.column_names[:3]) == (0, ["policy", "seed", "timeSeconds"])
