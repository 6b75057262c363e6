"""Rotation of the webhook certificate: the next step as a function of the Secret, and the loop that carries it out.

A renewal takes four steps, so that no review fails on the way. Replicas and API servers learn of each step at their own
pace, and each step waits until the slowest has learnt of the one before:

1. *make*: there is no usable pair, so one is made and used at once. Nothing worked before that could fail.
2. *introduce*: the pair expires soon. The next pair is made, and its authority joins the bundle that webhook
   configurations trust. All replicas still serve the old certificate.
3. *promote*: every configuration has had the new authority for a while. Replicas begin to serve the next
   pair, each when it reads the Secret; the old certificate is still trusted.
4. *retire*: every replica has read the Secret since. The old authority leaves the bundle.

All replicas run this on the one Secret. A write of it succeeds only for the version that was read: the first replica
decides, and the others read again and adopt its result.

The loop reads the Secret, writes the due step, puts the bundle into the webhook configurations and serves the
certificate. It reads the configurations *before* the Secret. So the bundle that a configuration gets is never older
than one that another replica wrote before this read: a replica that was delayed between the two finds the
configuration's version changed, and its write is refused.
"""

from __future__ import annotations

import base64
import binascii
import enum
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio
import attrs
import structlog

from kai.api.kinds import declare
from kai.api.plans import Patch, Reason, Ref, Refusal
from kai.basics.errors import ApiError, ConfigError, InputError
from kai.basics.parsing import mapping_of
from kai.cluster.port import Api, Clock
from kai.cluster.requests import Fetch
from kai.cluster.signals import CertificateUsed, Observe, unobserved
from kai.roles.admission.certificates import Pair, context_of, end_of, has_begun, hosts_of, make_pair, split

INTRODUCED: Final = "kai.scheduler/certificate-introduced"
PROMOTED: Final = "kai.scheduler/certificate-promoted"
"""Annotations of the Secret with the times of these steps, in seconds since the epoch."""

_ENDINGS: Final = ("crt", "key", "authority")
_DAY: Final = 86400.0
DEFAULT_LIFETIME: Final = 90 * _DAY

MakePair: TypeAlias = Callable[[Sequence[str], float, float], Pair]


@attrs.frozen(kw_only=True)
class Timing:
    """The times of a renewal, all derived from the lifetime of a certificate. Units: seconds."""

    lifetime: float = attrs.field(default=DEFAULT_LIFETIME, validator=attrs.validators.ge(1.0))

    @property
    def renew_before(self) -> float:
        """Return how long before the end of a certificate the next one is introduced."""
        return self.lifetime / 3

    @property
    def pause(self) -> float:
        """Return how long API servers have to learn a new authority before its certificate is used."""
        return min(300.0, self.lifetime / 20)

    @property
    def overlap(self) -> float:
        """Return how long an old authority is trusted after its certificate went out of use."""
        return min(3600.0, self.lifetime / 6)

    @property
    def look(self) -> float:
        """Return the interval between reads of the Secret; several fit into a pause."""
        return min(30.0, self.lifetime / 100)


class Step(enum.Enum):
    """A step of a renewal."""

    MAKE = "made"
    INTRODUCE = "introduced"
    PROMOTE = "promoted"
    RETIRE = "retired"


@attrs.frozen(kw_only=True)
class Held:
    """The contents of the Secret; unreadable parts are absent."""

    serving: Pair | None = None
    following: Pair | None = None
    bundle: tuple[str, ...] = ()
    """The authorities that webhook configurations should trust."""
    introduced: float = 0.0
    promoted: float = 0.0


def read_held(secret: Mapping[str, Any]) -> Held:
    """Return the contents of a Secret."""
    data = mapping_of(secret, "data")
    annotations = mapping_of(secret, "metadata", "annotations")
    return Held(
        serving=_pair(data, "tls"),
        following=_pair(data, "next"),
        bundle=split(_text(data, "ca.crt")),
        introduced=_moment(annotations.get(INTRODUCED)),
        promoted=_moment(annotations.get(PROMOTED)),
    )


