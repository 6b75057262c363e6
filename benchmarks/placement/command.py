"""The command ``placement``."""

import json
import statistics
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import cattrs
import click

from benchmarks.engine import warm
from benchmarks.placement.measuring import WORKLOADS, Measured, Offered, measure
from benchmarks.placement.trace import UnreadableTraceError


@click.command(help="Offer published mixes of pods to kai, with and without the plugin fragmentation.")
@click.option(
    "--traces",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with openb_node_list_gpu_node.csv and openb_pod_list_*.csv.",
)
@click.option("--workload", "workloads", multiple=True, type=click.Choice(WORKLOADS), help="One of them; repeatable.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Random orders of each.")
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(min=0), help="The first of them.")
@click.option("--step", default=1, show_default=True, type=click.IntRange(min=1), help="Pods that come for each cycle.")
@click.option(
    "--output", default="table", show_default=True, type=click.Choice(["table", "json"]), help="What to print."
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing while it runs.")
def placement(
    *, traces: Path, workloads: Sequence[str], seeds: int, first_seed: int, step: int, output: str, quiet: bool
) -> None:
    """Measure, and print."""
    tell: Callable[[str], None] = (lambda _: None) if quiet else (lambda line: click.echo(line, err=True))
    warm()
    try:
        found = [
            measure(traces, workload, seed, step, tell)
            for workload in workloads or WORKLOADS
            for seed in range(first_seed, first_seed + seeds)
        ]
    except UnreadableTraceError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(cattrs.unstructure(found), indent=2) if output == "json" else placement_table(found))


def placement_table(found: Sequence[Measured]) -> str:
    """Return a line for each workload: shares of GPUs as mean and spread over the seeds, and what cycles cost."""
    rows = [("", "seeds", "without", "one after the other", "all at once", "ms a cycle", "ms all at once")]
    for workload, members in groupby(found, key=lambda each: each.workload):
        mine = list(members)
        without, in_turn = [each.without for each in mine], [each.in_turn for each in mine]
        before, after = [each.at_once_without for each in mine], [each.at_once for each in mine]
        shares = _shares(without), _shares(in_turn), _shares(after)
        rows.append((workload, str(len(mine)), *shares, _cost(without, in_turn), _cost(before, after)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _shares(offers: Sequence[Offered]) -> str:
    by_demand = zip(*(each.shares for each in offers), strict=True)
    return " / ".join(f"{statistics.mean(each):.1f} ± {statistics.pstdev(each):.2f}" for each in by_demand)


def _cost(without: Sequence[Offered], with_: Sequence[Offered]) -> str:
    """Return the medians over the seeds, without and with the plugin, and their ratio."""
    before, after = (statistics.median(each.cycle_ms for each in offers) for offers in (without, with_))
    return f"{before:.1f} -> {after:.1f} (x{after / before:.2f})"
