"""What a file holds and kai does not use is said by commands that read, too, without being asked for."""

import pytest

from kai.cli.command import run

OLD = """\
apiVersion: scheduling.run.ai/v1
kind: Queue
metadata: {name: q}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: x, labels: {kai.scheduler/queue: q}, annotations: {pod-group-name: gone}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: x}]}
"""


@pytest.mark.parametrize("words", [("why", "--all"), ("jobs",), ("queues",), ("nodes",), ("jobs", "-o", "json")])
def test_workloads_that_yield_no_job_exit_with_an_error(tmp_path, capsys, words):
    file = tmp_path / "old.yaml"
    file.write_text(OLD)
    assert run([*words, "-f", str(file)]) == 4
    said = capsys.readouterr().err
    assert "note: not used: 1 Queue (found apiVersion scheduling.run.ai/v1, expected scheduling.run.ai/v2)" in said
    assert f"error: {file}: found workloads for this scheduler, and no job came of them" in said
