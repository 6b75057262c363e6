"""Kubeconfig files that are read without the library: to the same credentials, or not at all."""

import base64
import json

import pytest

from kai.cluster.transport import credentials
from kai.cluster.transport.credentials import Source
from kai.cluster.transport.kubeconfig import read_plain

PEM = "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()
CERTIFICATE = {"client-certificate-data": DATA, "client-key": "key.pem"}


def written(folder, *, user=None, cluster=None, **changed):
    """Write a kubeconfig file with relative and absolute paths beside it; return its path."""
    (folder / "key.pem").write_text(PEM)
    (folder / "token").write_text("of-a-file\n")
    (folder / "empty").write_text("")
    config = {
        "current-context": "c",
        "contexts": [
            {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ml"}},
            {"name": "d", "context": {"cluster": "k", "user": "v"}},
            {"name": "nobody", "context": {"cluster": "k"}},
        ],
        "clusters": [{"name": "k", "cluster": {"server": "https://there:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}, {"name": "v", "user": {"token": "v"}}],
        **changed,
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return str(path)


def by_library(path, monkeypatch, context=""):
    monkeypatch.setattr(credentials, "read_plain", lambda *_: None)
    return Source(kubeconfig=path, context=context, environment={}).load()


@pytest.mark.parametrize(
    "given",
    [
        {"user": {"token": "abc"}},
        {"user": {"token": "abc"}, "cluster": {"server": "http://127.0.0.1:8080"}},
        {"user": {"tokenFile": "token"}, "cluster": {"certificate-authority": "key.pem"}},
        {"user": CERTIFICATE, "cluster": {"certificate-authority-data": DATA, "tls-server-name": "api"}},
        {"user": {"token": "abc", **CERTIFICATE}, "cluster": {"insecure-skip-tls-verify": True}},
        {"context": "d"},
        {},
    ],
    ids=str,
)
def test_a_plain_file_gives_the_librarys_credentials(tmp_path, monkeypatch, given):
    context = given.get("context", "")
    path = written(tmp_path, **{key: value for key, value in given.items() if key != "context"})
    assert read_plain(path, context) is not None
    found = Source(kubeconfig=path, context=context, environment={}).load()
    assert found == by_library(path, monkeypatch, context)


@pytest.mark.parametrize(
    "given",
    [
        {"user": {"exec": {"command": "aws"}}},
        {"user": {"auth-provider": {"name": "oidc"}}},
        {"user": {"username": "a", "password": "b"}},
        {"user": {"token": "abc", "tokenFile": "token"}},
        {"user": {"token": ""}},
        {"user": {"tokenFile": "empty"}},
        {"user": {"tokenFile": "missing"}},
        {"user": {"client-certificate": "key.pem"}},
        {"user": {"client-key-data": "%%%", "client-certificate": "key.pem"}},
        {"cluster": {"proxy-url": "http://proxy:3128"}},
        {"cluster": {"server": "ftp://there"}},
        {"cluster": {"server": "http://there", "certificate-authority": "key.pem"}},
        {"cluster": {"certificate-authority": "empty"}},
        {"cluster": {"insecure-skip-tls-verify": "true"}},
        {"clusters": []},
        {"users": "none"},
        {"contexts": [{"name": "c"}]},
        {"context": "nobody"},
        {"context": "missing"},
    ],
    ids=str,
)
def test_everything_else_is_left_to_the_library(tmp_path, given):
    path = written(tmp_path, **{key: value for key, value in given.items() if key != "context"})
    assert read_plain(path, given.get("context", "")) is None


@pytest.mark.parametrize("text", ["", "[]", "{", "a: 1\n---\nb: 2", "- 1"])
def test_an_invalid_file_is_left_to_the_library(tmp_path, text):
    (tmp_path / "config").write_text(text)
    assert read_plain(str(tmp_path / "config"), "") is None
    assert read_plain(str(tmp_path / "missing"), "") is None
    assert read_plain(f"{tmp_path / 'config'}:{tmp_path / 'other'}", "") is None


def test_no_secret_is_shown(tmp_path):
    assert "abc" not in repr(read_plain(written(tmp_path, user={"token": "abc"}), ""))