def patch_of(held: Held, version: str) -> dict[str, Any]:
    """Return the patch that writes ``held`` into a Secret of this version."""
    annotations = {INTRODUCED: f"{held.introduced:.0f}", PROMOTED: f"{held.promoted:.0f}"}
    data: dict[str, str | None] = {"ca.crt": _encoded("".join(held.bundle))}
    for name, pair in (("tls", held.serving), ("next", held.following)):
        parts = (None, None, None) if pair is None else (pair.certificate, pair.key, pair.authority)
        for ending, text in zip(_ENDINGS, parts, strict=True):
            # In a merge patch null removes the key.
            data[f"{name}.{ending}"] = None if text is None else _encoded(text)
    # With the version, since of several replicas only one may carry out a step.
    return {"metadata": {"resourceVersion": version, "annotations": annotations}, "data": data}


@attrs.frozen(kw_only=True)
class Rotation:
    """Decides on the next step of a renewal."""

    hosts: tuple[str, ...]
    timing: Timing = Timing()
    make: MakePair = make_pair

    def step(self, held: Held, now: float, *, is_trusted: bool) -> tuple[Step, Held] | None:
        """Return the due step and the contents of the Secret after it; None if no step is due.

        ``is_trusted``: every webhook configuration has exactly this bundle.
        """
        timing = self.timing
        serving, following = held.serving, held.following
        if serving is None or not self._is_good(serving, now, now + timing.pause):
            # The authority of the next pair is in the bundle already. That of a new pair no configuration would trust
            # yet.
            if following is not None and self._is_good(following, now, now + timing.renew_before):
                return Step.PROMOTE, self._promoted(held, following, now)
            return Step.MAKE, self._made(held, now)
        if following is None or not self._is_good(following, now, now + timing.pause):
            if not self._is_good(serving, now, now + timing.renew_before):
                return Step.INTRODUCE, self._introduced(held, now)
        # The pause after the write: an API server may still use the configuration that it has in memory.
        elif is_trusted and now - held.introduced >= timing.pause:
            return Step.PROMOTE, self._promoted(held, following, now)
        kept = _bundle(serving, following)
        # Replicas read the Secret in intervals. Until the slowest has, it serves the old certificate, which must be
        # trusted.
        if set(held.bundle) != set(kept) and now - held.promoted >= timing.overlap:
            return Step.RETIRE, attrs.evolve(held, bundle=kept)
        return None

    def _is_good(self, pair: Pair, now: float, until: float) -> bool:
        """Return whether a pair is valid from ``now`` to ``until``, for the configured host names."""
        certificate = pair.certificate
        try:
            lasts = has_begun(certificate, now) and end_of(certificate) > until
            return lasts and set(self.hosts) <= hosts_of(certificate)
        except InputError:
            return False

    def _made(self, held: Held, now: float) -> Held:
        pair = self.make(self.hosts, now, self.timing.lifetime)
        # Other replicas serve their present certificate until they read the Secret.
        trusted = (*_lasting(held.bundle, now), pair.authority)
        return Held(serving=pair, bundle=trusted, introduced=now, promoted=now)

    def _introduced(self, held: Held, now: float) -> Held:
        pair = self.make(self.hosts, now, self.timing.lifetime)
        trusted = (*_lasting(held.bundle, now), pair.authority)
        return attrs.evolve(held, following=pair, bundle=trusted, introduced=now)

    def _promoted(self, held: Held, following: Pair, now: float) -> Held:
        return attrs.evolve(held, serving=following, following=None, promoted=now)


def _bundle(*pairs: Pair | None) -> tuple[str, ...]:
    return tuple(pair.authority for pair in pairs if pair is not None)


def _lasting(bundle: Sequence[str], now: float) -> tuple[str, ...]:
    """Return the authorities that have not expired; an unreadable one is dropped, as it would spoil the bundle."""
    return tuple(each for each in bundle if _ends_after(each, now))


