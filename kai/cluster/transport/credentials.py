"""Our credentials at an API server: from a kubeconfig file, or from the service account of a pod.

They are read again every minute, and at once when the server answers 401: tokens change every hour and certificates now
and then, and the process should not have to restart. Reading blocks, and runs an event loop of its own for credential
plugins: call it in a thread.

Source: kubernetes_asyncio reads kubeconfig files (contexts, merged files, tokens, certificates, plugins and identity
providers). It is loaded only if a file needs more than `kai.cluster.transport.kubeconfig` reads: its import takes a
third of a second and 34 MiB in every process, because of its generated models. A service account is two files, which
are read here.

The library's error messages contain the object around a missing field, which may be a user with a token. So its errors
are shown only up to the first object in them, and its log lines not at all.

`program_failed` explains why a credential plugin cannot run. Plugins are installed beside kubectl (``aws``,
``gke-gcloud-auth-plugin``, ``kubelogin``), so they are often missing where a kubeconfig file was copied.
The file itself is correct then, and needs no change.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
import json
import logging
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from kai.basics.errors import ConfigError, on_one_line
from kai.basics.parsing import mapping_of, text_of
from kai.basics.wording import found_by, shown
from kai.cluster.transport.kubeconfig import proxy_for, read_plain

_LONGEST: Final = 300
_INSTALL: Final = "install it, or add the folder it is in to PATH; --context chooses another cluster and user"


def program_failed(error: Exception, fields: object, field: str) -> ConfigError | None:
    """Return the error of a user's credential plugin; None if there is no plugin, or it is not at fault.

    ``fields`` are the fields of the user in a kubeconfig file, ``field`` is the path of the plugin's command there. The
    plugin's output is cut at the first object: it may contain a token.
    """
    program = mapping_of(fields, "exec")
    command = program.get("command")
    if not isinstance(command, str):
        return None
    wanted = "expected a program that makes credentials"
    if isinstance(error, OSError) and error.filename in {None, command}:
        if isinstance(error, FileNotFoundError):
            why, helps = "was not found", _hint(program)
        elif isinstance(error, PermissionError):
            why, helps = "may not be run", f"chmod +x {command}"
        else:
            why, helps = f"cannot be run ({_cut(str(error.strerror or error))})", ""
        return ConfigError(f"{field}: found {shown(command)}, which {why}, {wanted}", help=helps)
    words = str(error)
    if not words.startswith("exec: "):
        return None
    why = _cut(words.removeprefix("exec: ").partition("{")[0].strip())
    return ConfigError(f"{field}: found {shown(command)}, which failed ({why}), {wanted}")


def _hint(program: Mapping[str, Any]) -> str:
    """Return the file's own hint for installing the plugin, as kubectl does, or a general one."""
    hint = program.get("installHint")
    return _cut(hint) if isinstance(hint, str) and hint.strip() else _INSTALL


def _cut(text: str) -> str:
    words = on_one_line(" ".join(text.split()))
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"
_PROGRAM_TIMEOUT: Final = 60.0
"""Timeout of a credential plugin.

Units: seconds.
"""
_ANONYMOUS: Final = "without a user"
_LONGEST_REASON: Final = 300
_BEARER: Final = "Bearer "


