"""Which hooks a plugin offers, read from its source: opening it would need a cluster, and depend on it."""

import ast
import inspect
import sys

from kai.framework import terms

_SILENT = frozenset({"terms", "concerns", "detail", "proposer", "explain_nodes", "credit_nodes"})


def hooks_of(cls: type[object]) -> list[str]:
    """Return the hooks that the module of ``cls`` passes to ``Hooks``, and the terms it declares; none without source.

    Modules with several plugins are told apart by class; one that builds its hooks elsewhere in the module is not.
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
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        called = getattr(sys.modules[cls.__module__], node.func.id, None)
        if node.func.id == "Hooks":
            found |= {keyword.arg for keyword in node.keywords if keyword.arg}
        elif getattr(called, "__module__", "") == terms.__name__:
            found.add(str(getattr(called, "__name__", "")))
    return {name for name in found - _SILENT if not name.endswith("_depends")}
