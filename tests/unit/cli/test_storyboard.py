"""The first ten minutes on a laptop, command by command: no cluster, no GPU, no network. Numbers are masked.

The lab is decided on, saved, asked, and decided upon again; then come the reader's own file and a first plugin.
"""

import re

import pytest

from kai.cli.command import run

TRAIN = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, namespace: default, labels: {kai.scheduler/queue: language}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: %d
      template:
        spec:
          schedulerName: kai-scheduler
          containers:
          - name: pytorch
            image: registry.example/train:1.0
            resources: {limits: {nvidia.com/gpu: 8}}
"""
PLAN = """\
lab · # nodes · # GPUs · # leaf queues · # jobs · # waiting · # cycle
Plan: # pods start now, # pods start after # evicted pods have stopped.
"""
WHY = """\
vit-xl waits: queue vision may not use more than # GPUs, and this job would make it # GPUs.
OverLimit · queue vision · # pods, # GPUs · waiting #m · position #

  vision   limit #   used # when it was tried, # in the end   this job #   over by #
"""
WAITS = """\
train would wait: its # pods must start together, and none fits now: # nodes lack GPUs.
GangDoesNotFit · queue language · # pods, # GPUs
  ? train   # pods x # GPUs   GangDoesNotFit   language # of quota #
Plan: # to start, # to evict, # to move.

To make it run
  No single change that was tried would start it.
  wait  until running work ends (no end time is known)
"""


@pytest.fixture
def seen(capsys):
    def ask(*arguments, code=0):
        """Return what a command prints, its numbers masked."""
        capsys.readouterr()
        assert run(list(arguments)) == code
        lines = [re.sub(r"\d+(?:\.\d+)?", "#", line).rstrip() for line in capsys.readouterr().out.splitlines()]
        return "\n".join(lines) + "\n"

    return ask


def test_the_first_ten_minutes_on_a_laptop(seen, tmp_path):
    end, own, policy = (str(tmp_path / name) for name in ("end.zip", "train.yaml", "no-reclaim.yaml"))

    # The lab, as it is shipped: one line of what it is, one of what is decided.
    lines = seen("simulate", "examples/lab").splitlines()
    said = [line for line in lines if line.startswith(("lab ·", "Plan:"))]
    assert "\n".join(said) + "\n" == PLAN

    # Saved, and asked anything; the same decisions are made of it again.
    assert "again: kai replay" in seen("snapshot", end, "-f", "examples/lab")
    assert seen("why", "vit-xl", "--from", end).startswith(WHY)
    assert ", as recorded" in seen("replay", end, "--expect")

    # Another policy on the same lab: what changes.
    (tmp_path / "no-reclaim.yaml").write_text("actions: allocate, consolidation, preempt\n")
    changed = seen("diff", "default", policy, "--on", "examples/lab", "--exit-code", code=1)
    assert "first divergence" in changed

    # The reader's own file: right, and what would become of it.
    (tmp_path / "train.yaml").write_text(TRAIN % 6)
    assert seen("lint", own) == "ok: # job, # pods, # GPUs, gang of #\n"
    assert seen("would-run", own, "--from", end, code=1) == WAITS
    assert seen("would-run", own, "--from", end, "--queue", "languag", code=4) == "\n"

    # A first plugin.
    written = seen("plugins", "new", "same-rack", "--into", str(tmp_path / "kai-mine"))
    assert "pyproject.toml" in written
