"""No module of kai imports itself by way of others, not even for types only."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.architecture.source import Module, modules


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = {module.name: module for module in modules()}
    edges = {name: set(imported(module, known)) - {name} for name, module in known.items()}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        raise AssertionError(f"an import circle: {' <- '.join(error.args[1])}") from None


def imported(module: Module, known: Mapping[str, Module]) -> Iterator[str]:
    """Yield the modules of kai that ``module`` names in its imports, those for type checkers included."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module
