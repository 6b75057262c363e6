"""Command lines of the service that end it at once: values that no flag can have, addresses that others have."""

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
    ("arguments", "said"),
    [
        (["scheduler", "--evict-by=x"], "--evict-by: found 'x', expected one of eviction, budget, delete"),
        (["scheduler", "--config=a", "--scheduler-conf=b"], "--config: found 'a' beside --scheduler-conf=b"),
        (["--dashboard=x"], "--dashboard: found 'x', expected an address"),
        (["binder", "--leader-elect", "--leader-elect-lease-duration=1s"], "leader election: durations: found"),
        (["binder", "--otlp-endpoint=x:1"], "--otlp-endpoint: found 'x:1', expected an address"),
        (["scheduler", "binder", "--shadow"], "--shadow: found the roles binder, which write"),
    ],
)
def test_an_impossible_flag_value_is_a_usage_error(arguments: list[str], said: str) -> None:
    program = [sys.executable, "-m", "kai", "run", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    first, second = done.stderr.splitlines()[-2:]
    assert done.returncode == 2
    assert first.replace('"', "'").startswith(f"error: {said}")
    assert second == "  help: kai run --help"


@pytest.mark.parametrize(
    ("flag", "other"),
    [("metrics-bind-address", "health-probe-bind-address"), ("health-probe-bind-address", "metrics-bind-address")],
)
def test_an_address_in_use_is_reported_with_its_flag(flag: str, other: str, tmp_path: Path) -> None:
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
