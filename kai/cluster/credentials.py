"""Who we are to which API server: from a kubeconfig file, or from what a pod finds in its files.

Everything is read anew every minute, and at once when the server does not know us any more: tokens are replaced every
hour, certificates now and then, and nobody restarts a process for that. Reading is blocking; it is done in a thread.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from kai.api.documents import load_documents
from kai.errors import ConfigError, InputError

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


@attrs.frozen(kw_only=True)
class Credentials:
    """What is needed to talk to an API server. PEM, where it is a certificate or a key."""

    server: str
    authority: str = attrs.field(default="", repr=False)
    is_insecure: bool = False
    server_name: str = ""
    authorization: str = attrs.field(default="", repr=False)
    """The header of this name."""
    certificate: str = attrs.field(default="", repr=False)
    key: str = attrs.field(default="", repr=False)
    foreign: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """The user of a kubeconfig file whose credentials another program or provider makes."""
    user: str = ""
    """What a kubeconfig file calls the user."""

    @property
    def account(self) -> str:
        """Return who we are, for people: the account that a token names, or else the user of the kubeconfig file."""
        return _subject_of(self.authorization) or self.user or "unknown"

    @property
    def tls(self) -> tuple[str, bool, str, str, str]:
        """Return what connections are made with; other values than before ask for new connections."""
        return self.authority, self.is_insecure, self.certificate, self.key, self.server_name

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return how connections are encrypted; None where they are not.

        Raises: ConfigError for certificates that are none.
        """
        if urlsplit(self.server).scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cadata=self.authority or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.is_insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate:
                _load_chain(context, self.certificate + "\n" + self.key)
        except (ssl.SSLError, ValueError) as error:
            wanted = "certificates and a key in PEM"
            raise ConfigError.about("credentials", "TLS", found=str(error), wanted=wanted) from None
        return context


@attrs.frozen(kw_only=True)
class Source:
    """Where credentials come from: a kubeconfig file if there is one, else the pod's own account.

    `server` overrides the address that the file has.
    """

    kubeconfig: str = ""
    context: str = ""
    server: str = ""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    account: Path = ACCOUNT_FOLDER

    def load(self) -> Credentials:
        """Return the credentials as they are now.

        Raises: ConfigError if there are none, or they cannot be read.
        """
        path = self.kubeconfig or self.environment.get("KUBECONFIG", "").split(os.pathsep)[0]
        if not path and not self.environment.get(_HOST):
            home = Path(self.environment.get("HOME", "/")) / ".kube" / "config"
            path = str(home) if home.is_file() else ""
        loaded = self._from_file(Path(path)) if path else self._from_pod()
        return attrs.evolve(loaded, server=self.server.rstrip("/")) if self.server else loaded

    def _from_pod(self) -> Credentials:
        host, port = self.environment.get(_HOST, ""), self.environment.get(_PORT, "")
        if not host or not port:
            wanted = f"a kubeconfig file, or {_HOST} and {_PORT} as every pod has them"
            raise ConfigError.about("credentials", "source", found=None, wanted=wanted)
        return Credentials(
            server=f"https://{_bracketed(host)}:{port}",
            authority=_text_of(self.account / "ca.crt"),
            authorization=_bearer(_text_of(self.account / "token")),
        )

    def _from_file(self, path: Path) -> Credentials:
        try:
            (config,) = load_documents(_text_of(path), str(path))
        except (InputError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from None
        chosen = self.context or str(config.get("current-context") or "")
        context = _named(config, "contexts", chosen, path).get("context")
        context = context if isinstance(context, Mapping) else {}
        cluster = _part(_named(config, "clusters", str(context.get("cluster") or ""), path), "cluster")
        user: Mapping[str, Any] = {}
        if context.get("user"):
            user = _part(_named(config, "users", str(context["user"]), path), "user")
        server = str(cluster.get("server") or "")
        if urlsplit(server).scheme not in {"http", "https"}:
            raise ConfigError.about(str(path), "clusters.server", found=server, wanted="an http or https address")
        return Credentials(
            server=server.rstrip("/"),
            authority=_material(cluster, "certificate-authority", path),
            is_insecure=bool(cluster.get("insecure-skip-tls-verify")),
            server_name=str(cluster.get("tls-server-name") or ""),
            authorization=_authorization(user, path),
            certificate=_material(user, "client-certificate", path),
            key=_material(user, "client-key", path),
            user=str(context.get("user") or ""),
            foreign={"path": str(path), "context": chosen} if user.keys() & {"exec", "auth-provider"} else None,
        )


def _authorization(user: Mapping[str, Any], path: Path) -> str:
    token = user.get("token")
    if isinstance(token, str) and token:
        return _bearer(token)
    if user.get("tokenFile"):
        return _bearer(_text_of(path.parent / str(user["tokenFile"])))
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _subject_of(authorization: str) -> str:
    """Return whom a token is about, as it says itself; empty where it does not."""
    parts = authorization.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return ""
    subject = claims.get("sub") if isinstance(claims, Mapping) else None
    return subject if isinstance(subject, str) and subject.isprintable() else ""


def _bearer(token: str) -> str:
    stripped = token.strip()
    if not stripped or not stripped.isascii() or any(char.isspace() for char in stripped):
        found = "an empty text" if not stripped else "a text that is none"
        raise ConfigError(f"credentials: token: found {found}, expected a token")
    return f"Bearer {stripped}"


def _material(section: Mapping[str, Any], name: str, path: Path) -> str:
    """Return PEM that stands in a file of this name, or in the section itself."""
    data, file = section.get(f"{name}-data"), section.get(name)
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise ConfigError(f"{path}: {name}-data: found no base64, expected PEM in base64") from None
    return _text_of(path.parent / str(file)) if file else ""


def _named(config: Mapping[str, Any], section: str, name: str, path: Path) -> Mapping[str, Any]:
    entries = config.get(section)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name:
            return entry
    raise ConfigError.about(str(path), section, found=name or None, wanted="the name of an entry of this list")


def _part(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = entry.get(name)
    return part if isinstance(part, Mapping) else {}


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise ConfigError(f"{path}: found {str(reason).lower()}, expected a readable file") from None


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


def _load_chain(context: ssl.SSLContext, text: str) -> None:
    """Load a certificate and its key, which the ssl module only takes from a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner alone
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name)
