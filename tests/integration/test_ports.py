"""A port stays with the process that asked for it, also while no program uses it."""

import socket
import subprocess
import sys

import pytest

from tests.integration.ports import HOST, Ports

_ANOTHER = """
import sys
from pathlib import Path
from tests.integration.ports import Ports

first = int(sys.argv[2])
print(*Ports(Path(sys.argv[1]), range(first, first + 4)).take(4))
"""


@pytest.fixture
def claims(tmp_path):
    return tmp_path / "claims"


@pytest.fixture
def first(claims):
    """Return the first of four ports in a row that no program uses."""
    ports = Ports(claims.with_name("others"))
    return next(port for port in iter(lambda: ports.take(1)[0], None) if unused(range(port, port + 4)))


def unused(ports):
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return False
    return True


def another(claims, first):
    """Return what another process is given of the four."""
    command = [sys.executable, "-c", _ANOTHER, str(claims), str(first)]
    return {int(port) for port in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()}


def test_reserved_ports_are_given_to_no_other_process(claims, first):
    ours = Ports(claims, range(first, first + 4)).take(2)
    assert len(set(ours)) == 2
    assert another(claims, first) == {*range(first, first + 4)} - {*ours}


def test_ports_of_a_process_that_ended_are_free_again(claims, first):
    assert another(claims, first) == another(claims, first) == {*range(first, first + 4)}


def test_a_port_in_use_is_never_given(claims, first):
    ports = Ports(claims, range(first, first + 4))
    with socket.create_server((HOST, first)):
        assert {*ports.take(2), *ports.take(2)} == {first + 1, first + 2, first + 3}
