"""Every kernel that the engine calls has a plain-Python twin that says the same the long way."""

import ast
import subprocess
import sys

from noxfile import NO_KERNEL
from tests.architecture.source import ROOT, AnyFunction, Module, modules

TWINS = ROOT / "tests" / "kernels"
COMPOSITES = {"allocate_groups", "propose_first", "is_final", "reclaim_groups"}
"""Whole phases of a cycle: they are compared with the plain engine, decision by decision (tests/properties)."""


def kernels() -> dict[str, str]:
    """Return name and place of every function under ``@kernel``, those of built-in plugins included."""
    return {
        function.name: f"{module.place}:{function.lineno}"
        for folder in ("facts/kernels", "plugins")
        for module in modules(ROOT / "kai" / folder)
        for function in module.functions()
        if is_kernel(function)
    }


def is_kernel(function: AnyFunction) -> bool:
    return any(
        isinstance(name, ast.Name) and name.id == "kernel"
        for decorator in function.decorator_list
        for name in [decorator.func if isinstance(decorator, ast.Call) else decorator]
    )


def is_home(module: str) -> bool:
    """Say whether kernels may be imported from ``module``: ours, the public doors, a plugin's own."""
    return module.startswith(("kai.facts.kernels", "kai.framework.fairness", "kai.framework.kernel", "kai.plugins."))


def names_taken(module: Module) -> set[str]:
    """Return the names that ``module`` takes from where kernels are, imported or reached through one of its modules."""
    taken: set[str] = set()
    reached_through: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and is_home(node.module or ""):
            taken |= {name.name for name in node.names}
            reached_through |= {name.asname or name.name for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module == "kai.facts":
            reached_through |= {name.asname or name.name for name in node.names if name.name == "kernels"}
    taken |= {
        node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node).split(".")[0] in reached_through
    }
    return taken


def called_kernels() -> dict[str, str]:
    """Return the kernels that other code calls; one that only kernels call is compared through them."""
    outside = [module for module in modules() if not module.name.startswith("kai.facts.kernels")]
    taken = set().union(*(names_taken(module) for module in outside))
    return {name: place for name, place in kernels().items() if name in taken}


def naive_modules() -> list[Module]:
    """Return ``tests/kernels/naive.py``, or the modules of a package of that name."""
    return [module for module in modules(TWINS) if module.path.relative_to(TWINS).parts[0].split(".")[0] == "naive"]


def test_every_kernel_has_a_naive_twin() -> None:
    assert naive_modules(), f"no twins in {TWINS}"
    twins = {function.name for module in naive_modules() for function in module.functions()}
    missing = {name: place for name, place in called_kernels().items() if name not in twins | COMPOSITES}
    assert not missing, "no function of the same name in tests/kernels/naive: " + ", ".join(
        f"{name} ({place})" for name, place in sorted(missing.items())
    )


def test_twins_import_no_kernel() -> None:
    borrowed = {
        module.place: sorted(names) for module in naive_modules() if (names := names_taken(module) & set(kernels()))
    }
    assert not borrowed, f"a twin that calls the kernel proves nothing: {borrowed}"


def test_what_the_plain_run_leaves_out_runs_no_kernel() -> None:
    assert NO_KERNEL
    for path in NO_KERNEL:
        name = path.removesuffix(".py").replace("/", ".")
        look = f"import sys, {name}; print(*(each for each in sys.modules if each.startswith('kai.facts.kernels')))"
        seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False, cwd=ROOT)
        assert (seen.returncode, seen.stdout.split()) == (0, []), f"{path}: {seen.stderr}"
