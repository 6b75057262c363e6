"""When certificates of the webhooks are made, introduced, used and dropped, as a function of what a Secret holds.

A renewal takes four steps, so that no review fails on the way. Replicas and API servers learn of each step at their own
pace, and each step waits until the slowest has learnt of the one before:

1. *make*: there is no usable pair, so one is made and used at once. Nothing worked before that could fail.
2. *introduce*: the pair ends before long. A following one is made, and its authority joins the bundle that webhook
   configurations trust. All replicas still answer with the old certificate.
3. *promote*: every configuration has had the new authority for a while. Replicas begin to answer with the following
   pair, each when it looks at the Secret; the old certificate is trusted as before.
4. *retire*: every replica has looked since. The old authority leaves the bundle.

All replicas run this on the one Secret, and a write of it succeeds only for the version that was read: the first one
decides, the others look again and take what it wrote.

Carries rotation out: looks at the Secret, writes what is due, has webhook configurations trust it, answers with it.

A look reads the configurations *before* the Secret. So the bundle that a configuration is given is never older than
what another replica gave it before this look: a replica that was held up between the two finds the version of the
configuration changed, and its write is refused.
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

from kai.admission.certificates import Pair, context_of, end_of, has_begun, hosts_of, make_pair, split
from kai.api.kinds import declare
from kai.api.plans import Patch, Reason, Ref, Refusal
from kai.basics.parsing import mapping_of
from kai.cluster.port import Api, Clock
from kai.cluster.requests import Fetch
from kai.cluster.signals import CertificateUsed, Observe, unobserved
from kai.errors import ApiError, ConfigError, InputError

INTRODUCED: Final = "kai.scheduler/certificate-introduced"
PROMOTED: Final = "kai.scheduler/certificate-promoted"
"""Annotations of the Secret: seconds since the epoch."""

_ENDINGS: Final = ("crt", "key", "authority")
_DAY: Final = 86400.0
DEFAULT_LIFETIME: Final = 90 * _DAY

MakePair: TypeAlias = Callable[[Sequence[str], float, float], Pair]


@attrs.frozen(kw_only=True)
class Timing:
    """The times of a renewal, all from how long a certificate lasts. Units: seconds."""

    lifetime: float = attrs.field(default=DEFAULT_LIFETIME, validator=attrs.validators.ge(1.0))

    @property
    def renew_before(self) -> float:
        """Return how long before the end of a certificate the next one is introduced."""
        return self.lifetime / 3

    @property
    def pause(self) -> float:
        """Return how long a new authority is known, and learnt by API servers, before its certificate is used."""
        return min(300.0, self.lifetime / 20)

    @property
    def overlap(self) -> float:
        """Return how long an old authority is trusted after its certificate went out of use."""
        return min(3600.0, self.lifetime / 6)

    @property
    def look(self) -> float:
        """Return the time between two looks at the Secret; several fit into a pause."""
        return min(30.0, self.lifetime / 100)


class Step(enum.Enum):
    """A step of a renewal."""

    MAKE = "made"
    INTRODUCE = "introduced"
    PROMOTE = "promoted"
    RETIRE = "retired"


@attrs.frozen(kw_only=True)
class Held:
    """What a Secret holds; parts that cannot be read are not there."""

    serving: Pair | None = None
    following: Pair | None = None
    bundle: tuple[str, ...] = ()
    """The authorities that webhook configurations are to trust."""
    introduced: float = 0.0
    promoted: float = 0.0


def read_held(secret: Mapping[str, Any]) -> Held:
    """Return what a Secret holds."""
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
    """Return the patch that has a Secret of this version hold it."""
    annotations = {INTRODUCED: f"{held.introduced:.0f}", PROMOTED: f"{held.promoted:.0f}"}
    data: dict[str, str | None] = {"ca.crt": _encoded("".join(held.bundle))}
    for name, pair in (("tls", held.serving), ("next", held.following)):
        parts = (None, None, None) if pair is None else (pair.certificate, pair.key, pair.authority)
        for ending, text in zip(_ENDINGS, parts, strict=True):
            data[f"{name}.{ending}"] = None if text is None else _encoded(text)
    return {"metadata": {"resourceVersion": version, "annotations": annotations}, "data": data}


@attrs.frozen(kw_only=True)
class Rotation:
    """Decides on the next step."""

    hosts: tuple[str, ...]
    timing: Timing = Timing()
    make: MakePair = make_pair

    def step(self, held: Held, now: float, *, is_trusted: bool) -> tuple[Step, Held] | None:
        """Return the step that is due and what the Secret holds after it; None if none is.

        ``is_trusted`` says that every webhook configuration has just this bundle.
        """
        timing = self.timing
        serving, following = held.serving, held.following
        if serving is None or not self._is_good(serving, now, now + timing.pause):
            if following is not None and self._is_good(following, now, now + timing.renew_before):
                return Step.PROMOTE, self._promoted(held, following, now)
            return Step.MAKE, self._made(held, now)
        if following is None or not self._is_good(following, now, now + timing.pause):
            if not self._is_good(serving, now, now + timing.renew_before):
                return Step.INTRODUCE, self._introduced(held, now)
        elif is_trusted and now - held.introduced >= timing.pause:
            return Step.PROMOTE, self._promoted(held, following, now)
        kept = _bundle(serving, following)
        if set(held.bundle) != set(kept) and now - held.promoted >= timing.overlap:
            return Step.RETIRE, attrs.evolve(held, bundle=kept)
        return None

    def _is_good(self, pair: Pair, now: float, until: float) -> bool:
        """Return whether a pair is good from now until then, and is for the names that are asked for."""
        certificate = pair.certificate
        try:
            lasts = has_begun(certificate, now) and end_of(certificate) > until
            return lasts and set(self.hosts) <= hosts_of(certificate)
        except InputError:
            return False

    def _made(self, held: Held, now: float) -> Held:
        pair = self.make(self.hosts, now, self.timing.lifetime)
        # Other replicas answer with what they have until they look.
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
    """Return the authorities that have not ended: one that cannot be read would spoil the whole bundle."""
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
    return float(text) if isinstance(text, str) and text.isdecimal() and len(text) < 16 else 0.0


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
        trusted = _in_base64(bundle)
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
    wanted = _in_base64(bundle)
    hooks = configuration.get("webhooks") or ()
    return all((each.get("clientConfig") or {}).get("caBundle") == wanted for each in hooks)


def _in_base64(bundle: Sequence[str]) -> str:
    return base64.b64encode("".join(bundle).encode()).decode()


def _version(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("resourceVersion") or "")
