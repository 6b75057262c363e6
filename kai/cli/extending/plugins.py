"""``kai plugins``: what is installed, what it does, whether it is enabled, how long it takes; a new package."""

import click

from kai.cli.console import Console, console_options
from kai.cli.failures import say, write_out
from kai.cli.givenpath import GivenPath
from kai.cli.tables import Column, table
from kai.cli.writing import write_kind


@click.group(invoke_without_command=True)
@click.option(
    "--config",
    "path",
    type=GivenPath(),
    help="Configuration file whose plugins count as enabled; default: the built-in one.",
)
@click.option(
    "--time",
    "case",
    metavar="PATH",
    type=GivenPath(),
    help="Decide on the cluster at PATH, and show how long plugins take.",
)
@console_options()
@click.pass_context
def plugins(context: click.Context, console: Console, path: str | None, case: str | None) -> None:
    """List the installed plugins and actions: what each does, where it comes from, whether it is enabled."""
    if context.invoked_subcommand is not None:
        return
    if case is not None:
        _show_times(console, path, case)
        return
    from kai.cli.extending.installed import as_values, list_installed

    found = list_installed(path)
    if console.is_for_machines:
        write_kind("PluginList", {"items": [as_values(each) for each in found]}, console)
        return
    heads = [
        Column(head="NAME"),
        Column(head="KIND", drop=2),
        Column(head="ENABLED", right=True),
        Column(head="ORIGIN", drop=3),
        Column(head="DOES", least=36, drop=1),
    ]
    heads += [Column(head=head) for head in ("HOOKS", "OPTIONS", "RIGHTS", "TARGET") if console.wide]
    rows = []
    for each in found:
        does = f"broken: {each.problem}" if each.problem else each.does or "-"
        if each.rivals:
            does = f"conflict: also in {' and '.join(each.rivals)}"
        row = [each.name, each.kind, str(each.position or "-"), each.origin, does]
        if console.wide:
            row += [", ".join(each.hooks) or "-"]
            row += ["; ".join(f"{name}: {text}" for name, text in each.options) or "-"]
            row += [", ".join(each.rights) or "-", each.target]
        rows.append(row)
    console.write(table(heads, rows, console.width))
    offered = {(each.kind, each.name): each for each in reversed(found)}
    enabled = sum(each.position is not None for each in offered.values())
    console.talk(f"{enabled} of {len(offered)} enabled; the number is the place in the order")
    for each in reversed(offered.values()):
        if each.rivals:
            owners = " and ".join([each.origin or each.target, *each.rivals])
            console.talk(
                f"conflict: {each.name} is offered by {owners}; a configuration that uses it is refused, no other is"
            )
    for each in found:
        if each.problem:
            console.talk(
                f"broken: {each.name} of {each.origin or each.target}: {each.problem}; nothing else is affected"
            )


@plugins.command()
@click.argument("name")
@click.option("--into", metavar="DIR", help="Folder to write to; default: kai-NAME in the current folder.")
def new(name: str, into: str | None) -> None:
    """Write a package with a plugin called NAME: module, test, policy.yaml, pyproject.toml and README.

    The test passes as it is written. Install the package with `pip install -e kai-NAME`.
    """
    from kai.cli.extending.newplugin import write_package

    folder, files = write_package(name, into)
    write_out("\n".join(str(folder / file) for file in files) + "\n")
    say(f"next: pip install -e {folder}; kai plugins --config {folder / 'policy.yaml'}; pytest {folder}")


def _show_times(console: Console, path: str | None, case: str) -> None:
    """Write how long plugins take on the cluster at ``case``, under the configuration at ``path`` if one is given."""
    from kai.cli.deciding.policy import load_policy
    from kai.cli.extending.plugintimes import time_plugins

    timing = time_plugins(case, None if path is None else load_policy(path))
    if console.is_for_machines:
        write_kind("PluginTimes", timing.values(), console)
        return
    console.write(timing.table())
    taken = sum(each.seconds for each in timing.taken.values())
    console.talk(f"plugins took {taken * 1000:.3f} ms of {timing.seconds * 1000:.3f} ms; terms are the engine's own")
