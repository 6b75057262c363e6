"""Workload annotations for simulations: when a workload arrives and how it behaves. Clusters ignore them.

    simulation.kai.scheduler/arrival: 45m | 2026-01-31T12:00:00Z | poisson(rate=4/h, count=20)
    duration: 2h30m | lognormal(median=1h, p95=6h)
    startup, checkpoint-every, fails-at: 10m
    restarts: "3"
    replicas: 0h:1, 1h:6, 8h:2

Each purpose has a random generator of its own, so that drawing for one does not change the numbers of another. A
generator is seeded with a text, because the hash that ``random.Random`` takes of it is the same on every machine.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import exp, inf, log
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import values as times
from kai.api.values import BadValue
from kai.basics import parsing
from kai.basics.parsing import mapping_of
from kai.basics.wording import shown

if TYPE_CHECKING:
    from kai.manifests.findings import Document, Finding, Path

_P95: Final = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""


def generator(seed: int, *purpose: str) -> random.Random:
    """Return the random generator for one purpose of one run."""
    return random.Random("/".join((str(seed), *purpose)))  # noqa: S311 - it repeats, which a secret must not


def exponential(numbers: random.Random, mean: float) -> float:
    """Return a random interval between two independent events."""
    return -mean * log(1.0 - numbers.random())


def lognormal(numbers: random.Random, median: float, p95: float) -> float:
    """Return a log-normal time, with the distribution given by its median and its 95th percentile."""
    sigma = log(p95 / median) / _P95
    return median * exp(sigma * numbers.gauss(0.0, 1.0))


DOMAIN: Final = "simulation.kai.scheduler/"
NAMES: Final = ("arrival", "duration", "startup", "checkpoint-every", "fails-at", "restarts", "replicas")
MOST_ARRIVALS: Final = 1_000_000
_CALL: Final = re.compile(r"(poisson|lognormal)\(\s*(.*?)\s*\)")
_RATE: Final = re.compile(r"([0-9.]+)\s*/\s*(s|m|h|d|w)")

WANTED_ARRIVAL: Final = "45m after the start, a time such as 2026-01-31T12:00:00Z, or poisson(rate=4/h, count=20)"
WANTED_DURATION: Final = "a duration such as 2h30m, or lognormal(median=1h, p95=6h)"
WANTED_STEPS: Final = "steps such as 0h:1, 1h:6, 8h:2"


@attrs.frozen
class Poisson:
    """Independent arrivals. Units: seconds."""

    mean_between: float
    count: int

    def draw(self, numbers: random.Random) -> Iterator[float]:
        """Yield the instants of all arrivals."""
        at = 0.0
        for _ in range(self.count):
            at += exponential(numbers, self.mean_between)
            yield at


@attrs.frozen
class Lognormal:
    """Run times, most of them short and some very long. Units: seconds."""

    median: float
    p95: float

    def draw(self, numbers: random.Random) -> float:
        """Return one run time."""
        return lognormal(numbers, self.median, self.p95)


@attrs.frozen
class Instant:
    """A calendar time, in seconds since the epoch."""

    epoch: float


Steps = tuple[tuple[float, int], ...]
"""The number of replicas from each instant on. Units: seconds."""


@attrs.frozen(kw_only=True)
class Declared:
    """The values of a workload's annotations; None where an annotation is missing.

    Units: seconds.
    """

    arrival: float | Instant | Poisson | None = None
    duration: float | Lognormal | None = None
    startup: float = 0.0
    checkpoint_every: float | None = None
    fails_at: float | None = None
    restarts: int | None = None
    replicas: Steps | None = None


def read_annotations(document: Document) -> tuple[Declared, list[Finding]]:
    """Return the values of an object's annotations, and a finding with the place of each invalid one."""
    metadata = mapping_of(document.manifest, "metadata")
    findings: list[Finding] = []
    found: dict[str, Any] = {}
    for key, text in mapping_of(metadata, "annotations").items():
        if not str(key).startswith(DOMAIN):
            continue
        name = str(key).removeprefix(DOMAIN)
        path = ("metadata", "annotations", key)
        reader = _READERS.get(name)
        if reader is None:
            message = f"there is no annotation {key}"
            known = f"known: {', '.join(NAMES)}"
            findings.append(document.finding("A002", message, path, at_key=True, found=name, hint=known))
            continue
        try:
            found[name.replace("-", "_")] = reader(str(text))
        except BadValue as bad:
            seen = text if isinstance(text, str) else shown(text)
            message = f'{name} is "{seen}"'
            findings.append(
                document.finding("A001", message, path, found=seen, expected=bad.wanted, hint=f"write {bad.wanted}")
            )
    return Declared(**found), findings


