"""``--cycles``: how often a cluster is decided, as several commands take it."""

import click

from kai.simulation.cases.cycle_bounds import MOST_CYCLES

cycles_option = click.option(
    "--cycles", type=click.IntRange(min=1, max=MOST_CYCLES), help="Number of scheduling cycles."
)
