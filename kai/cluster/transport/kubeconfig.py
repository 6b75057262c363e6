"""Reads plain kubeconfig files, lists contexts, and finds the proxy of a server.

`read_plain` reads files that hold everything: address, certificates and token, in the file or beside it. The library
that reads all kubeconfig files takes a third of a second to import, which is most of the time of a command with one
request (see `kai.cluster.transport.credentials`). So this module reports no errors: it leaves unusual or invalid files,
and all plugins and identity providers, to that library.

`read_contexts` returns the contexts by which users choose a cluster. They hold no secrets.

`proxy_for` follows HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Python's own reading (urllib) does not support networks in
NO_PROXY, by which clusters are usually excepted.

Source: golang.org/x/net/http/httpproxy, with which kubectl and KAI-Scheduler find their proxies.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from kai.api.codec.manifest_text import load_values
from kai.basics.errors import InputError
from kai.basics.parsing import mappings_of, text_of


@attrs.frozen(kw_only=True)
class Context:
    """Name and namespace of a context; `kai.cluster.transport.credentials` reads its cluster and user."""

    name: str
    namespace: str = ""


@attrs.frozen(kw_only=True)
class Contexts:
    """The contexts of all files, and the name of the current one."""

    known: tuple[Context, ...] = ()
    current: str = ""

    def find(self, name: str = "") -> Context:
        """Return the context of a name, or the current one; one with nothing but a name if it does not exist."""
        wanted = name or self.current
        return next((each for each in self.known if each.name == wanted), Context(name=wanted))


def read_contexts(paths: str) -> Contexts:
    """Return the contexts of files in the form of KUBECONFIG; unreadable files have none.

    Holds: the first file with a value takes precedence, as for kubectl.
    """
    known: dict[str, Context] = {}
    current = ""
    for document in _documents(paths):
        for name, fields in _contexts(document):
            known.setdefault(name, Context(name=name, namespace=text_of(fields, "namespace")))
        current = current or text_of(document, "current-context")
    return Contexts(known=tuple(known.values()), current=current)


def _documents(paths: str) -> Iterator[Mapping[str, Any]]:
    for path in paths.split(os.pathsep):
        try:
            values = load_values(Path(path).expanduser().read_bytes(), path) if path else ()
        except (OSError, InputError):
            continue
        yield from (value for value in values[:1] if isinstance(value, Mapping))


def _contexts(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in mappings_of(document, "contexts"):
        if isinstance(entry.get("context"), Mapping):
            yield text_of(entry, "name"), entry["context"]


_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_PORTS: Final = {"http": 80, "https": 443}


def proxy_for(server: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the variable that sets the proxy of a server, and its address; "" without a proxy."""
    at = urlsplit(server)
    name, found = _variable(environment, f"{at.scheme}_proxy")
    excepted = _variable(environment, "no_proxy")[1]
    if not found or _is_excepted(at.hostname or "", at.port or _PORTS[at.scheme], excepted):
        return name, ""
    # Go reads a proxy without a scheme as http.
    return name, found if "://" in found else f"http://{found}"


def _variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the spelling in which a variable is set, and its value; capitals take precedence."""
    return next(((each, environment[each]) for each in (name.upper(), name) if environment.get(each)), (name, ""))


def _is_excepted(host: str, port: int, excepted: str) -> bool:
    address = _address(host)
    # Go sends no request for the own host to a proxy, whatever NO_PROXY says.
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_covers(entry.strip().lower(), host, port, address) for entry in excepted.split(","))


def _covers(entry: str, host: str, port: int, address: _Address | None) -> bool:
    """Return whether an entry of NO_PROXY matches a host.

    An entry is ``*``, a network, an address or a domain, with or without a port. A domain also matches the hosts below
    it; with a leading dot it matches only these.
    """
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _holds(entry, address)
    name, colon, number = entry.rpartition(":")
    has_port = bool(colon) and number.isdecimal() and (":" not in name or name.endswith("]"))
    if has_port and int(number) != port:
        return False
    name = (name if has_port else entry).strip("[]").removeprefix("*")
    if (alone := _address(name)) is not None:
        return alone == address
    return bool(name) and (host == name or host.endswith(f".{name.removeprefix('.')}"))


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _holds(network: str, address: _Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


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
    """The values of one context. Certificates and keys in PEM."""

    user: str
    server: str
    server_name: str
    is_insecure: bool
    authority: str = attrs.field(repr=False)
    certificate: str = attrs.field(repr=False)
    key: str = attrs.field(repr=False)
    token: str = attrs.field(repr=False)


class _UnusualError(Exception):
    """The file has something that only the library reads."""


def read_plain(paths: str, context: str) -> Plain | None:
    """Return the values of a context, or of the current one, from a single file; None for anything unusual."""
    files = [path for path in paths.split(os.pathsep) if path]
    if len(files) != 1:
        return None
    path = Path(files[0]).expanduser()
    try:
        # Several documents raise ValueError here, and are left to the library.
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
    # Without TLS certificates have no effect, and the library does not check them.
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
    """Return the only entry with a name in a list."""
    entries = document.get(key)
    found = [each for each in entries if _mapping(each).get("name") == name] if isinstance(entries, list) else []
    if len(found) != 1:
        raise _UnusualError
    return _mapping(found[0].get(part))


def _pem(fields: Mapping[str, Any], key: str, folder: Path) -> str:
    """Return a base64 field, or the content of the file that a field names; "" if both are absent."""
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
