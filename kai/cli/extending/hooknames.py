"""Which extensions a plugin has, read from its source: opening it would need a cluster, and depend on it."""

import ast
import inspect
import sys
from typing import Final, get_args

from kai.framework.hooks import Extension

_EXTENSIONS: Final = frozenset(get_args(Extension))


def hooks_of(cls: type[object]) -> list[str]:
    """Return the extension points and terms that the module of ``cls`` makes instances of; none without source.

    Modules with several plugins are told apart by class; one that makes its extensions elsewhere in the module is not.
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
