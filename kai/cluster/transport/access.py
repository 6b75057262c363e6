"""The cluster and the user of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.errors import ConfigError, UnreachableError
from kai.cluster.transport.client import Account
from kai.cluster.transport.credentials import Credentials, Source
from kai.cluster.transport.kubeconfig import Context, read_contexts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.cluster.port import Clock

_MOST_NAMES: Final = 6


@attrs.frozen(kw_only=True)
class Access:
    """A cluster, by a context of a kubeconfig file, and a user."""

    kubeconfig: str = ""
    context: str = ""
    impersonated: str = ""

    @property
    def source(self) -> Source:
        """Where credentials come from."""
        return Source(kubeconfig=self.kubeconfig, context=self.context, impersonated=self.impersonated)

    @property
    def chosen(self) -> Context:
        """The context in effect; one without a name inside a pod."""
        return read_contexts(self.source.paths).find(self.context)

    async def account(self, clock: Clock, server: str = "") -> Account:
        """Return our account at the cluster, or at another ``server``; credentials are read once and reused.

        Another server gets no credentials if there are none: it may need none.
        Without the reuse, a command with two requests would wait twice for a credential plugin, for a second or more.

        Raises: ConfigError if there are no credentials.
        """
        source = attrs.evolve(self.source, server=server) if server else self.source
        if server and not source.paths and not source.is_in_pod:
            source = _Anonymous(server=server)
        key = self, server, source.paths, _written(source.paths)
        known = _KNOWN.get(key)
        if known is None:
            opened = await Account.open(source, clock)
            _KNOWN[key] = opened.credentials
            return opened
        return Account(source, clock, known)

    def check(self) -> None:
        """Raise if the settings lead to no cluster.

        Raises: UnreachableError without any kubeconfig, ConfigError for a context that no file has.
        """
        source = self.source
        if not source.paths and not source.is_in_pod:
            raise UnreachableError(
                "no cluster: found no kubeconfig, expected --kubeconfig, KUBECONFIG or ~/.kube/config"
            )
        contexts = read_contexts(source.paths)
        known = sorted(each.name for each in contexts.known)
        if self.context and known and self.context not in known:
            raise ConfigError.about("command line", "--context", found=self.context, wanted=_one_of(known))
        if not self.context and known and contexts.current not in known:
            found = contexts.current or None
            raise ConfigError.about(
                source.paths, "current-context", found=found, wanted=f"{_one_of(known)}, here or as --context"
            )

    @property
    def others(self) -> tuple[str, ...]:
        """Names of all contexts but the one in effect."""
        contexts = read_contexts(self.source.paths)
        taken = self.context or contexts.current
        return tuple(each.name for each in contexts.known if each.name != taken)


@attrs.frozen(kw_only=True)
class _Anonymous(Source):
    """No credentials: there is no kubeconfig, and the process runs in no pod."""

    def load(self) -> Credentials:
        """Return credentials with nothing but the address."""
        return Credentials(server=self.server.rstrip("/"))


def _one_of(names: Sequence[str]) -> str:
    """Return "one of" and the names; a file may have hundreds of contexts, so only as many as fit on a line."""
    more = len(names) - _MOST_NAMES
    tail = f" and {more} more" if more > 0 else ""
    return f"one of {', '.join(names[:_MOST_NAMES])}{tail}"


def _written(paths: str) -> tuple[float, ...]:
    """Return when files were last written: a user who signs in again has new credentials."""
    files = (Path(path).expanduser() for path in paths.split(os.pathsep) if path)
    return tuple(path.stat().st_mtime if path.is_file() else 0.0 for path in files)


_KNOWN: Final[dict[tuple[Access, str, str, tuple[float, ...]], Credentials]] = {}
"""Credentials that were read, by the access and the state of the files."""
