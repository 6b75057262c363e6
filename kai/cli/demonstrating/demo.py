"""``kai demo``: watch a cluster that is not there, decide by decision."""

from __future__ import annotations

import click

from kai.cli.console import Console, console_options
from kai.cli.demonstrating.scenes import NAMES

EPILOG = """\
Nothing but this process is needed: no cluster, no GPU, no network. On a terminal it is drawn as it goes, and
keys change how fast: space, . (one cycle), + and -, w (why does it wait?), e (evictions), q. Otherwise one line
is written for each thing that happens, and the command ends with the scene.

\b
  kai demo
  kai demo reclaim --speed 30x
  kai demo lab --save lab --until 2h | tail
"""
_ADDRESS = "127.0.0.1:8085"


@click.command(epilog=EPILOG)
@click.argument("scene", required=False, default=NAMES[0], type=click.Choice(NAMES))
@click.option("--speed", metavar="TIMES", help="Times the pace of the clock: 300x. Each scene has its own.")
@click.option("--until", metavar="DURATION", help="How long the scene is: 2h. Each scene has its own.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of all that is drawn by chance.")
@click.option("--step", is_flag=True, help="Begin paused; . goes on by one cycle.")
@click.option(
    "--dashboard",
    is_flag=False,
    flag_value=_ADDRESS,
    default=None,
    metavar="[ADDRESS]",
    help=f"Serve the dashboard as well, on this machine only: {_ADDRESS}.",
)
@click.option("--save", type=click.Path(), metavar="DIR", help="Folder for the files of the scene, its result and end.")
@console_options(("table", "json", "yaml"))
def demo(scene: str, console: Console, **wanted: object) -> int:
    """Watch a cluster in this process: queues, nodes, jobs, and each decision with its reason."""
    from kai.cli.demonstrating.demonstration import Wanted, demonstrate

    return demonstrate(scene, Wanted(**wanted), console)  # type: ignore[arg-type]  # the flags by the names of fields
