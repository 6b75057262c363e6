"""Code on the event loop never blocks it: a lease would not be renewed in time."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import AnyFunction, Module, modules

BLOCKING = {
    "input",
    "open",
    "os.system",
    "requests.*",
    "shutil.*",
    "socket.create_connection",
    "subprocess.*",
    "threading.Lock",
    "time.sleep",
    "urllib.request.urlopen",
    "urllib3.*",
}
# Methods of pathlib.Path; no object of ours has one of these names.
BLOCKING_METHODS = {"read_bytes", "read_text", "write_bytes", "write_text"}


def test_nothing_blocks_inside_an_async_function() -> None:
    found = [f"{module.place}:{line}: {call}" for module in modules() for line, call in blocking_calls(module)]
    assert not found, f"await an anyio equivalent, or hand these to a worker thread: {found}"


@pytest.mark.parametrize(
    "call",
    ["time.sleep(1)", "requests.get(url)", "open(path)", "subprocess.run(args)", "pathlib.Path(name).read_text()"],
)
def test_the_check_sees_a_blocking_call(call: str) -> None:
    module = parsed(f"async def watch():\n    {call}\n")
    assert [line for line, _ in blocking_calls(module)] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "async def watch():\n    await anyio.sleep(1)\n",
        "def load():\n    open(path)\n",
        "async def watch():\n    def load():\n        open(path)\n    await to_thread.run_sync(load)\n",
    ],
    ids=["awaited", "not async", "in a function for a worker thread"],
)
def test_the_check_lets_others_pass(text: str) -> None:
    assert not list(blocking_calls(parsed(text)))


def parsed(text: str) -> Module:
    return Module(modules()[0].path, text)


def blocking_calls(module: Module) -> Iterator[tuple[int, str]]:
    for function in module.functions():
        if isinstance(function, ast.AsyncFunctionDef):
            for node in own_nodes(function):
                if isinstance(node, ast.Call) and blocks(node.func):
                    yield node.lineno, ast.unparse(node.func)


def own_nodes(function: AnyFunction) -> Iterator[ast.AST]:
    """Yield what runs when ``function`` runs: not the bodies of functions that it only defines."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, AnyFunction | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def blocks(called: ast.expr) -> bool:
    name = ast.unparse(called)
    if name in BLOCKING or f"{name.split('.')[0]}.*" in BLOCKING:
        return True
    return isinstance(called, ast.Attribute) and called.attr in BLOCKING_METHODS
