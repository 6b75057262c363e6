"""Credentials that other programs make. They are read in a thread, whose own event loop may block."""

import json

import anyio
import pytest

from kai.basics.errors import ConfigError
from kai.cluster.clock import SystemClock
from kai.cluster.transport.client import Account
from kai.cluster.transport.credentials import Source

VERSION = "client.authentication.k8s.io/v1"


def opened(folder, **command):
    """Return the account of a kubeconfig file whose user is made by a command."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": VERSION, "interactiveMode": "Never", **command}}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return anyio.run(Account.open, Source(kubeconfig=str(path)), SystemClock())


def test_what_a_program_says_is_used_as_the_token(tmp_path):
    status = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "made"}}
    account = opened(tmp_path, command="echo", args=[json.dumps(status)])
    assert account.credentials.authorization == "Bearer made"


@pytest.mark.parametrize(
    ("hint", "helps"),
    [
        ({}, "install it, or add the folder it is in to PATH; --context chooses another cluster and user"),
        ({"installHint": "Install it:\n  brew install no-such\n"}, "Install it: brew install no-such"),
        (
            {"installHint": " "},
            "install it, or add the folder it is in to PATH; --context chooses another cluster and user",
        ),
    ],
)
def test_a_missing_program_is_named_with_its_install_hint(tmp_path, hint, helps):
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, command="no-such-program", **hint)
    assert str(caught.value) == (
        f"{tmp_path}/kubeconfig: users.u.exec.command: found 'no-such-program', which was not found, "
        "expected a program that makes credentials"
    )
    assert caught.value.help == helps


def test_a_program_that_may_not_be_run_is_named(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match="program', which may not be run, expected a program") as caught:
        opened(tmp_path, command=str(program))
    assert caught.value.help == f"chmod +x {program}"


def test_a_failing_program_is_named_with_its_error_output(tmp_path):
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, command="sh", args=["-c", "echo 'please sign in {SECRET}' >&2; exit 3"])
    assert str(caught.value) == (
        f"{tmp_path}/kubeconfig: users.u.exec.command: found 'sh', which failed "
        "(process returned 3. please sign in), expected a program that makes credentials"
    )


def test_where_no_program_is_at_fault_the_file_is(tmp_path):
    with pytest.raises(ConfigError, match=r"kubeconfig: found nothing to use .*missing key 'command'"):
        opened(tmp_path)
