"""``kai version``: the versions of everything that a decision depends on."""

import platform
import sys

import click

from kai.cli.console import Console, console_options
from kai.cli.distribution import DISTRIBUTION, installed
from kai.cli.envelope import envelope, write_document

PARTS = (
    "attrs",
    "cattrs",
    "msgspec",
    "numba",
    "numpy",
    "kubernetes-asyncio",
    "anyio",
    "opentelemetry-sdk",
    "structlog",
)


@click.command()
@console_options(("table", "json", "yaml"))
def version(console: Console) -> None:
    """Show the versions of kai, Python and the packages it stands on."""
    parts = {"kai": installed(DISTRIBUTION), "python": platform.python_version()}
    parts |= {name: installed(name) for name in PARTS}
    if console.output in {"json", "yaml"}:
        write_document({**envelope("Versions"), **parts}, console)
    else:
        width = max(map(len, parts))
        console.write("\n".join(f"{name:<{width}}  {value}" for name, value in parts.items()))
        console.talk(f"from {sys.prefix}", level=1)
