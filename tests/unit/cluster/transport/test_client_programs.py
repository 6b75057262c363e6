"""Credentials that other programs make. They are read in a thread, whose own event loop may block."""

import json

import anyio
import pytest

from kai.cluster.clock import SystemClock
from kai.cluster.transport.client import Account
from kai.cluster.transport.credentials import Source
from kai.errors import ConfigError

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


def test_a_program_that_fails_is_named(tmp_path):
    with pytest.raises(ConfigError, match="kubeconfig: "):
        opened(tmp_path, command="false")
