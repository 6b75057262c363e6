"""Writing a document for machines: JSON on one line, or YAML."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kai.cli.console import Console
from kai.documents.envelope import envelope

if TYPE_CHECKING:
    from kai.simulation.cases.origin import Origin


def write_kind(kind: str, fields: Mapping[str, Any], console: Console, origin: "Origin | None" = None) -> None:
    """Write one document of a kind; ``origin`` is what it was read from."""
    write_document({**envelope(kind, origin), **fields}, console)


def write_document(document: Mapping[str, Any], console: Console) -> None:
    """Write one document: JSON on one line, or YAML."""
    if console.output == "json":
        console.write(json.dumps(document, ensure_ascii=console.plain))
        return
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes as YAML whatever JSON has a form for: a state is a word, though it is no plain string of Python."""

    Dumper.add_multi_representer(str, lambda dumper, word: dumper.represent_str(str(word)))
    text = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=not console.plain, width=120)
    console.write("---\n" + text.rstrip())
