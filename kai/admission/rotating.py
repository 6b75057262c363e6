"""Carries rotation out: looks at the Secret, writes what is due, has webhook configurations trust it, answers with it.

A look reads the configurations *before* the Secret. So the bundle that a configuration is given is never older than
what another replica gave it before this look: a replica that was held up between the two finds the version of the
configuration changed, and its write is refused.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import attrs
import structlog

from kai.admission.certificates import Pair, context_of, end_of
from kai.admission.rotation import Held, Rotation, patch_of, read_held
from kai.api.plans import Patch, Reason, Ref, Refusal
from kai.api.plugin_kinds import declare
from kai.cluster.port import Api, Clock
from kai.cluster.requests import Fetch
from kai.cluster.signals import CertificateUsed, Observe, unobserved
from kai.errors import ApiError, ConfigError

CONFIGURATIONS: Final = (
    ("MutatingWebhookConfiguration", "kai-pod-mutation"),
    ("ValidatingWebhookConfiguration", "kai-pod-validation"),
    ("ValidatingWebhookConfiguration", "kai-queue-validation-v2"),
    ("ValidatingWebhookConfiguration", "kai-podgroup-validation-v2alpha2"),
    ("ValidatingWebhookConfiguration", "kai-topology-validation-v1alpha1"),
)
"""The webhook configurations that `deploy` ships, and that trust what is made here."""

_REGISTRATION: Final = "admissionregistration.k8s.io/v1"
_AGAIN: Final = 1.0
"""Seconds until the next look where another replica was first, or where something was refused."""


class LookFailedError(ApiError):
    """What a look needed was refused; the message says what, and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


@attrs.define
class RotatedCertificate:
    """The certificate of a Secret, as it was at the last look."""

    api: Api
    clock: Clock
    namespace: str
    name: str
    rotation: Rotation
    observe: Observe = unobserved
    _context: ssl.SSLContext | None = None
    _pair: Pair | None = None
    _problem: str = "no certificate was looked for yet"
    _ready: anyio.Event = attrs.field(factory=anyio.Event)

    @property
    def context(self) -> ssl.SSLContext:
        """Return what the server answers with, once it is ready.

        Raises: ConfigError before that.
        """
        if self._context is None:
            raise ConfigError(f"webhooks: certificate: found none ({self._problem}), expected one")
        return self._context

    def problem(self) -> str:
        """Return why there is no certificate to answer with; "" if there is one."""
        return self._problem if self._context is None else ""

    def note(self) -> str:
        """Return why the last look failed; "" if it did not."""
        return self._problem

    async def ready(self) -> None:
        """Wait until there is a certificate to answer with."""
        await self._ready.wait()

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                is_settled = await self.look()
            except LookFailedError as error:
                if str(error) != self._problem:
                    structlog.get_logger().warning("certificate not renewed", why=str(error))
                self._problem, is_settled = str(error), False
            timing = self.rotation.timing
            await self.clock.sleep(timing.look if is_settled else min(_AGAIN, timing.look))

    async def look(self) -> bool:
        """Do what is due; return whether nothing is left to be done at once.

        Raises: LookFailedError if the Secret or a configuration cannot be read or written.
        """
        configurations = await self._configurations()
        secret = await self._read("v1", "Secret", self.name, self.namespace)
        if secret is None:
            place = f"Secret {self.namespace}/{self.name}"
            raise LookFailedError(f"{place}: found none, expected the empty one that the installation brings")
        held = read_held(secret)
        is_trusted = all(_trusts(each, held.bundle) for each in configurations)
        due = self.rotation.step(held, self.clock.now(), is_trusted=is_trusted)
        if due is not None:
            step, wanted = due
            if await self._write(patch_of(wanted, _version(secret))):
                self._answer_with(wanted)
                structlog.get_logger().info("certificate", step=step.value, secret=f"{self.namespace}/{self.name}")
            return False  # what the Secret holds now is looked at, also where another replica was first
        self._answer_with(held)
        stale = [each for each in configurations if not _trusts(each, held.bundle)]
        for each in stale:
            await self._have_trust(each, held.bundle)
        self._problem = ""
        return not stale

    # --- The Secret ------------------------------------------------------------------------------------------------

    async def _write(self, patch: Mapping[str, Any]) -> bool:
        """Write the Secret, if it still has the version that was read; return whether it was written."""
        cls = declare("v1", "Secret", "secrets", namespaced=True)
        reply = await self.api.perform(Patch(ref=Ref(cls, self.name, self.namespace), patch=patch))
        if isinstance(reply, Refusal) and reply.reason is not Reason.CONFLICT:
            raise LookFailedError(f"Secret {self.namespace}/{self.name}: not written: {reply.why}")
        return not isinstance(reply, Refusal)

    def _answer_with(self, held: Held) -> None:
        if held.serving is None or held.serving == self._pair:
            return
        try:
            self._context = context_of(held.serving)
        except ConfigError as error:
            raise LookFailedError(str(error)) from None
        self._pair = held.serving
        self.observe(CertificateUsed(end_of(held.serving.certificate)))
        self._ready.set()

    # --- Webhook configurations ------------------------------------------------------------------------------------

    async def _configurations(self) -> Sequence[Mapping[str, Any]]:
        """Return those that exist."""
        found = [await self._read(_REGISTRATION, kind, name) for kind, name in CONFIGURATIONS]
        return [each for each in found if each is not None]

    async def _have_trust(self, configuration: Mapping[str, Any], bundle: Sequence[str]) -> None:
        kind, name = configuration["kind"], configuration["metadata"]["name"]
        cls = declare(_REGISTRATION, kind, f"{kind.lower()}s", namespaced=False)
        trusted = _encoded(bundle)
        patch = {
            "metadata": {"resourceVersion": _version(configuration)},
            "webhooks": [
                {"name": hook["name"], "clientConfig": {"caBundle": trusted}} for hook in configuration["webhooks"]
            ],
        }
        reply = await self.api.perform(Patch(ref=Ref(cls, name), patch=patch, form="strategic"))
        # Another replica was first, or the configuration is gone: the next look, a moment later, tells.
        if isinstance(reply, Refusal) and reply.reason not in {Reason.CONFLICT, Reason.NOT_FOUND}:
            raise LookFailedError(f"{kind} {name}: not written: {reply.why}")

    # --- The API server --------------------------------------------------------------------------------------------

    async def _read(self, api_version: str, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        reply = await self.api.perform(Fetch(api_version=api_version, kind=kind, name=name, namespace=namespace))
        if isinstance(reply, Refusal):
            if reply.reason is Reason.NOT_FOUND:
                return None
            raise LookFailedError(f"{kind} {name}: not read: {reply.why}")
        found: Mapping[str, Any] = {"kind": kind, **reply}
        return found


def _trusts(configuration: Mapping[str, Any], bundle: Sequence[str]) -> bool:
    wanted = _encoded(bundle)
    hooks = configuration.get("webhooks") or ()
    return all((each.get("clientConfig") or {}).get("caBundle") == wanted for each in hooks)


def _encoded(bundle: Sequence[str]) -> str:
    return base64.b64encode("".join(bundle).encode()).decode()


def _version(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("resourceVersion") or "")
