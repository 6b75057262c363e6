"""``kai version``: the versions of everything that a decision depends on."""

import json
import platform
import sys
from importlib import metadata

import click

from kai.cli.console import Console, console_options

DISTRIBUTION = "kai-scheduler"
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
    if console.output == "json":
        console.write(json.dumps(parts))
    elif console.output == "yaml":
        console.write("\n".join(f'{name}: "{value}"' for name, value in parts.items()))
    else:
        width = max(map(len, parts))
        console.write("\n".join(f"{name:<{width}}  {value}" for name, value in parts.items()))
        console.talk(f"from {sys.prefix}", level=1)


def installed(name: str) -> str:
    """Return the version of an installed distribution, "not installed" if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