def _ends_after(pem: str, now: float) -> bool:
    try:
        return end_of(pem) > now
    except InputError:
        return False


def _pair(data: Mapping[str, Any], name: str) -> Pair | None:
    certificate, key, authority = (_text(data, f"{name}.{ending}") for ending in _ENDINGS)
    return Pair(certificate=certificate, key=key, authority=authority) if certificate and key and authority else None


def _text(data: Mapping[str, Any], name: str) -> str:
    try:
        return base64.b64decode(data.get(name) or "", validate=True).decode("ascii")
    except (TypeError, ValueError, binascii.Error):
        return ""


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _moment(text: object) -> float:
    # Of very many digits the float would be infinite, and no step would be due any more.
    return float(text) if isinstance(text, str) and text.isdecimal() and len(text) < 16 else 0.0


CONFIGURATIONS: Final = (
    ("MutatingWebhookConfiguration", "kai-pod-mutation"),
    ("MutatingWebhookConfiguration", "kai-user-notes"),
    ("ValidatingWebhookConfiguration", "kai-pod-validation"),
    ("ValidatingWebhookConfiguration", "kai-queue-validation-v2"),
    ("ValidatingWebhookConfiguration", "kai-podgroup-validation-v2alpha2"),
    ("ValidatingWebhookConfiguration", "kai-topology-validation-v1alpha1"),
)
"""The webhook configurations that `deploy` ships, and that trust these certificates."""

_REGISTRATION: Final = "admissionregistration.k8s.io/v1"
_AGAIN: Final = 1.0
"""Seconds until the next read after another replica was first, or after a refused request."""


class LookFailedError(ApiError):
    """The API server refused a request of one look; the message has the request and the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


@attrs.define
class RotatedCertificate:
    """The certificate in a Secret, as it was last read."""

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
        """Return the server's TLS context, once it is ready.

        Raises: ConfigError before that.
        """
        if self._context is None:
            raise ConfigError(f"webhooks: certificate: found none ({self._problem}), expected one")
        return self._context

    def problem(self) -> str:
        """Return why there is no certificate to serve; "" if there is one."""
        return self._problem if self._context is None else ""

    def note(self) -> str:
        """Return why the last look failed; "" if it did not fail."""
        return self._problem

    async def ready(self) -> None:
        """Wait until there is a certificate to serve."""
        await self._ready.wait()

    async def keep(self) -> None:
        """Look in intervals, until cancelled."""
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
        """Carry out the due step; return whether no further step is due at once.

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
            return False  # the Secret has changed, by this replica or another, so it is read again
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
        """Return the webhook configurations that exist."""
        found = [await self._read(_REGISTRATION, kind, name) for kind, name in CONFIGURATIONS]
        return [each for each in found if each is not None]

    async def _have_trust(self, configuration: Mapping[str, Any], bundle: Sequence[str]) -> None:
        kind, name = configuration["kind"], configuration["metadata"]["name"]
        cls = declare(_REGISTRATION, kind, f"{kind.lower()}s", namespaced=False)
        trusted = _in_base64(bundle)
        patch = {
            "metadata": {"resourceVersion": _version(configuration)},
            "webhooks": [
                {"name": hook["name"], "clientConfig": {"caBundle": trusted}} for hook in configuration["webhooks"]
            ],
        }
        # A strategic patch merges webhooks by name; a merge patch would replace the list.
        reply = await self.api.perform(Patch(ref=Ref(cls, name), patch=patch, form="strategic"))
        # Another replica was first, or the configuration is gone: the next look, a moment later, finds out.
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
    wanted = _in_base64(bundle)
    hooks = configuration.get("webhooks") or ()
    return all((each.get("clientConfig") or {}).get("caBundle") == wanted for each in hooks)


def _in_base64(bundle: Sequence[str]) -> str:
    return base64.b64encode("".join(bundle).encode()).decode()


def _version(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("resourceVersion") or "")
