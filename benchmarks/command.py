"""Read the command line: every command of ``python -m benchmarks``."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import cattrs
import click

from benchmarks.against import checked_out, compare, process
from benchmarks.campaign import Plan, RunFailedError, describe_machine, grow, profile, run
from benchmarks.catalogue import WORKLOADS, UnknownWorkloadError
from benchmarks.generate import write
from benchmarks.growth import AXES, Growth, find
from benchmarks.page import UnreadableReportError, read_findings, write_page
from benchmarks.placement.command import placement
from benchmarks.ranges import read_ranges, record
from benchmarks.table import growth_table, table
from benchmarks.workload import Workload


def _workloads(_: click.Context, __: click.Parameter, ids: tuple[str, ...]) -> tuple[Workload, ...]:
    """Look up every id; ``all`` means each one there is, ``targets`` those that have a target."""
    groups: dict[tuple[str, ...], tuple[str, ...]] = {("all",): tuple(WORKLOADS), ("targets",): tuple(read_ranges())}
    try:
        return tuple(find(id_) for id_ in groups.get(ids, ids))
    except UnknownWorkloadError as error:
        raise click.BadParameter(str(error)) from error


def _teller(*, quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else (lambda line: click.echo(line, err=True))


_path = click.Path(exists=True, dir_okay=False, path_type=Path)
_folder = click.Path(file_okay=False, path_type=Path)
_ids = click.argument("workloads", nargs=-1, required=True, callback=_workloads, metavar="ID...|targets|all")
_output = click.option(
    "--output", default="table", show_default=True, type=click.Choice(["table", "json"]), help="What to print."
)
_rounds = click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Warm cycles per process."
)
_timeout = click.option("--timeout", default=600.0, show_default=True, help="Seconds that one process may take.")
_quiet = click.option("--quiet", "-q", is_flag=True, help="Say nothing while it runs.")


def _runs(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--runs", default=default, show_default=True, type=click.IntRange(min=1), help="Fresh processes per workload."
    )


@click.group(help="Generate the workloads that kai is measured on, measure it, and show what came out.")
def main() -> None:
    """Offer the commands."""


main.add_command(placement)


@main.command(name="list", help="List the workloads.")
def list_workloads() -> None:
    """Print one line per workload."""
    for workload in WORKLOADS.values():
        click.echo(f"{workload.id:<11} {workload.title}")


@main.command(help="Write workloads as Kubernetes manifests, one folder each, one file per kind.")
@_ids
@click.option("--out", required=True, type=_folder, help="Folder to write into.")
def generate(workloads: tuple[Workload, ...], out: Path) -> None:
    """Write the manifests; a single workload goes straight into the folder."""
    for workload in workloads:
        directory = out if len(workloads) == 1 else out / workload.id
        for written in write(workload, directory):
            click.echo(f"{written.path}: {written.objects:,} objects", err=True)


@main.command(name="run", help="Measure scheduling cycles on workloads, in several fresh processes each.")
@_ids
@_runs(5)
@_rounds
@_output
@_timeout
@click.option("--check", is_flag=True, help="End with code 1 where a decision is wrong or a budget is exceeded.")
@_quiet
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
    report = run(Plan(workloads, runs, rounds, timeout, read_ranges()), _teller(quiet=quiet))
    click.echo(json.dumps(cattrs.unstructure(report), indent=2) if output == "json" else table(report))
    wrong = any(summary.problems or summary.within_budget is False for summary in report.results)
    if report.failures or (check and wrong):
        sys.exit(1)


@main.command(name="against", help="Measure REVISION and this program in turns; code 1 where a workload got slower.")
@click.argument("revision")
@_ids
@_runs(3)
@_rounds
@_timeout
@click.option("--slack", default=0.15, show_default=True, help="How much longer a cycle may take; 0.15 is 15 percent.")
@_quiet
def run_against(
    revision: str,
    workloads: tuple[Workload, ...],
    *,
    runs: int,
    rounds: int,
    timeout: float,
    slack: float,
    quiet: bool,
) -> None:
    """Compare, print, and end with code 1 where something is slower than it was."""
    try:
        with checked_out(revision) as tree:
            comparison = compare(workloads, tree, runs, process(rounds, timeout), _teller(quiet=quiet))
    except RunFailedError as error:
        raise click.ClickException(str(error)) from error
    click.echo(comparison.table(slack))
    if comparison.slower(slack):
        sys.exit(1)


@main.command(help="Measure how cost grows along an axis; all of them if none is named.")
@click.argument("axes", nargs=-1, type=click.Choice(list(AXES)))
@click.option("--most", default=1_000_000, show_default="all", help="Leave out sizes above this one.")
@_runs(1)
@_rounds
@_output
@_timeout
@_quiet
def scale(
    axes: tuple[str, ...], *, most: int, runs: int, rounds: int, output: str, timeout: float, quiet: bool
) -> None:
    """Measure, print, and end with code 1 where a process failed or decided wrongly."""
    plan = Plan((), runs, rounds, timeout, {})
    chosen = [AXES[id_] for id_ in axes or AXES]
    try:
        curves = tuple(
            grow(axis, [size for size in axis.sizes if size <= most], plan, _teller(quiet=quiet)) for axis in chosen
        )
    except RunFailedError as error:
        raise click.ClickException(str(error)) from error
    growth = Growth(describe_machine(), runs, rounds, curves)
    click.echo(json.dumps(cattrs.unstructure(growth), indent=2) if output == "json" else growth_table(growth))
    if any(point.problems for curve in curves for point in curve.points):
        sys.exit(1)


@main.command(name="profile", help="Find out where the processor time of warm cycles goes; prints JSON for `report`.")
@_ids
@_timeout
def profile_workloads(workloads: tuple[Workload, ...], *, timeout: float) -> None:
    """Profile each workload in a fresh process and print a line of JSON for it."""
    for workload in workloads:
        try:
            click.echo(json.dumps(cattrs.unstructure(profile(workload, timeout))))
        except RunFailedError as error:
            raise click.ClickException(f"{workload.id}: {error}") from error


@main.command(name="record", help="Write a report's figures into ranges.yaml, and budgets that follow from them.")
@click.argument("report", type=_path)
@click.option("--slack", default=1.6, show_default=True, help="A budget is the recorded ratio times this.")
def record_figures(report: Path, *, slack: float) -> None:
    """Record the observed figures of every workload that has a range."""
    try:
        findings = read_findings([report])
    except UnreadableReportError as error:
        raise click.ClickException(str(error)) from error
    for found in findings.reports:
        record(found, slack)


@main.command(name="report", help="Make a page with plots of what `run`, `scale` and `profile` found.")
@click.argument("files", nargs=-1, required=True, type=_path, metavar="IN.json...")
@click.option("--out", required=True, type=_folder, help="Folder to write into.")
def make_report(files: tuple[Path, ...], *, out: Path) -> None:
    """Write ``index.html`` and every chart as a file of its own."""
    try:
        for path in write_page(read_findings(files), out):
            click.echo(path, err=True)
    except UnreadableReportError as error:
        raise click.ClickException(str(error)) from error
