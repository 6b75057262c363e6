import json
import os
import signal

import pytest

from tests.integration.client import until
from tests.integration.controlplane import DiedError
from tests.integration.forking import Forked

NOBODY = "http://127.0.0.1:9"


def output(process):
    def ended():
        try:
            return not process.pid
        except DiedError:
            return True

    until(ended, "the process to end")
    return process.tail()


def test_a_forked_process_has_kais_command_line_and_output(tmp_path):
    process = Forked(("version", "-o", "json"), tmp_path / "kai.log")
    process.start()
    assert '"version"' in output(process)
    with pytest.raises(DiedError, match="version"):
        _ = process.pid


def test_a_forked_process_has_its_own_environment_and_folder(tmp_path):
    (tmp_path / "here.yaml").write_text("kind: Nothing\n")
    process = Forked(("lint", "here.yaml"), tmp_path / "kai.log", environment={"NO_COLOR": "1"})
    process.start()
    assert "here.yaml" in output(process)
    assert "NO_COLOR" not in os.environ


def test_a_forked_process_can_be_stopped_and_restarted(tmp_path):
    server = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "none", "cluster": {"server": NOBODY}}]}
    context = {"contexts": [{"name": "none", "context": {"cluster": "none"}}], "current-context": "none"}
    (tmp_path / "config").write_text(json.dumps(server | context))
    without = ("--health-probe-bind-address=0", "--metrics-bind-address=0")
    process = Forked(("run", "binder", "--kubeconfig=config", *without), tmp_path / "kai.log")
    process.start()
    first = process.pid
    until(lambda: "cannot be reached" in process.tail(), "it to try")
    os.kill(first, signal.SIGSTOP)
    os.kill(first, signal.SIGCONT)
    process.stop(kill=True)
    process.stop()
    process.start()
    assert process.pid != first
    until(lambda: process.tail().count("cannot be reached") == 2, "the second one to try")
    process.stop()
    assert '"ending"' in process.tail()
    with pytest.raises(DiedError):
        _ = process.pid
