"""``kai version``: the versions of everything that a decision depends on, and the schemas of what kai writes."""

import difflib
import json
import platform
import sys

import click

from kai.cli.console import Console, console_options
from kai.cli.writing import write_kind
from kai.documents.distribution import DISTRIBUTION, installed
from kai.notation import shown

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
@click.option("--schema", default="", metavar="KIND", help="Print the JSON Schema of a kind that -o json writes.")
@console_options(("table", "json", "yaml"))
def version(console: Console, schema: str) -> None:
    """Show the versions of kai, Python and the packages it stands on."""
    if schema:
        console.write(json.dumps(_schema(schema), indent=2))
        return
    parts = {"kai": installed(DISTRIBUTION), "python": platform.python_version()}
    parts |= {name: installed(name) for name in PARTS}
    if console.is_for_machines:
        write_kind("Versions", parts, console)
    else:
        width = max(map(len, parts))
        console.write("\n".join(f"{name:<{width}}  {value}" for name, value in parts.items()))
        console.talk(f"from {sys.prefix}", level=1)


def _schema(kind: str) -> dict[str, object]:
    """Return the schema of a kind.

    Raises: UsageError for a kind that has none.
    """
    from kai.cli.schemas.jsonschemas import schema_of
    from kai.cli.schemas.kinds import KINDS

    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(KINDS)}"
        raise click.UsageError(f"--schema: found {shown(kind)}, expected a kind with a schema\n{hint}")
    return schema_of(KINDS[kind])
