import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numba
import numpy as np
import pytest

from kai.kernels import Warmth, warm
from kai.kernels.__main__ import load_plugins, main
from kai.kernels._jit import KERNELS
from kai.kernels.fit import Rules
from kai.kernels.struct import Float64s, Float64Table
from kai.kernels.warm import signature

ROOT = Path(__file__).parents[3]
compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="with the JIT off there is nothing to compile")

SIMULATION = """
from kai.kernels import warm
from kai.kernels.__main__ import load_plugins
from kai.kernels._jit import KERNELS
from kai.simulation import simulate
from kai.simulation.scenario import read_scenario
from tests.generate.scenario import generate

def signatures():
    return {kernel.py_func.__qualname__: list(kernel.signatures) for kernel in KERNELS}

warm(*load_plugins()[0])
before = signatures()
decisions = 0
for seed in range(SEEDS):
    made = generate(seed)
    outcome = simulate(read_scenario(made, made["name"]))
    decisions += sum(len(cycle.decisions) for cycle in outcome.cycles)
print(decisions)
print(*sorted(name for name, found in signatures().items() if found != before.get(name)))
"""


@compiled
def test_simulations_of_everything_compile_nothing_that_warming_did_not():
    program = SIMULATION.replace("SEEDS", "40")
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    decisions, compiled_again = ran.stdout.splitlines()
    assert int(decisions) > 100
    assert compiled_again == ""


@compiled
def test_warming_again_changes_nothing():
    first = warm()
    before = [list(kernel.signatures) for kernel in KERNELS]
    second = warm()
    assert second.compiled == 0
    assert (second.kernels, second.directory) == (first.kernels, first.directory)
    assert [list(kernel.signatures) for kernel in KERNELS] == before


@compiled
def test_every_kernel_is_warmed_constructors_of_structs_included():
    warm(*load_plugins()[0])
    names = {kernel.py_func.__name__ for kernel in KERNELS}
    assert {"add", "allocate_groups", "divide", "place_pods", "spans", "make_Columns", "make_Zones"} <= names
    assert all(signature(kernel.py_func) in kernel.signatures for kernel in KERNELS)


@compiled
def test_a_signature_is_what_the_parameters_are_annotated_with():
    zeros = {"limits": False, "fair_order": False, "elastic_key": 0}
    rules = Rules(**{name: zeros.get(name, 0.0) for name in Rules._fields})

    def of_everything(rules, count, flag, vector, table):
        """Do nothing."""

    kinds = {"rules": Rules, "count": int, "flag": bool, "vector": Float64s, "table": Float64Table, "return": int}
    of_everything.__annotations__ = kinds
    assert signature(of_everything) == tuple(map(numba.typeof, (rules, 1, True, np.zeros(1), np.zeros((1, 1)))))


@compiled
def test_the_name_that_a_struct_has_in_compiled_code_is_short_and_its_own():
    warm()
    kinds = {kind for kernel in KERNELS for kind in signature(kernel.py_func) if hasattr(kind, "field_dict")}
    assert len(kinds) > 5
    assert max(len(str(kind)) for kind in kinds) < 60
    assert len({str(kind) for kind in kinds}) == len(kinds) == len({type(kind) for kind in kinds})


@compiled
def test_the_program_says_where_kernels_are_kept(capsys):
    assert main(["warm"]) == (0 if warm().directory else 1)
    said = capsys.readouterr()
    warmth = warm(*load_plugins()[0])
    assert str(warmth.directory or "nothing can be kept") in said.out + said.err
    assert f"{warmth.kernels} kernels" in said.out + said.err


def test_plugins_are_loaded_before_kernels_are_compiled_and_one_that_is_missing_is_named(monkeypatch):
    points = (
        EntryPoint("topology", "kai.plugins.topology:Topology", "kai.plugins"),
        EntryPoint("gone", "kai_gone:Gone", "kai.plugins"),
    )
    monkeypatch.setattr("kai.kernels.__main__.entry_points", lambda group: points if group == "kai.plugins" else ())
    modules, missing = load_plugins()
    assert modules == ["kai.plugins.topology.plugin"]
    assert missing == ["plugin 'gone' cannot be loaded from kai_gone:Gone: No module named 'kai_gone'"]


@pytest.mark.parametrize(
    ("warmth", "text"),
    [
        (Warmth(0, 0, None), "there are no kernels to compile while NUMBA_DISABLE_JIT is set\n"),
        (Warmth(5, 5, None), "5 kernels run, but nothing can be kept: NUMBA_CACHE_DIR names no such place\n"),
    ],
)
def test_a_build_that_keeps_no_kernels_fails(warmth, text, monkeypatch, capsys):
    monkeypatch.setattr("kai.kernels.__main__.warm", lambda *_modules: warmth)
    assert main(["warm"]) == 1
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("arguments", [[], ["cool"], ["warm", "now"]])
def test_anything_else_is_explained(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m kai.kernels warm\n"
