"""Where a process listens: an address that another program has is told with the flag that chooses another one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: abc}}]
"""


@pytest.mark.parametrize(
    ("flag", "other"),
    [("metrics-bind-address", "health-probe-bind-address"), ("health-probe-bind-address", "metrics-bind-address")],
)
def test_an_address_that_is_taken_is_told_with_its_flag(flag: str, other: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [f"--{flag}={place}", f"--{other}=0", f"--kubeconfig={config}"]
        program = [sys.executable, "-m", "kai", "run", "binder", *flags]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-2:] == [
        f"error: {place}: found Address already in use, expected a port that is free",
        f"  help: another program listens there; --{flag} chooses another place",
    ]
