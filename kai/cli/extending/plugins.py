"""``kai plugins``: list installed plugins, time them, and create new ones.

``kai plugins new`` writes the package of a plugin from the files in ``kai/cli/extending/template``. The plugin prefers
nodes with a label. It is small enough to be replaced, and complete enough to be installed, enabled and tested as it is.

``kai plugins --time`` shows how long each function of a plugin takes on a cluster from a file.

The list has the origin, hooks and options of plugins and actions. Hooks are read from the source code of a plugin:
instantiating it would need a cluster, and the result would depend on it.
"""

import ast
import inspect
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, get_args

import attrs
import click

from kai.answers.documents.document import DISTRIBUTION
from kai.answers.documents.listings import PluginItem
from kai.basics.errors import CommandLineError, ConfigError, InputError
from kai.cli.arguments import GivenPath
from kai.cli.console import Console, console_options, write_kind
from kai.cli.failures import say, write_out
from kai.cli.running.configuring import load_configuration
from kai.cli.tables import Column, columns, table
from kai.cluster.process.tracing import PluginTimes, Taken
from kai.deciding.configuration.options import described, wanted
from kai.deciding.configuration.profile_reading import Configuration, default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry, load_class, origin_of
from kai.deciding.engine.host import Silent
from kai.framework.hooks import Extension

if TYPE_CHECKING:
    from kai.answers.documents import listings
    from kai.lab.request import Policy


FILES = {
    "README.md": "README.md.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "policy.yaml": "policy.yaml.txt",
    "{module}/__init__.py": "plugin.py.txt",
    "{module}/py.typed": "py.typed.txt",
    "tests/test_{module}.py": "test.py.txt",
}
"""The files of a new package, and their templates."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_package(name: str, into: str | None = None) -> tuple[Path, list[str]]:
    """Write the package of a plugin called ``name``; return its folder and the files in it.

    Raises: CommandLineError for an invalid name, InputError for a folder that is not empty.
    """
    short = name.removeprefix("kai-")
    if not _NAME.fullmatch(short):
        wanted = "small letters, digits and hyphens, beginning with a letter"
        raise CommandLineError.about("kai plugins new", "NAME", found=name, wanted=wanted)
    points = Registry.installed().plugins.get(short, ())
    if any(origin_of(point).distribution == DISTRIBUTION for point in points):
        raise CommandLineError.about("kai plugins new", "NAME", found=name, wanted="a name that no plugin of kai has")
    words = {
        "name": short,
        "distribution": f"kai-{short}",
        "module": f"kai_{short.replace('-', '_')}",
        "cls": "".join(part.capitalize() for part in short.split("-")),
    }
    folder = Path(into if into is not None else words["distribution"])
    try:
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder}: found files, expected a folder that is empty or not there yet")
        written = [target.format(**words) for target in FILES]
        for target, template in zip(written, FILES.values(), strict=True):
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (files("kai.cli.extending") / "template" / template).read_text(encoding="utf-8")
            path.write_text(Template(text).substitute(words), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror or error}") from error
    return folder, written


class _Watching(Silent):
    """An observer that times whole cycles and the functions of plugins."""

    def __init__(self) -> None:
        self.stopwatch: PluginTimes = PluginTimes(time.perf_counter)
        self.seconds = 0.0

    @contextmanager
    def phase(self, name: str, /) -> Iterator[None]:
        """Time a phase."""
        since = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - since


@attrs.frozen(kw_only=True)
class Timing:
    """The time of plugins, and of whole cycles, summed over all cycles of a case."""

    seconds: float
    taken: Mapping[tuple[str, str], Taken]
    """By plugin and hook, the longest first."""

    def table(self) -> str:
        """Return a line for each hook of a plugin, with its share of the cycles."""
        rows = [["PLUGIN", "HOOK", "CALLS", "TOTAL MS", "SHARE"]]
        rows += [
            [plugin, hook, str(each.calls), f"{each.seconds * 1000:.3f}", f"{self._share(each):.1%}"]
            for (plugin, hook), each in self.taken.items()
        ]
        return columns(rows, right={2, 3, 4})

    def document(self) -> "listings.PluginTimes":
        """Return the same as a document."""
        from kai.answers.documents import listings

        items = tuple(
            listings.TimedHook(
                plugin=plugin, hook=hook, calls=each.calls, seconds=each.seconds, share=self._share(each)
            )
            for (plugin, hook), each in self.taken.items()
        )
        return listings.PluginTimes(seconds=self.seconds, items=items)

    def _share(self, taken: Taken) -> float:
        return taken.seconds / self.seconds if self.seconds else 0.0


def time_plugins(path: str, policy: "Policy | None") -> Timing:
    """Return how long plugins take in the case at ``path``. It runs twice, since the first run loads kernels.

    Raises: InputError or ConfigError that names what is wrong.
    """
    from kai.lab.request import Request

    request = Request(policy=policy)
    if request.run(path).outcome is None:
        raise InputError.about(path, "--time", found="a fair-share case without plugins", wanted="a cluster")
    watching = _Watching()
    request.run(path, watching)
    asked = [(key, each) for key, each in watching.stopwatch.taken.items() if each.calls]
    return Timing(seconds=watching.seconds, taken=dict(sorted(asked, key=lambda entry: -entry[1].seconds)))


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
    from kai.answers.documents.listings import PluginList
    from kai.cli.extending.plugins import item_of, list_installed

    found = list_installed(path)
    if console.is_for_machines:
        write_kind(PluginList(items=tuple(map(item_of, found))), console)
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
    folder, files = write_package(name, into)
    write_out("\n".join(str(folder / file) for file in files) + "\n")
    say(f"next: pip install -e {folder}; kai plugins --config {folder / 'policy.yaml'}; pytest {folder}")


def _show_times(console: Console, path: str | None, case: str) -> None:
    """Write how long plugins take on the cluster at ``case``, under the configuration at ``path`` if there is one."""
    from kai.cli.deciding.policy import load_policy

    timing = time_plugins(case, None if path is None else load_policy(path))
    if console.is_for_machines:
        write_kind(timing.document(), console)
        return
    console.write(timing.table())
    taken = sum(each.seconds for each in timing.taken.values())
    console.talk(f"plugins took {taken * 1000:.3f} ms of {timing.seconds * 1000:.3f} ms; terms are the engine's own")


_EXTENSIONS: Final = frozenset(get_args(Extension))


def hooks_of(cls: type[object]) -> list[str]:
    """Return the extension points and terms that the module of ``cls`` instantiates; none without source.

    If a module has several plugins, only instantiations within the class count; extensions made elsewhere in the module
    are missed.
    """
    try:
        whole = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except (OSError, TypeError, SyntaxError, KeyError):
        return []
    own = next((node for node in whole.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__), whole)
    return sorted(_named(own, cls) or _named(whole, cls))


def _named(tree: ast.AST, cls: type[object]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = getattr(sys.modules[cls.__module__], node.func.id, None)
            if called in _EXTENSIONS:
                found.add(str(getattr(called, "__name__", "")))
    return found


@attrs.frozen(kw_only=True)
class Installed:
    """One plugin or action. ``position`` is its place in the configuration's order, None where it is not enabled."""

    name: str
    kind: str
    position: int | None
    origin: str
    version: str
    target: str
    does: str = ""
    """The purpose of the plugin in one line, from the docstring of its class."""
    hooks: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    rights: tuple[str, ...] = ()
    """Resources that the scheduler must be allowed to get, list and watch for the plugin."""
    problem: str = ""
    """Why the package is broken; "" if it is not."""
    rivals: tuple[str, ...] = ()
    """Distributions that offer the same name: while there are any, a configuration cannot use it."""


