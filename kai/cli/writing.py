"""Writing a document for machines: JSON on one line, or YAML."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kai.api.fields import document_name
from kai.cli.console import Console
from kai.documents.envelope import enveloped

if TYPE_CHECKING:
    from kai.simulation.cases.origin import Origin


def plain(value: Any) -> Any:  # noqa: ANN401 - any value that JSON has
    """Return a value as documents have it: objects as mappings, under the names of the output kind."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if not attrs.has(type(value)):
        return value
    return {document_name(field.name): plain(getattr(value, field.name)) for field in attrs.fields(type(value))}


def write_kind(kind: str, fields: Mapping[str, Any], console: Console, origin: "Origin | None" = None) -> None:
    """Write one document of a kind; ``origin`` is what it was read from."""
    write_document(enveloped(kind, fields, origin), console)


def write_document(document: Mapping[str, Any], console: Console) -> None:
    """Write one document: JSON on one line, or YAML."""
    if console.output == "json":
        console.write(json.dumps(document, ensure_ascii=console.plain))
        return
    import yaml

    from kai.api.codec.manifest_text import BOOLEAN, LETTER

    class Dumper(yaml.SafeDumper):
        """Writes as YAML whatever JSON has a form for: a state is a word, though it is no plain string of Python."""

    Dumper.add_implicit_resolver(BOOLEAN, LETTER, list("yYnN"))  # so that they get quotes: kubectl may read this
    Dumper.add_multi_representer(str, lambda dumper, word: dumper.represent_str(str(word)))
    text = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=not console.plain, width=120)
    console.write("---\n" + text.rstrip())
