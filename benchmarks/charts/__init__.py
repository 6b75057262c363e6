"""Charts as SVG text: figures against targets and the peer, phases, growth, and profiles.

Plain text and arithmetic, no plot library: five kinds of charts are less code than the settings that would make one
draw them like this. Colours are CSS variables with a fallback, so that a chart follows the page it stands on and can
be opened by itself.
"""

from benchmarks.charts.flame import flame
from benchmarks.charts.growth import growth_chart
from benchmarks.charts.phases import phase_chart
from benchmarks.charts.versus import versus_chart

__all__ = ["flame", "growth_chart", "phase_chart", "versus_chart"]