def list_installed(path: str | None) -> tuple[Installed, ...]:
    """Return actions, then plugins, in the order of the configuration at ``path``; disabled ones come last.

    A name that several distributions offer is listed for each of them, with the others as its rivals, so that users
    find the conflict here.

    Raises: ConfigError for a configuration that cannot be read, or that names or sets something unusable.
    """
    registry = Registry.installed()
    configuration = load_configuration(path, registry) if path else default_configuration()
    make_profile(_undisputed(configuration, registry), registry)
    names = [entry.name for entry in configuration.plugins]
    return (*_listed(registry.actions, "action", configuration.actions), *_listed(registry.plugins, "plugin", names))


def item_of(installed: Installed) -> PluginItem:
    """Return an entry as an item of a document."""
    own = {name: getattr(installed, name) for name in attrs.fields_dict(Installed)}
    return PluginItem(**{**own, "options": dict(installed.options)}, enabled=installed.position is not None)


def _undisputed(configuration: Configuration, registry: Registry) -> Configuration:
    """Return a configuration without the names that several distributions offer."""
    return attrs.evolve(
        configuration,
        actions=tuple(name for name in configuration.actions if not registry.disputed("action", name)),
        plugins=tuple(entry for entry in configuration.plugins if not registry.disputed("plugin", entry.name)),
    )


def _listed(points: Mapping[str, tuple[EntryPoint, ...]], kind: str, enabled: Sequence[str]) -> list[Installed]:
    order = {name: position for position, name in enumerate(enabled, start=1)}
    found = [
        attrs.evolve(
            _described(point, kind, order.get(name)),
            rivals=tuple(_offer(other) for other in choices if other is not point),
        )
        for name, choices in points.items()
        for point in choices
    ]
    return sorted(found, key=lambda each: (each.position or len(order) + 1, each.name))


def _offer(point: EntryPoint) -> str:
    """Return the distribution of an entry point; its target if it belongs to none."""
    return str(origin_of(point)) or point.value


def _described(point: EntryPoint, kind: str, position: int | None) -> Installed:
    """Return the description of an entry point; for an unusable package with the problem."""
    origin = origin_of(point)
    found = Installed(
        name=point.name, kind=kind, position=position, origin=str(origin), version=origin.version, target=point.value
    )
    try:
        cls = load_class(point)
        options = tuple((field.name, wanted(field)) for field in described(cls)) if kind == "plugin" else ()
    except ConfigError as error:
        return attrs.evolve(found, problem=str(error))
    except NameError as error:
        return attrs.evolve(found, problem=f"the types of its options cannot be resolved: {error}")
    return attrs.evolve(
        found,
        does=first_line(cls),
        hooks=tuple(hooks_of(cls)) if kind == "plugin" else ("run",),
        rights=tuple(each.right for each in getattr(cls, "reads", ())) if kind == "plugin" else (),
        options=options,
    )


def first_line(cls: type[object]) -> str:
    """Return the first sentence of a class's docstring without code marks; "" if it has no docstring of its own."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "")
    return "" if text.startswith(f"{cls.__name__}(") else text
