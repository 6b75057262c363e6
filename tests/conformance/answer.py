"""Answers conformance cases: `python -m tests.conformance.answer FILE...` prints one JSON object a line.

A case's `kind` says who answers it: the function `answer` of the module `answer_<kind>` beside this one, which takes
the case without what is expected and returns the answer without the name of the case. A case without a kind is of kind
`scheduling`. A case that nobody can answer gets an `error`, so that the others are answered all the same.
"""

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from kai.api.codec.manifest_text import load_values
from kai.basics.errors import KaiError

Case: TypeAlias = dict[str, Any]


def read_case(path: Path) -> Case:
    """Return the case in the file, without what is expected: nobody who answers may see it."""
    (case,) = load_values(path.read_bytes(), str(path))
    return {key: value for key, value in case.items() if key != "expected"}


def answerer(kind: str) -> Callable[[Case], Case] | None:
    """Return who answers cases of ``kind``, or nothing when nobody does yet."""
    name = f"tests.conformance.answer_{kind}"
    if not kind.isidentifier() or importlib.util.find_spec(name) is None:
        return None
    found: Callable[[Case], Case] = importlib.import_module(name).answer
    return found


def answer(path: Path) -> Case:
    """Return the answer to the case in the file."""
    try:
        case = read_case(path)
        kind = case.get("kind", "scheduling")
        answer_case = answerer(kind)
        if answer_case is None:
            return {"scenario": str(path), "error": f"cases of kind {kind} are not answered yet"}
        return {"scenario": str(path), **answer_case(case)}
    except KaiError as error:
        return {"scenario": str(path), "error": f"{type(error).__name__}: {error}"}


def main(arguments: Iterable[str]) -> None:
    """Print the answers to the cases in the files, in their order."""
    for argument in arguments:
        sys.stdout.write(json.dumps(answer(Path(argument))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
