"""Read the command line: ``list``, ``generate`` and ``run``."""

import json
import sys
from pathlib import Path

import cattrs
import click

from benchmarks.campaign import Plan, run
from benchmarks.catalogue import WORKLOADS, UnknownWorkloadError, find_workload
from benchmarks.generate import write
from benchmarks.ranges import read_ranges
from benchmarks.table import table
from benchmarks.workload import Workload


def _workloads(_: click.Context, __: click.Parameter, ids: tuple[str, ...]) -> tuple[Workload, ...]:
    """Look up every id; ``all`` means each one there is, ``targets`` those that have a target."""
    groups: dict[tuple[str, ...], tuple[str, ...]] = {("all",): tuple(WORKLOADS), ("targets",): tuple(read_ranges())}
    try:
        return tuple(find_workload(id_) for id_ in groups.get(ids, ids))
    except UnknownWorkloadError as error:
        raise click.BadParameter(str(error)) from error


_ids = click.argument("workloads", nargs=-1, required=True, callback=_workloads, metavar="ID...|targets|all")


@click.group(help="Generate the workloads that kai is measured on, and measure it.")
def main() -> None:
    """Offer the commands."""


@main.command(name="list", help="List the workloads.")
def list_workloads() -> None:
    """Print one line per workload."""
    for workload in WORKLOADS.values():
        click.echo(f"{workload.id:<11} {workload.title}")


@main.command(help="Write workloads as Kubernetes manifests, one folder each, one file per kind.")
@_ids
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write into.")
def generate(workloads: tuple[Workload, ...], out: Path) -> None:
    """Write the manifests; a single workload goes straight into the folder."""
    for workload in workloads:
        directory = out if len(workloads) == 1 else out / workload.id
        for written in write(workload, directory):
            click.echo(f"{written.path}: {written.objects:,} objects", err=True)


@main.command(name="run", help="Measure scheduling cycles on workloads, in several fresh processes each.")
@_ids
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Warm cycles per process.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(min=1), help="Fresh processes per workload.")
@click.option(
    "--output", default="table", show_default=True, type=click.Choice(["table", "json"]), help="What to print."
)
@click.option("--timeout", default=600.0, show_default=True, help="Seconds that one process may take.")
@click.option("--check", is_flag=True, help="End with code 1 where a decision is wrong or a budget is exceeded.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing while it runs.")
def run_workloads(
    workloads: tuple[Workload, ...],
    *,
    runs: int,
    rounds: int,
    output: str,
    timeout: float,
    check: bool,
    quiet: bool,
) -> None:
    """Measure, print, and end with code 1 where a process failed or ``check`` found something."""
    plan = Plan(workloads, runs, rounds, timeout, read_ranges())
    report = run(plan, (lambda _: None) if quiet else (lambda line: click.echo(line, err=True)))
    click.echo(json.dumps(cattrs.unstructure(report), indent=2) if output == "json" else table(report))
    wrong = any(summary.problems or summary.within_budget is False for summary in report.results)
    if report.failures or (check and wrong):
        sys.exit(1)
