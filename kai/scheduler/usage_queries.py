"""What a usage database is asked, and what its answers say: text in, numbers out.

Each resource takes two questions: what each queue held and what there was, summed over the window. Their quotient is
the past usage of a queue, a fraction of the cluster.

Source: the peer's pkg/scheduler/cache/usagedb/prometheus, whose questions over a sliding window these are, letter by
letter. Over tumbling and cron windows it asks for ``sum_over_time`` of an instant, which Prometheus refuses; here the
same form is used with the time since the window began.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kai import durations
from kai.configuration.past_usage import RESOURCES, UsageSettings, WindowType
from kai.errors import KaiError
from kai.lenient import mapping_of
from kai.model.queue import Shares
from kai.notation import shown

_LABEL: Final = "queue_name"
_LONGEST_MESSAGE: Final = 300


class UsageError(KaiError):
    """A usage database did not say what it was asked."""


def question(metric: str, settings: UsageSettings, now: float) -> str:
    """Return the question for the sum of ``metric`` over the window that ends at ``now``."""
    return over_window(faded(metric, settings.half_life_seconds, now), settings, now)


def faded(metric: str, half_life_seconds: float, now: float) -> str:
    """Return ``metric`` so that each of its samples counts half for every half-life that it is old."""
    if half_life_seconds <= 0:
        return metric
    return f"(({metric}) * (0.5^(({int(now)} - time()) / {half_life_seconds:f})))"


def over_window(expression: str, settings: UsageSettings, now: float) -> str:
    """Return the sum of ``expression`` over the window; of one that only begins, what it is now."""
    length = settings.window_text
    if settings.window is not WindowType.SLIDING:
        age = now - window_start(settings, now)
        if age < settings.resolution_seconds:
            return expression
        length = f"{math.floor(age)}s"
    return f"sum_over_time(({expression})[{length}:{_duration(settings.resolution_seconds)}])"


def _duration(seconds: float) -> str:
    """Return a duration as Prometheus reads it, which is as Go prints it, but for fractions of a second."""
    return durations.text(seconds) if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


def window_start(settings: UsageSettings, now: float) -> float:
    """Return when the present window began, in seconds since the epoch; ``now`` if none has begun yet.

    A window that ends just now is still the present one.
    """
    if settings.window is WindowType.CRON and settings.cron is not None:
        last = settings.cron.before(dt.datetime.fromtimestamp(now, dt.UTC))
        return now if last is None else last.timestamp()
    if settings.window is WindowType.TUMBLING:
        passed = now - settings.start
        if passed <= 0:
            return now
        return settings.start + (math.ceil(passed / settings.window_seconds) - 1) * settings.window_seconds
    return now - settings.window_seconds


# ----------------------------------------------------------------------------------------------------------- answers


def read_samples(status: int, body: bytes) -> dict[str, float]:
    """Return the samples of an answer by queue; several samples of one queue are added up.

    A queue has one sample for each process that reported it, so several where the reporting process was restarted.

    Raises: UsageError for what is no such answer, and for amounts that cannot be.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UsageError(f"found HTTP {status} and no JSON, expected an answer of Prometheus") from None
    if not isinstance(document, Mapping) or document.get("status") != "success":
        raise UsageError(f"found HTTP {status}: {_complaint(document)}, expected success")
    found = document.get("data")
    if not isinstance(found, Mapping) or found.get("resultType") != "vector":
        kind = found.get("resultType") if isinstance(found, Mapping) else None
        raise UsageError(f"resultType: found {shown(kind)}, expected vector")
    out: dict[str, float] = {}
    samples = found.get("result") or ()
    if not isinstance(samples, list | tuple):
        raise UsageError("found a result that is no list of samples, expected one")
    for item in samples:
        queue, amount = _sample(item)
        total = out[queue] = out.get(queue, 0.0) + amount
        if total == math.inf:
            raise UsageError(
                f"found samples of queue {shown(queue)} that add up to {total:g}, expected a finite amount"
            )
    return out


def _complaint(document: Any) -> str:  # noqa: ANN401 - JSON from outside
    fields = mapping_of(document)
    words = [str(fields[key]) for key in ("errorType", "error") if fields.get(key)]
    return ": ".join(words)[:_LONGEST_MESSAGE] or "no reason"


def _sample(item: Any) -> tuple[str, float]:  # noqa: ANN401 - JSON from outside
    try:
        amount = _number(item["value"][1])
        queue = str(item["metric"].get(_LABEL, ""))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise UsageError("found a sample without metric and value, expected both") from None
    if not 0 <= amount < math.inf:
        raise UsageError(f"found {amount:g} of queue {shown(queue)}, expected a finite amount of 0 or more")
    return queue, amount


def _number(value: Any) -> float:  # noqa: ANN401 - JSON from outside
    """Return a number; an integer beyond all floats is infinite, as its text would be."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def unsaid(capacity: Mapping[str, float | None], held: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Return the resources that there were, and of which no queue says how much it held: usage of these counts as 0."""
    return tuple(each for each in RESOURCES if capacity.get(each) and not any(held.get(each, {})))


def shares(capacity: Mapping[str, float | None], held: Mapping[str, Mapping[str, float]]) -> dict[str, Shares]:
    """Return the past usage of each queue from what there was and what queues held, by resource.

    Raises: UsageError for a resource that queues held and that had no capacity, or next to none; where no resource had
        any, which is a window without a sample, or nodes that no process reports; and where no queue says how much it
        held of anything. The caller should keep the usage it knows.
    """
    if not any(capacity.values()):
        wanted = "that of cpu at least; is the window longer than the resolution, and are nodes reported?"
        raise UsageError(f"found no capacity of {', '.join(RESOURCES)}, expected {wanted}")
    if not any(queue for samples in held.values() for queue in samples):
        wanted = "a sample for each, 0 included; is the queue controller scraped, and are metrics named right?"
        raise UsageError(f"found no queue that held {', '.join(RESOURCES)}, expected {wanted}")
    parts: dict[str, dict[str, float]] = {}
    for resource in RESOURCES:
        total = capacity.get(resource)
        for queue, amount in held.get(resource, {}).items():
            part = parts.setdefault(queue, {})
            if amount:
                if not total:
                    raise UsageError(f"found no capacity of {resource}, expected some, since queues held some")
                part[resource] = share = amount / total
                if not math.isfinite(share):
                    raise UsageError(
                        f"found {amount:g} of {resource} of queue {shown(queue)} and a capacity of {total:g}, "
                        "expected a finite share"
                    )
    return {queue: Shares(**part) for queue, part in sorted(parts.items()) if queue}
