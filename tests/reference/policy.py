"""The scheduler's configuration: parameters, actions, plugins with their options, and names of KAI-Scheduler."""

import ast
import inspect
import textwrap
from typing import Any

import attrs
import yaml

from kai.cli.extending.plugins import Installed, list_installed
from kai.deciding.configuration import peer
from kai.deciding.configuration.options import described, wanted
from kai.deciding.configuration.peer import Arguments
from kai.deciding.configuration.profile_reading import default_configuration as default
from kai.framework.parameters import Parameters
from tests.reference.marks import table


def actions(_: str, __: str) -> str:
    """Return the actions in their default order."""
    return table(
        ("action", "default place", "does"),
        [(f"`{each.name}`", str(each.position or "off"), each.does) for each in _built_in("action")],
    )


def plugins(_: str, __: str) -> str:
    """Return the built-in plugins in their default order, with their options."""
    rows = [
        (
            f"`{each.name}`",
            str(each.position or "off"),
            each.does,
            "; ".join(f"`{name}`: {text}" for name, text in each.options) or "none",
        )
        for each in _built_in("plugin")
    ]
    return table(("plugin", "default place", "does", "options"), rows)


def parameters(_: str, __: str) -> str:
    """Return the settings that no plugin owns."""
    texts = _texts_under_fields(Parameters)
    rows = [(f"`{field.name}`", _value(field), texts.get(field.name, "")) for field in described(Parameters)]
    return table(("key", "value", "says"), rows)


def _value(field: "attrs.Attribute[Any]") -> str:
    """Return what a setting may be; of one with settings of its own, their names and values."""
    if isinstance(field.type, type) and attrs.has(field.type):
        return "mapping with " + "; ".join(f"`{each.name}`: {wanted(each)}" for each in described(field.type))
    return wanted(field)


def default_configuration(_: str, __: str) -> str:
    """Return the built-in configuration as a file in kai's own form would say it."""
    found = default()
    document = {
        "actions": list(found.actions),
        "plugins": {entry.name: dict(entry.options) for entry in found.plugins},
    }
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
    return f"```yaml\n{text.strip()}\n```"


def peer_plugins(_: str, __: str) -> str:
    """Return the names of plugins in KAI-Scheduler's form, and what they stand for."""
    rows = []
    for name, translate in peer.PLUGINS.items():
        arguments = Arguments(name, {})
        stands_for = ", ".join(f"`{entry.name}`" for entry in translate(arguments))
        known = ", ".join(f"`{each}`" for each in sorted(arguments.known))
        rows.append((f"`{name}`", stands_for or "nothing: the service answers it", known or "none"))
    return table(("KAI-Scheduler's name", "here", "arguments"), rows)


def _built_in(kind: str) -> list[Installed]:
    ours = [each for each in list_installed(None) if each.kind == kind and each.target.startswith("kai.")]
    return sorted(ours, key=lambda each: (each.position is None, each.position or 0, each.name))


def _texts_under_fields(cls: type[object]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    if not isinstance(definition, ast.ClassDef) or not attrs.has(cls):
        raise TypeError(cls)
    out: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            out[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return out
