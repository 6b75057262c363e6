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
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from kai.admission.certificates import Pair, end_of, has_begun, hosts_of, make_pair, split
from kai.errors import InputError
from kai.lenient import mapping_of

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
