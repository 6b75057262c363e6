"""The machine form of commands: which fields it has, of which types, seen in what they print for a small cluster."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout

from kai.cli.command import run
from tests.reference.marks import table


def output(words: str, _: str) -> str:
    """Return the fields of the document that the command ``words`` prints."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = run([*words.split(), "-o", "json"])
    if code not in {0, 1}:
        raise ValueError(f"kai {words}: {code}")
    fields: dict[str, set[str]] = {}
    for path, kind in _fields(json.loads(out.getvalue()), ""):
        fields.setdefault(path, set()).add(kind)
    rows = [(f"`{path}`", " or ".join(sorted(kinds))) for path, kinds in fields.items() if path]
    return table(("field", "type"), rows)


NAMED = {"pods", "nodes", "items[].options"}
"""Mappings whose keys are names of the cluster or of options, not of the form."""


def _fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            if path:
                yield path, "object"
            by_name = path in NAMED or not all(key.isidentifier() for key in value)
            for key, each in value.items():
                name = "NAME" if by_name else key
                yield from _fields(each, f"{path}.{name}" if path else name)
        case list():
            yield path, "list"
            for each in value:
                yield from _fields(each, f"{path}[]")
        case _:
            word = {bool: "true or false", int: "number", float: "number", str: "text", type(None): "null"}[type(value)]
            yield path, word
