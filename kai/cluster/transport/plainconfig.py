"""Kubeconfig files in which everything is written down: an address, certificates and a token, in the file or beside it.

`kai.cluster.transport.credentials` says why: the library that reads all kubeconfig files takes a third of a second to
import, which is most of what a command takes that asks one question. So nothing is judged here: what is unusual, or
wrong, is left to that library, and so is every program and identity provider.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kai.api.codec.manifest_text import load_values
from kai.errors import InputError

_OF_CLUSTER: Final = frozenset(
    {
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
    }
)
_OF_USER: Final = frozenset(
    {
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "tokenFile",
    }
)


@attrs.frozen(kw_only=True)
class Plain:
    """What a file says of one context. PEM, where it is a certificate or a key."""

    user: str
    server: str
    server_name: str
    is_insecure: bool
    authority: str = attrs.field(repr=False)
    certificate: str = attrs.field(repr=False)
    key: str = attrs.field(repr=False)
    token: str = attrs.field(repr=False)


class _UnusualError(Exception):
    """Something that the library has to read."""


def read_plain(paths: str, context: str) -> Plain | None:
    """Return what one file says of a context, the current one where none is named; None for everything unusual."""
    files = [path for path in paths.split(os.pathsep) if path]
    if len(files) != 1:
        return None
    path = Path(files[0]).expanduser()
    try:
        (document,) = load_values(path.read_bytes(), files[0])
        return _plain(_mapping(document), context, path.parent)
    except (OSError, InputError, ValueError, _UnusualError):
        return None


def _plain(document: Mapping[str, Any], context: str, folder: Path) -> Plain:
    chosen = _named(document, "contexts", "context", context or _text(document, "current-context"))
    user_name = _text(chosen, "user")
    cluster = _named(document, "clusters", "cluster", _text(chosen, "cluster"))
    user = _named(document, "users", "user", user_name)
    server = _text(cluster, "server")
    # Certificates of an address without encryption are of no use, and the library does not look at them.
    is_usual = server.startswith("https://") or (server.startswith("http://") and not _pems(cluster, user))
    if cluster.keys() - _OF_CLUSTER or user.keys() - _OF_USER or not is_usual:
        raise _UnusualError
    insecure = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool) or {"token", "tokenFile"} <= user.keys():
        raise _UnusualError
    token = (folder / _text(user, "tokenFile")).read_text() if "tokenFile" in user else user.get("token", "")
    if not isinstance(token, str) or ("token" in user and not token):
        raise _UnusualError
    found = Plain(
        user=user_name,
        server=server.rstrip("/"),
        server_name=_text(cluster, "tls-server-name") if "tls-server-name" in cluster else "",
        is_insecure=insecure,
        authority=_pem(cluster, "certificate-authority", folder),
        certificate=_pem(user, "client-certificate", folder),
        key=_pem(user, "client-key", folder),
        token=token.strip(),
    )
    if bool(found.certificate) != bool(found.key) or ({"token", "tokenFile"} & user.keys() and not found.token):
        raise _UnusualError
    return found


def _pems(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> bool:
    return any(key.startswith(("certificate-", "client-")) for key in (*cluster, *user))


def _named(document: Mapping[str, Any], key: str, part: str, name: str) -> Mapping[str, Any]:
    """Return the one entry of a list that has a name."""
    entries = document.get(key)
    found = [each for each in entries if _mapping(each).get("name") == name] if isinstance(entries, list) else []
    if len(found) != 1:
        raise _UnusualError
    return _mapping(found[0].get(part))


def _pem(fields: Mapping[str, Any], key: str, folder: Path) -> str:
    """Return what stands in a field in base64, or in the file that a field names; "" where there is neither."""
    written, beside = f"{key}-data" in fields, key in fields
    if written and beside:
        raise _UnusualError
    if not written and not beside:
        return ""
    try:
        text = (
            base64.b64decode(_text(fields, f"{key}-data"), validate=True).decode()
            if written
            else (folder / _text(fields, key)).read_text()
        )
    except (binascii.Error, UnicodeDecodeError):
        raise _UnusualError from None
    if not text.strip():
        raise _UnusualError
    return text


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _UnusualError
    return value


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise _UnusualError
    return value
