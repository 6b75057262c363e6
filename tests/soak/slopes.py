"""How fast something grows: the line of least squares through samples, in percent of where it begins, each hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOUR: Final = 3600.0
_ALIKE: Final = 1200.0
"""Seconds within which samples say much the same: a series stays for ten minutes after what it counted last."""


@attrs.frozen
class Slope:
    """The line through the samples of one figure."""

    name: str
    begins: float
    """Where the line begins."""
    an_hour: float
    """How much there is more after each hour."""
    error: float
    """The standard error of that, which allows for samples that are like those before them."""

    @property
    def percent(self) -> float:
        """How much there is more after each hour, in percent of where the line begins."""
        return 100.0 * self.an_hour / max(self.begins, 1.0)

    def __str__(self) -> str:
        error = 100.0 * self.error / max(self.begins, 1.0)
        return f"{self.name}: begins at {self.begins:.0f}, {self.percent:+.2f} % an hour (standard error {error:.2f})"


def slope(name: str, times: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit a line to samples evenly apart, of which there are three at least; times are in seconds.

    The error is that of Newey and West (1987): the textbook's own takes each sample for news, and calls a wave a trend.
    """
    hours, found = (np.asarray(times) - times[0]) / _HOUR, np.asarray(values, np.float64)
    columns = np.column_stack([np.ones_like(hours), hours])
    (begins, an_hour), *_ = np.linalg.lstsq(columns, found, rcond=None)
    rest, apart = found - columns @ (begins, an_hour), hours - hours.mean()
    pulls = rest * apart
    most = min(round(_ALIKE / _HOUR / float(np.diff(hours).mean())), len(found) // 4)
    alike = sum((1.0 - lag / (most + 1.0)) * float(pulls[lag:] @ pulls[:-lag]) for lag in range(1, most + 1))
    spread = float((apart**2).sum())
    error = max(float(pulls @ pulls) + 2.0 * alike, 0.0) ** 0.5 / spread
    return Slope(name, float(begins), float(an_hour), error)
