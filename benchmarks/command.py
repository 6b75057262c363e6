"""Read the command line: ``list``, ``generate`` and ``run``."""

from pathlib import Path

import click

from benchmarks.catalogue import WORKLOADS, UnknownWorkloadError, find_workload
from benchmarks.generate import write
from benchmarks.workload import Workload


def _workloads(_: click.Context, __: click.Parameter, ids: tuple[str, ...]) -> tuple[Workload, ...]:
    """Look up every id; ``all`` means each one there is."""
    try:
        return tuple(find_workload(id_) for id_ in (WORKLOADS if ids == ("all",) else ids))
    except UnknownWorkloadError as error:
        raise click.BadParameter(str(error)) from error


_ids = click.argument("workloads", nargs=-1, required=True, callback=_workloads, metavar="ID...|all")


@click.group(help="Generate the workloads that kai is measured on, and measure it.")
def main() -> None:
    """Offer the commands."""


@main.command(name="list", help="List the workloads.")
def list_workloads() -> None:
    """Print one line per workload."""
    for workload in WORKLOADS.values():
        click.echo(f"{workload.id:<11} {workload.title}")


@main.command(help="Write workloads as Kubernetes manifests, one folder each, one file per kind, one object per line.")
@_ids
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write into.")
def generate(workloads: tuple[Workload, ...], out: Path) -> None:
    """Write the manifests; a single workload goes straight into the folder."""
    for workload in workloads:
        directory = out if len(workloads) == 1 else out / workload.id
        for written in write(workload, directory):
            click.echo(f"{written.path}: {written.objects:,} objects", err=True)
