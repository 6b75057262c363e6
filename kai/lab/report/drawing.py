"""Shared parts of the charts and of the page.

Charts are plain dictionaries for plotly.js, with ``data`` and ``layout``. They share a `Frame` of axes and colours
across runs. Text colours come from the page's style, so that one figure serves light and dark mode.

The page is made of sections: charts, each with its finding as a sentence, and a table of its numbers.
"""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from kai.basics.trees import OTHERS, ancestry, colors_of

if TYPE_CHECKING:
    from kai.lab.virtual.results.result import QueueResult, SimulationResult

Figure: TypeAlias = dict[str, Any]

HUES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B0416B")
GREY: Final = "#6E7781"
SHAPES: Final = ("", "/", "x", ".")
"""Patterns of areas, by plotly.js' names."""
DASHES: Final = ("solid", "dash", "dot", "dashdot")
"""Line styles that match the patterns."""
PATTERN: Final[Figure] = {"fgcolor": "#ffffff", "size": 7, "solidity": 0.25}
"""The pattern of areas and bars; a shape and the background colour are added."""
MOST_QUEUES: Final = 20
REST: Final = "others"
_UNITS: Final = ((2 * 3600.0, 60.0, "minutes"), (4 * 86400.0, 3600.0, "hours"), (float("inf"), 86400.0, "days"))
_DIGITS: Final = 4


@attrs.frozen(kw_only=True)
class Paint:
    """The look of a queue in every chart."""

    hue: str = GREY
    pattern: int = 0

    @property
    def shape(self) -> str:
        """The pattern of its areas."""
        return SHAPES[self.pattern]

    @property
    def dash(self) -> str:
        """The dashes of its lines."""
        return DASHES[self.pattern]


@attrs.frozen(kw_only=True)
class Key:
    """One entry of a legend: a name with a patch or a line."""

    label: str
    paint: Paint = attrs.field(factory=Paint)
    is_line: bool = False
    dash: str = "solid"


@attrs.frozen(kw_only=True)
class Frame:
    """The axes and colours that all charts of a page share.

    Units: horizon in seconds; ``second`` is one second on the axis of time.
    """

    horizon: float
    gpus: float
    """The most GPUs at any time."""
    second: float
    unit: str
    paints: Mapping[str, Paint]
    starts: dt.datetime | None = None
    """The date at which all runs start, if they know it."""

    @classmethod
    def of(cls, results: Sequence[SimulationResult]) -> Frame:
        """Return the frame that fits all results."""
        horizon = max(result.horizon_seconds for result in results)
        length, unit = next((length, unit) for most, length, unit in _UNITS if horizon <= most)
        queues = {queue.name: queue for result in reversed(results) for queue in result.queues}
        return cls(
            horizon=horizon,
            gpus=max([1.0, *(result.most_gpus for result in results)]),
            second=1 / length,
            unit=unit,
            paints=_paints(list(queues.values())),
            starts=_start(results),
        )

    def paint(self, queue: str) -> Paint:
        """Return the look of a queue; queues beyond the colours are grey."""
        return self.paints.get(queue, Paint())

    def at(self, seconds: float) -> float | str:
        """Return an instant on the axis of time."""
        if self.starts is None:
            return short(seconds * self.second)
        return (self.starts + dt.timedelta(seconds=round(seconds, 3))).isoformat(sep=" ", timespec="milliseconds")

    def length(self, seconds: float) -> float:
        """Return a duration on that axis; an axis of dates counts milliseconds."""
        return short(seconds * self.second) if self.starts is None else short(seconds * 1000)

    @property
    def time_axis(self) -> Figure:
        """The axis of time."""
        scope = {"range": [self.at(0.0), self.at(self.horizon)]}
        if self.starts is None:
            return {**scope, "title": {"text": f"{self.unit} since the start"}}
        return {**scope, "type": "date", "title": {"text": "time, UTC"}}


