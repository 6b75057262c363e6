"""The command ``placement``."""

import json
import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import cattrs
import click

from benchmarks.engine import warm
from benchmarks.placement.measuring import OFFERS, WORKLOADS, Offered, measure
from benchmarks.placement.trace import Trace, UnreadableTraceError


@click.command(help="Offer published mixes of pods to kai, with and without the plugin fragmentation.")
@click.option(
    "--traces",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with openb_node_list_gpu_node.csv and openb_pod_list_*.csv.",
)
@click.option("--workload", "workloads", multiple=True, type=click.Choice(WORKLOADS), help="One of them; repeatable.")
@click.option("--offer", "names", multiple=True, type=click.Choice([*OFFERS]), help="One column; repeatable.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Random orders of each.")
@click.option(
    "--step", default=200, show_default=True, type=click.IntRange(min=1), help="Pods that come for each cycle."
)
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append each result to this file, and take from it what was measured before.",
)
@click.option(
    "--output", default="table", show_default=True, type=click.Choice(["table", "json"]), help="What to print."
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing while it runs.")
def placement(
    *,
    traces: Path,
    workloads: Sequence[str],
    names: Sequence[str],
    seeds: int,
    step: int,
    resume: Path | None,
    output: str,
    quiet: bool,
) -> None:
    """Measure, and print."""
    wanted = [
        (workload, seed, name, 0 if OFFERS[name][1] else step)
        for seed, workload, name in product(range(seeds), workloads or WORKLOADS, names or tuple(OFFERS))
    ]
    found = list[Offered]()
    try:
        for each in _measured(traces, wanted, resume):
            found.append(each)
            if not quiet:
                shares = " / ".join(f"{share:.2f}" for share in each.shares)
                told = f"{each.workload} seed {each.seed} {each.offer}"
                click.echo(f"{told}: {shares} %, {each.cycle_ms:.1f} ms a cycle", err=True)
    except UnreadableTraceError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(cattrs.unstructure(found), indent=2) if output == "json" else placement_table(found))


def _measured(folder: Path, wanted: Sequence[tuple[str, int, str, int]], resume: Path | None) -> Iterator[Offered]:
    """Yield what came of each offer; what is in ``resume`` is not measured again."""
    lines = resume.read_text().splitlines() if resume is not None and resume.exists() else []
    earlier = (cattrs.structure(json.loads(line), Offered) for line in lines)
    known = {(each.workload, each.seed, each.offer, each.step): each for each in earlier}
    missing = {workload for workload, *rest in wanted if (workload, *rest) not in known}
    offered = {workload: Trace.read(folder, workload) for workload in sorted(missing)}
    if missing:
        warm()
    for workload, seed, name, step in wanted:
        if (workload, seed, name, step) in known:
            yield known[workload, seed, name, step]
            continue
        made = measure(offered[workload], seed, name, step)
        if resume is not None:
            with resume.open("a") as file:
                file.write(json.dumps(cattrs.unstructure(made)) + "\n")
        yield made


def placement_table(found: Sequence[Offered]) -> str:
    """Return a line for each workload: shares of GPUs as mean and spread over the seeds, and what cycles cost."""
    titles = ("", "seeds", "without", "one after the other", "all at once", "ms a cycle", "ms all at once")
    rows: list[tuple[str, ...]] = [titles]
    for workload in dict.fromkeys(each.workload for each in found):
        by_offer = {
            name: [each for each in found if (each.workload, each.offer) == (workload, name)] for name in OFFERS
        }
        without, in_turn = by_offer["without"], by_offer["in-turn"]
        before, after = by_offer["at-once-without"], by_offer["at-once"]
        costs = _cost(without, in_turn), _cost(before, after)
        seeds = max(map(len, by_offer.values()))
        rows.append((workload, str(seeds), *map(_shares, (without, in_turn, after)), *costs))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _shares(offers: Sequence[Offered]) -> str:
    by_demand = zip(*(each.shares for each in offers), strict=True)
    return " / ".join(f"{statistics.mean(each):.2f} ± {statistics.pstdev(each):.2f}" for each in by_demand) or "-"


def _cost(without: Sequence[Offered], with_: Sequence[Offered]) -> str:
    """Return the medians, without and with the plugin, and their ratio, over the seeds that were measured both ways."""
    both = {each.seed for each in without} & {each.seed for each in with_}
    if not both:
        return "-"
    before, after = (
        statistics.median(each.cycle_ms for each in offers if each.seed in both) for offers in (without, with_)
    )
    return f"{before:.1f} -> {after:.1f} (x{after / before:.2f})"
