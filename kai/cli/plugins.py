"""``kai plugins``: what is installed, from where, what it answers, whether it is enabled, how long it takes."""

import json
from typing import Any

import click

from kai.cli.console import Console, console_options
from kai.cli.tables import columns


@click.command()
@click.option("--config", "path", help="Configuration file whose plugins count as enabled; default: the built-in one.")
@click.option("--time", "case", metavar="PATH", help="Decide on the cluster at PATH, and show how long plugins take.")
@console_options()
def plugins(console: Console, path: str | None, case: str | None) -> None:
    """List plugins and actions: origin, version, hooks, enabled or not. Or show how long plugins take."""
    if case is not None:
        _show_times(console, path, case)
        return
    from kai.cli.installed import as_values, list_installed

    found = list_installed(path)
    if console.output in {"json", "yaml"}:
        items = [as_values(each) for each in found]
        _write_document(console, {"apiVersion": "output.kai/v1", "kind": "PluginList", "items": items})
        return
    rows = [["NAME", "KIND", "ENABLED", "ORIGIN", "HOOKS", *(["OPTIONS", "RIGHTS", "TARGET"] if console.wide else [])]]
    for each in found:
        hooks = each.problem or ", ".join(each.hooks) or "-"
        row = [each.name, each.kind, str(each.position or "-"), each.origin, hooks]
        if console.wide:
            row += ["; ".join(f"{name}: {text}" for name, text in each.options) or "-"]
            row += [", ".join(each.rights) or "-", each.target]
        rows.append(row)
    console.write(columns(rows, right={2}))
    enabled = sum(each.position is not None for each in found)
    console.talk(f"{enabled} of {len(found)} enabled; the number is the place in the order")


def _show_times(console: Console, path: str | None, case: str) -> None:
    """Write how long plugins take on the cluster at ``case``, under the configuration at ``path`` if one is given."""
    from kai.cli.plugintimes import time_plugins
    from kai.cli.policy import load_policy

    timing = time_plugins(case, None if path is None else load_policy(path))
    if console.output in {"json", "yaml"}:
        _write_document(console, timing.values())
        return
    console.write(timing.table())
    taken = sum(each.seconds for each in timing.taken.values())
    console.talk(f"plugins took {taken * 1000:.3f} ms of {timing.seconds * 1000:.3f} ms; terms are the engine's own")


def _write_document(console: Console, document: dict[str, Any]) -> None:
    if console.output == "json":
        console.write(json.dumps(document))
        return
    import yaml

    console.write(yaml.safe_dump(document, sort_keys=False).rstrip())
