"""``kai plugins``: what is installed, where it comes from, what it answers, and whether a configuration asks for it."""

import json

import click

from kai.cli.console import Console, console_options
from kai.cli.tables import columns


@click.command()
@click.option("--config", "path", help="Configuration file whose plugins count as enabled; default: the built-in one.")
@console_options()
def plugins(console: Console, path: str | None) -> None:
    """List plugins and actions: origin, version, hooks, enabled or not."""
    from kai.cli.installed import as_values, list_installed

    found = list_installed(path)
    if console.output in {"json", "yaml"}:
        document = {"apiVersion": "output.kai/v1", "kind": "PluginList", "items": [as_values(each) for each in found]}
        if console.output == "json":
            console.write(json.dumps(document))
            return
        import yaml

        console.write(yaml.safe_dump(document, sort_keys=False).rstrip())
        return
    rows = [["NAME", "KIND", "ENABLED", "ORIGIN", "HOOKS", *(["OPTIONS", "TARGET"] if console.wide else [])]]
    for each in found:
        hooks = each.problem or ", ".join(each.hooks) or "-"
        row = [each.name, each.kind, str(each.position or "-"), each.origin, hooks]
        if console.wide:
            row += ["; ".join(f"{name}: {text}" for name, text in each.options) or "-", each.target]
        rows.append(row)
    console.write(columns(rows, right={2}))
    enabled = sum(each.position is not None for each in found)
    console.talk(f"{enabled} of {len(found)} enabled; the number is the place in the order")
