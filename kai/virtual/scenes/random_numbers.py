"""Random numbers: one generator for each purpose, so that drawing for one leaves all others as they are.

A generator is seeded with a text, of which ``random.Random`` takes a hash that is the same on every machine.
"""

from __future__ import annotations

import random
from math import exp, log
from typing import Final

_P95: Final = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""


def generator(seed: int, *purpose: str) -> random.Random:
    """Return the generator for one purpose of one run."""
    return random.Random("/".join((str(seed), *purpose)))  # noqa: S311 - it repeats, which a secret must not


def exponential(numbers: random.Random, mean: float) -> float:
    """Return a time between two events that know nothing of each other."""
    return -mean * log(1.0 - numbers.random())


def lognormal(numbers: random.Random, median: float, p95: float) -> float:
    """Return a time of a distribution that is told by its median and its 95th percentile."""
    sigma = log(p95 / median) / _P95
    return median * exp(sigma * numbers.gauss(0.0, 1.0))
