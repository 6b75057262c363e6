"""Figures of results as texts: a value in its unit, and the metrics by which runs are told apart, in their order."""

from __future__ import annotations

from typing import Final

from kai.virtual.results.result import SimulationResult
from kai.wording import span_text

HEADLINES: Final = (
    ("utilisation", "utilisation", "%"),
    ("goodput", "goodput", "%"),
    ("fairness (Jain)", "jain", ""),
    ("fragmentation", "fragmentation", "%"),
    ("jobs started", "started", "n"),
    ("jobs done", "done", "n"),
    ("wait p50", "queueingDelayP50", "s"),
    ("wait p95", "queueingDelayP95", "s"),
    ("wait max", "queueingDelayMax", "s"),
    ("completion, mean", "completionMean", "s"),
    ("pods evicted", "evictedPods", "n"),
    ("GPU-hours lost", "evictionCost", "GPU-h"),
)
"""What a metric is called beside others, its name in a result, and the unit in which it is told."""
BETTER_HIGH: Final = frozenset({"utilisation", "goodput", "jain", "started", "done"})
"""Those of them of which more is better; of all others less is."""


def figure(value: float | None, unit: str) -> str:
    """Return a value in its unit; percents are told as parts, and ``n`` is a number of things."""
    if value is None:
        return "-"
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        return span_text(value)
    if unit == "n":
        return f"{value:,.0f}"
    return f"{value:,.1f}" if unit else f"{value:.3f}"


def headline(result: SimulationResult, name: str) -> str:
    """Return the text of one of the metrics above; a hyphen where there is nothing to count."""
    unit = next(unit for _, known, unit in HEADLINES if known == name)
    return figure(result.value(name), unit)