def _start(results: Sequence[SimulationResult]) -> dt.datetime | None:
    """Return the start of all results, without a zone, as plotly.js wants dates; None if they differ."""
    texts = {result.starts_at for result in results}
    text = texts.pop() if len(texts) == 1 else None
    return None if text is None else dt.datetime.fromisoformat(text).replace(tzinfo=None)


def _paints(queues: Sequence[QueueResult]) -> dict[str, Paint]:
    found = {}
    for name, color in colors_of(queues).items():
        hue, _, pattern = color.partition("-")
        found[name] = Paint() if hue == OTHERS else Paint(hue=HUES[int(hue)], pattern=int(pattern))
    return found


def leaf_queues(result: SimulationResult) -> list[QueueResult]:
    """Return the leaf queues that had jobs, in the order of the tree."""
    parents = {queue.name: queue.parent for queue in result.queues}
    leaves = (queue for queue in result.queues if queue.leaf and queue.jobs)
    return sorted(leaves, key=lambda queue: ancestry(queue.name, parents)[::-1])


def named_and_rest(result: SimulationResult) -> tuple[list[str], list[str]]:
    """Return the leaf queues that a chart names, and the rest, which it draws as one."""
    queues = leaf_queues(result)
    if len(queues) <= MOST_QUEUES:
        return [queue.name for queue in queues], []
    largest = sorted(queues, key=lambda queue: (-queue.gpu_hours, queue.name))[: MOST_QUEUES - 1]
    kept = {queue.name for queue in largest}
    return [each.name for each in queues if each.name in kept], [each.name for each in queues if each.name not in kept]


def layout(height: int, x: Figure, y: Figure, **more: object) -> Figure:
    """Return a layout without background, legend and title: the page has those."""
    return {
        "height": height,
        "margin": {"l": 60, "r": 16, "t": 8, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "showlegend": False,
        "hoverlabel": {"bgcolor": "#1f2328", "bordercolor": "#6e7781", "font": {"color": "#ffffff"}, "align": "left"},
        "xaxis": {"zeroline": False, "gridcolor": "#8883", "automargin": True, **x},
        "yaxis": {"zeroline": False, "gridcolor": "#8883", "automargin": True, **y},
        **more,
    }


def steps(result: SimulationResult, frame: Frame, values: Iterable[float]) -> Figure:
    """Return the values of buckets as the coordinates of a stepped line, up to the end of the last bucket."""
    heights = [short(value) for value in values]
    return {
        "x0": frame.at(0.0),
        "dx": frame.length(result.series.bucket_seconds),
        "y": [*heights, *heights[-1:]],
        "mode": "lines",
    }


def column(result: SimulationResult, name: str) -> Sequence[float]:
    """Return a column over time; zeros if the result lacks it."""
    return result.series.columns.get(name) or (0.0,) * len(result.series.start_seconds)


def short(value: float) -> float:
    """Return a number rounded to the visible digits."""
    return round(value, _DIGITS)


def label(text: str) -> str:
    """Return a name escaped for plotly.js, which interprets tags in texts."""
    return html.escape(text)


@attrs.frozen(kw_only=True)
class Table:
    """Numbers in rows; the first column names the row."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})
    """Columns of words; the others are aligned to the right."""
    note: str = ""


@attrs.frozen(kw_only=True)
class Plot:
    """One chart, with its finding as a sentence."""

    title: str
    """The run or queue of the chart, where the section has several."""
    finding: str
    figure: Figure | None
    """None where there is nothing to draw."""
    table: Table | None = None


@attrs.frozen(kw_only=True)
class Section:
    """A question, and the charts that answer it."""

    name: str
    question: str
    about: str
    """How to read the charts, and what they leave out."""
    plots: tuple[Plot, ...]
    keys: tuple[Key, ...] = ()
    table: Table | None = None
    """The numbers of all charts together."""
    small: bool = False
    """Whether the charts are laid out side by side where there is room."""