def idle_annotations(document: Document, path: Path = ()) -> Iterator[Finding]:
    """Yield findings for annotations below ``path`` in a workload, where they have no effect.

    Cost: O(values below the path).
    """
    found: Any = document.manifest
    for step in path:
        found = mapping_of(found).get(str(step))
    waiting = [(path, found)]
    while waiting:
        at, values = waiting.pop()
        if isinstance(values, list):
            waiting += [((*at, number), each) for number, each in enumerate(values)]
            continue
        for key, value in mapping_of(values).items():
            if isinstance(value, Mapping | list):
                waiting.append(((*at, key), value))
            if at[-1:] == ("annotations",) and str(key).startswith(DOMAIN):
                name, hint = str(key).removeprefix(DOMAIN), "an annotation of the workload itself counts"
                message = f"{name} of a part of a workload says nothing"
                yield document.finding("A003", message, (*at, key), at_key=True, hint=hint)


def _arrival(text: str) -> float | Instant | Poisson:
    called = _call(text, "poisson", WANTED_ARRIVAL)
    if called is not None:
        rate, count = _RATE.fullmatch(called.pop("rate", "")), parsing.unsigned(called.pop("count", ""))
        if rate is None or count is None or called or not 0 < count <= MOST_ARRIVALS:
            raise BadValue(text, WANTED_ARRIVAL)
        try:
            per = float(rate[1])
        except ValueError:
            raise BadValue(text, WANTED_ARRIVAL) from None
        if not 0 < per < inf or (mean := parsing.seconds(f"1{rate[2]}") / per) > parsing.LONGEST:
            raise BadValue(text, WANTED_ARRIVAL)
        return Poisson(mean, count)
    try:
        return Instant(times.instant(text))
    except BadValue:
        return _seconds(text, WANTED_ARRIVAL)


def _duration(text: str) -> float | Lognormal:
    called = _call(text, "lognormal", WANTED_DURATION)
    if called is None:
        return _positive(text, WANTED_DURATION)
    median, p95 = called.pop("median", ""), called.pop("p95", "")
    drawn = Lognormal(_positive(median, WANTED_DURATION), _positive(p95, WANTED_DURATION))
    if called or drawn.p95 < drawn.median:
        raise BadValue(text, WANTED_DURATION)
    return drawn


def _call(text: str, name: str, wanted: str) -> dict[str, str] | None:
    """Return the arguments of ``name(key=value, ...)``; None for another text."""
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return None
    parts = [part.partition("=") for part in match[2].split(",") if part.strip()]
    if match[1] != name or any(not equals for _, equals, _ in parts):
        raise BadValue(text, wanted)
    return {key.strip(): value.strip() for key, _, value in parts}


def _steps(text: str) -> Steps:
    steps: list[tuple[float, int]] = []
    for part in text.split(","):
        at, colon, written = part.strip().rpartition(":")
        count = parsing.unsigned(written.strip())
        if not colon or count is None:
            raise BadValue(text, WANTED_STEPS)
        steps.append((_seconds(at.strip(), WANTED_STEPS), count))
    if any(later[0] <= earlier[0] for earlier, later in pairwise(steps)):
        raise BadValue(text, f"{WANTED_STEPS}, one after the other")
    return tuple(steps)


def _count(text: str) -> int:
    count = parsing.unsigned(text.strip())
    if count is None:
        raise BadValue(text, "a whole number, 0 or more")
    return count


def _seconds(text: str, wanted: str = parsing.DURATION_WANTED) -> float:
    try:
        found = parsing.seconds(text.strip())
    except parsing.DurationError:
        raise BadValue(text, wanted) from None
    if found < 0:
        raise BadValue(text, wanted)
    return found


def _positive(text: str, wanted: str = parsing.DURATION_WANTED) -> float:
    found = _seconds(text, wanted)
    if found <= 0:
        raise BadValue(text, wanted)
    return found


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "arrival": _arrival,
    "duration": _duration,
    "startup": _seconds,
    "checkpoint-every": _positive,
    "fails-at": _positive,
    "restarts": _count,
    "replicas": _steps,
}