@attrs.frozen(kw_only=True)
class Credentials:
    """Address, credentials and TLS settings for an API server. Certificates and keys in PEM."""

    server: str
    authority: str = attrs.field(default="", repr=False)
    is_insecure: bool = False
    server_name: str = ""
    authorization: str = attrs.field(default="", repr=False)
    """The Authorization header."""
    certificate: str = attrs.field(default="", repr=False)
    key: str = attrs.field(default="", repr=False)
    proxy: str = attrs.field(default="", repr=False)
    """The address of a proxy; it may contain a password."""
    user: str = ""
    """The name of the user in the kubeconfig file."""
    impersonated: str = ""
    """The impersonated user; "" for none."""

    @property
    def account(self) -> str:
        """Our name for messages: the account in the token, else the user of the kubeconfig file."""
        return _subject_of(self.authorization) or self.user or "unknown"

    @property
    def tls(self) -> tuple[str | bool, ...]:
        """The values that connections depend on; a change needs new connections."""
        way = self.server, self.server_name, self.proxy, self.impersonated
        return *way, self.authority, self.is_insecure, self.certificate, self.key

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None without TLS.

        Raises: ConfigError for invalid certificates.
        """
        if urlsplit(self.server).scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cadata=self.authority or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.is_insecure:
                # In this order: while `check_hostname` is set, the ssl module refuses CERT_NONE.
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
    """Where credentials come from: a kubeconfig file if there is one, else the service account of the pod.

    If the file has no proxy, the environment may set one. ``server`` overrides the address in the file;
    ``impersonated`` is the user to impersonate.
    """

    kubeconfig: str = ""
    context: str = ""
    server: str = ""
    impersonated: str = ""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    account: Path = ACCOUNT_FOLDER

    def load(self) -> Credentials:
        """Return the present credentials.

        Raises: ConfigError if there are none, or they cannot be read.
        """
        paths = self.paths
        loaded = (_from_plain(paths, self.context) or _from_files(paths, self.context)) if paths else self._from_pod()
        server = _address(self.server, "flags", "--server").rstrip("/") if self.server else loaded.server
        proxy = loaded.proxy or self._proxy_of_environment(server)
        return attrs.evolve(loaded, server=server, proxy=proxy, impersonated=self.impersonated)

    @property
    def paths(self) -> str:
        """The kubeconfig files in effect, in the form of KUBECONFIG; "" for a pod's service account."""
        paths = self.kubeconfig or self.environment.get("KUBECONFIG", "")
        # Inside a pod a file in the home folder is not meant: only one that is named replaces the service account.
        if not paths and not self.environment.get(_HOST):
            home = Path(self.environment.get("HOME", "/")) / ".kube" / "config"
            paths = str(home) if home.is_file() else ""
        return paths

    def _proxy_of_environment(self, server: str) -> str:
        name, found = proxy_for(server, self.environment)
        return _address(found, "environment", name) if found else ""

    @property
    def is_in_pod(self) -> bool:
        """Whether this process has the service account of a pod."""
        return bool(self.environment.get(_HOST) and self.environment.get(_PORT))

    def _from_pod(self) -> Credentials:
        host, port = self.environment.get(_HOST, ""), self.environment.get(_PORT, "")
        if not host or not port:
            raise ConfigError("no cluster: give --kubeconfig or set KUBECONFIG (this process does not run in a pod)")
        return Credentials(
            server=f"https://{_bracketed(host)}:{port}",
            authority=_text_of(self.account / "ca.crt"),
            authorization=_bearer(_text_of(self.account / "token")),
        )


def _from_plain(paths: str, context: str) -> Credentials | None:
    """Return the credentials of a file that needs no plugin or other feature of the library; None otherwise.

    Raises: ConfigError for an invalid address.
    """
    plain = read_plain(paths, context)
    # An unusable token is left to `_from_files`, which says what is wrong with it.
    if plain is None or not plain.token.isascii() or any(map(str.isspace, plain.token)):
        return None
    return Credentials(
        server=_address(plain.server, paths, "clusters.server"),
        authority=plain.authority,
        is_insecure=plain.is_insecure,
        server_name=plain.server_name,
        authorization=f"{_BEARER}{plain.token}" if plain.token else "",
        certificate=plain.certificate,
        key=plain.key,
        user=plain.user,
    )


def _from_files(paths: str, context: str) -> Credentials:
    """Return the credentials of a context; of the current one if ``context`` is empty.

    Raises: ConfigError.
    """
    each = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    if not any(path.exists() for path in each):
        # Raises, with the reason why the first file cannot be read: the library would only find nothing.
        _text_of(each[0] if each else Path(paths))
    try:
        user, found = asyncio.run(asyncio.wait_for(_read(paths, context), _PROGRAM_TIMEOUT))
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - files and programs of others fail in ways of their own
        wanted = "a kubeconfig file with a context, its cluster and its user"
        raise ConfigError(f"{paths}: found nothing to use ({_reason(error, paths)}), expected {wanted}") from None
    return Credentials(
        server=_address(found.host, paths, "clusters.server").rstrip("/"),
        authority=_material(found.ssl_ca_cert, "certificate-authority", paths),
        is_insecure=not found.verify_ssl,
        server_name=str(found.tls_server_name or ""),
        authorization=_authorization(str(found.api_key.get("BearerToken") or "")),
        certificate=_material(found.cert_file, "client-certificate", paths),
        key=_material(found.key_file, "client-key", paths),
        proxy=_address(found.proxy, paths, "clusters.proxy-url") if found.proxy else "",
        user=user,
    )


