"""Metrics follow typed signals: no function that feeds a metric decides by a text or by the name of a class."""

import ast

import pytest

from tests.architecture.source import AnyFunction, Module, modules


def test_no_metric_depends_on_a_text() -> None:
    found = [
        f"{module.place}:{line}"
        for module in modules()
        for function in module.functions()
        if feeds_metrics(function, module)
        for line in texts_that_decide(function)
    ]
    assert not found, f"match the class of a signal, or a member of an enumeration: {found}"


def feeds_metrics(function: AnyFunction, module: Module) -> bool:
    """Return whether a function keeps metrics or calls what does."""
    if any(isinstance(node, ast.ImportFrom) and node.module == "prometheus_client" for node in module.tree.body):
        return True
    names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return bool(names & {"metrics", "observe"})


def texts_that_decide(function: AnyFunction) -> list[int]:
    """Return the lines at which a function compares something with a text, or asks for the name of a class."""
    lines = []
    for node in ast.walk(function):
        if isinstance(node, ast.MatchValue) and is_text(node.value):
            lines.append(node.value.lineno)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            # A key that is looked for in a part of a mapping is data; a text that is looked for in a name is not.
            sides = () if isinstance(node.comparators[0], ast.Subscript) else (node.left, *node.comparators)
            lines += [node.lineno for each in sides if is_text(each) or is_class_name(each)]
        elif isinstance(node, ast.Match) and is_class_name(node.subject):
            lines.append(node.lineno)
    return lines


def is_text(node: ast.expr) -> bool:
    """Return whether a node is a text that says something; to be empty is a state."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def is_class_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in {"__name__", "__qualname__"}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("match signal:\n  case Evicted(): self.metrics.one()", 0),
        ("if phase is Phase.OPEN: self.metrics.one()", 0),
        ("if name == '': self.metrics.one()", 0),
        ("match noted.what:\n  case 'evicted': self.metrics.one()", 1),
        ("match type(value).__name__:\n  case Evicted.NAME: self.metrics.one()", 1),
        ("if error.kind == Stop.__name__: self.metrics.one()", 1),
        ("if 'evicted' in message: self.metrics.one()", 1),
    ],
)
def test_the_check_finds_what_decides_by_a_text(body: str, count: int) -> None:
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    tree = ast.parse(f"def take(self, signal):\n{lines}")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert len(texts_that_decide(function)) == count
