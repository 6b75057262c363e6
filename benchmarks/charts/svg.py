"""The few things that every chart is drawn of: elements, text, logarithmic scales and their ticks."""

import math
from collections.abc import Iterator
from html import escape

from attrs import frozen

INK, MUTED, GRID, PAPER = "var(--ink,#1c2430)", "var(--muted,#5b6775)", "var(--grid,#e3e7ec)", "var(--paper,#ffffff)"
OURS, PEER, GOAL = "var(--ours,#0b6e99)", "var(--peer,#b4532a)", "var(--goal,#3c8d40)"
_WIDE = 1000
"""From so many times the least value on, an axis begins at a power of ten."""
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"


def tag(name: str, *children: str, **attributes: object) -> str:
    """Return an element; ``stroke_width=1`` becomes ``stroke-width="1"``, and numbers are kept short."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    inner = "".join(children)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(str(value))


def text(at: tuple[float, float], content: str, *, size: float = 12, fill: str = INK, **attributes: object) -> str:
    """Return a line of text with its baseline at a point."""
    return tag("text", escape(content), x=float(at[0]), y=float(at[1]), font_size=size, fill=fill, **attributes)


def titled(*shapes: str, title: str) -> str:
    """Return shapes that say something when they are pointed at."""
    return tag("g", tag("title", escape(title)), *shapes)


def picture(width: float, height: float, *children: str, label: str) -> str:
    """Return a whole drawing that shrinks with its column."""
    return tag(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        font_family=FONT,
        role="img",
        aria_label=label,
        style=f"width:100%;max-width:{width:g}px;height:auto;background:{PAPER}",
    )


@frozen
class LogScale:
    """Where values from ``least`` to ``most`` lie between two coordinates, by their logarithm."""

    least: float
    most: float
    start: float
    end: float

    @classmethod
    def around(cls, values: list[float], start: float, end: float) -> "LogScale":
        """Return the scale that holds all of ``values`` and begins and ends at a round one."""
        low, high = _below(min(values)), max(values)
        if high > low * _WIDE:
            low = 10.0 ** math.floor(math.log10(low) + 1e-9)
        most = _below(high)
        return cls(low, most if most >= high else most * _step(most), start, end)

    def __call__(self, value: float) -> float:
        """Return the coordinate of ``value``; what is outside lies on the edge."""
        inside = min(max(value, self.least), self.most)
        share = math.log(inside / self.least) / math.log(self.most / self.least)
        return self.start + share * (self.end - self.start)

    def decades(self) -> Iterator[float]:
        """Return the powers of ten on the scale."""
        first, last = math.ceil(math.log10(self.least) - 1e-9), math.floor(math.log10(self.most) + 1e-9)
        return (10.0**power for power in range(first, last + 1))


def _below(value: float) -> float:
    """Return the greatest of 1, 2, 5, 10, ... that is not above ``value``."""
    decade = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return max(step for step in (decade, 2 * decade, 5 * decade) if step <= value * (1 + 1e-9))


def _step(value: float) -> float:
    """Return the factor from one of 1, 2, 5, 10, ... to the next."""
    return 2.5 if round(value / 10.0 ** math.floor(math.log10(value) + 1e-9)) == 2 else 2.0


def duration(milliseconds: float) -> str:
    """Write a time with the unit that suits it: ``850 µs``, ``12.5 ms``, ``4.2 s``, ``4 min``."""
    for limit, unit, size in ((1.0, "µs", 1e-3), (1e3, "ms", 1.0), (120e3, "s", 1e3)):
        if milliseconds < limit:
            return f"{_short(milliseconds / size)} {unit}"
    return f"{_short(milliseconds / 60e3)} min"


def amount(count: float) -> str:
    """Write a round number briefly: ``500``, ``20k``, ``1M``."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{_short(count / size)}{unit}"
    return _short(count)


def _short(value: float) -> str:
    """Write three digits that say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.3g}"