async def _read(paths: str, context: str) -> tuple[str, Any]:
    """Return the name of the user, and the library's configuration from the files."""
    from kubernetes_asyncio.client.configuration import Configuration  # noqa: PLC0415 - 34 MiB, see above
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger  # noqa: PLC0415 - as above

    logging.getLogger("kubernetes_asyncio").setLevel(logging.CRITICAL + 1)
    merged: Any = KubeConfigMerger(paths).config
    chosen = merged["contexts"].get_with_name(context or merged["current-context"])
    user = str(chosen["context"].safe_get("user") or "")
    fields: object = None
    if user:
        fields = merged["users"].get_with_name(user).safe_get("user")  # one that is missing would be anonymous
    else:  # the library reads certificates from a user even where there is none
        merged.value["users"].append({"name": _ANONYMOUS, "user": {}})
        chosen["context"].value["user"] = _ANONYMOUS
    configuration = Configuration(host="")
    loader = KubeConfigLoader(config_dict=merged, active_context=chosen["name"], config_base_path=None)
    try:
        await loader.load_and_set(configuration)
    except Exception as error:  # noqa: BLE001 - the library raises what programs and files of others make it
        failed = program_failed(error, fields, f"{paths}: users.{user}.exec.command")
        raise (failed or error) from None
    if text_of(fields, "tokenFile") and not configuration.api_key.get("BearerToken"):
        # The library would go on as an anonymous user, which has fewer rights.
        raise ConfigError(f"{paths}: users.{user}.tokenFile: found an empty file, expected one with a token")
    return user, configuration


def _address(found: object, subject: str, field: str) -> str:
    address = str(found or "")
    try:
        parts = urlsplit(address)
        # Reading the port raises ValueError if it is invalid.
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not address.isprintable() or " " in address:
        raise ConfigError.about(subject, field, found=_shown(address) or None, wanted="an http or https address")
    return address


def _shown(address: str) -> str:
    """Return an address without the user name and password in it."""
    scheme, mark, rest = address.rpartition("//")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _authorization(found: str) -> str:
    return _bearer(found.removeprefix("Bearer ")) if found.startswith("Bearer ") else found


def _material(path: str | None, field: str, paths: str) -> str:
    """Return the content of a PEM file that the configuration names."""
    text = _text_of(Path(path)) if path else ""
    if path and not text.strip():
        raise ConfigError.about(paths, field, found=None, wanted="PEM, in a file or in base64")
    return text


def _reason(error: Exception, paths: str) -> str:
    if isinstance(error, TimeoutError):
        return f"no credentials within {_PROGRAM_TIMEOUT:g} seconds"
    if isinstance(error, TypeError | AttributeError):  # the library's own words are about its code
        return "it is empty, or a part of it has another type"
    if isinstance(error, UnicodeDecodeError):
        return "it is no text"
    if isinstance(error, OSError):
        why = f"it is {found_by(error)}" if error.errno == errno.EISDIR else found_by(error)
        named = str(error.filename or "")  # a file that the first one names, as that of a token
        return f"{named}: {why}" if named and named not in paths.split(os.pathsep) else why
    words = " ".join(str(error).partition("{")[0].split())[:_LONGEST_REASON]
    # The library's own error is a sentence about the file; for other errors the type says more.
    if words and type(error).__name__ == "ConfigException":
        return words.removeprefix("Invalid kube-config file. ")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _subject_of(authorization: str) -> str:
    """Return the subject of a JWT; "" if it has none."""
    parts = authorization.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return ""
    try:
        # A JWT omits the padding that the decoder requires.
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return ""
    subject = text_of(claims, "sub")
    return subject if subject.isprintable() else ""


def _bearer(token: str) -> str:
    stripped = token.strip()
    # It becomes a header, which a line break would end.
    if not stripped or not stripped.isascii() or any(char.isspace() for char in stripped):
        found = "an empty text" if not stripped else "invalid text"
        raise ConfigError(f"credentials: token: found {found}, expected a token")
    return f"Bearer {stripped}"


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = found_by(error) if isinstance(error, OSError) else "no text"
        raise ConfigError(f"{path}: found {str(reason).lower()}, expected a readable file") from None


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


def _load_chain(context: ssl.SSLContext, text: str) -> None:
    """Load a certificate and its key; the ssl module only accepts files."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner alone
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name)
