"""CronJobs over virtual time: hourly runs on one node of 8 GPUs, which begins on 2026-01-01 at midnight, UTC."""

from pathlib import Path

import pytest

from kai.basics.errors import InputError
from kai.cli.console import Console
from kai.cli.deciding.runlines import run_text
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.simulation import run
from kai.lab.virtual.scenes.loading import load
from tests.unit.lab.virtual.builders import cluster

HOUR = 3600.0
MINUTES = 1767225600 // 60
"""Of the beginning, since the epoch."""
CRON = """---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: hourly
  annotations: {{simulation.kai.scheduler/duration: {duration}}}
spec:
  schedule: "{schedule}"
{more}
  jobTemplate:
    metadata: {{labels: {{kai.scheduler/queue: work}}}}
    spec:
      template:
        spec:
          schedulerName: kai-scheduler
          restartPolicy: Never
          containers: [{{name: m, image: x, resources: {{limits: {{nvidia.com/gpu: "2"}}}}}}]
"""


def came(
    folder: Path, *, schedule: str = "0 * * * *", duration: str = "10m", until: float = 4 * HOUR, **spec: str
) -> SimulationResult:
    more = "\n".join(f"  {key}: {text}" for key, text in spec.items())
    text = cluster() + CRON.format(duration=duration, schedule=schedule, more=more)
    (folder / "work.yaml").write_text(text, encoding="utf-8")
    return result_of(run(load(str(folder / "work.yaml"), None, until=until).scene, until=until))


def starts(result: SimulationResult) -> list[float | None]:
    return [job.start_seconds for job in result.jobs]


def test_each_scheduled_time_creates_its_own_job(tmp_path: Path):
    result = came(tmp_path)
    assert starts(result) == [0.0, HOUR, 2 * HOUR, 3 * HOUR]
    assert [job.name for job in result.jobs] == [f"hourly-{MINUTES + 60 * number}" for number in range(4)]
    assert {(job.kind, job.owner, job.state, job.gpus, job.queue) for job in result.jobs} == {
        ("CronJob", "hourly", "done", 2.0, "work")
    }
    said = " ".join(run_text(result, Console()).split())
    assert "CronJob hourly comes 4 times, by its schedule in UTC." in said


def test_a_schedule_is_that_of_its_time_zone(tmp_path: Path):
    result = came(tmp_path, schedule="0 3 * * *", timeZone="Asia/Kolkata", until=24 * HOUR)
    assert starts(result) == [21.5 * HOUR]


@pytest.mark.parametrize(
    ("policy", "minutes", "states", "said"),
    [
        ("Allow", [0, 60, 120, 180], ["done", "done", "done", "running"], "by its schedule in UTC"),
        ("Forbid", [0, 100, 200], ["done", "done", "running"], "3 runs came before the last one had ended, 1 of them"),
        ("Replace", [0, 60, 120, 180], ["taken back", "taken back", "taken back", "running"], "by its schedule in UTC"),
    ],
)
def test_overlapping_cronjob_runs_follow_the_concurrency_policy(
    policy: str, minutes: list[int], states: list[str], said: str, tmp_path: Path
):
    result = came(tmp_path, duration="100m", concurrencyPolicy=policy)
    assert starts(result) == [60.0 * each for each in minutes]
    assert [job.state for job in result.jobs] == states
    assert said in result.notes[-1]


def test_a_cronjob_run_past_its_deadline_is_counted_out(tmp_path: Path):
    result = came(tmp_path, duration="90m", concurrencyPolicy="Forbid", startingDeadlineSeconds="600")
    assert starts(result) == [0.0, 2 * HOUR]
    assert result.notes[-1] == "CronJob hourly: 2 runs came before the last one had ended, 2 of them left out."


def test_without_a_horizon_it_runs_once_and_says_so(tmp_path: Path):
    text = cluster() + CRON.format(duration="10m", schedule="0 * * * *", more="")
    (tmp_path / "work.yaml").write_text(text, encoding="utf-8")
    result = result_of(run(load(str(tmp_path / "work.yaml"), None).scene))
    assert starts(result) == [0.0]
    assert "its schedule counts with --until" in result.notes[-1]


@pytest.mark.parametrize(
    ("field", "text"), [("schedule", "often"), ("timeZone", "Nowhere/Here"), ("concurrencyPolicy", "Sometimes")]
)
def test_a_field_that_cannot_be_used_is_named(field: str, text: str, tmp_path: Path):
    with pytest.raises(InputError, match=rf"{field}: found .?{text}"):
        came(tmp_path, **{field: text})  # type: ignore[arg-type]  # texts by name
