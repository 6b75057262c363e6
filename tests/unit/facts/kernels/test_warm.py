import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from kai.cli.about import load_plugins
from kai.facts.compiled.jit import KERNELS, prepare
from kai.facts.compiled.struct import Float64s, Float64Table
from kai.facts.compiled.warm import kernels_of, missing, signature, warm
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.fragments import no_mix

ROOT = Path(__file__).parents[4]
compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="with the JIT off there is nothing to compile")

SIMULATION = """
from kai.cli.about import load_plugins
from kai.facts.compiled.jit import KERNELS
from kai.facts.compiled.warm import warm
from kai.answers.offline.run import simulate
from kai.lab.scenarios.scenario import read_scenario
from tests.generate.scenario import generate

def signatures():
    return {kernel.py_func.__qualname__: list(kernel.dispatcher.signatures) for kernel in KERNELS}

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
    before = [list(kernel.dispatcher.signatures) for kernel in KERNELS]
    second = warm()
    assert second.compiled == 0
    assert (second.kernels, second.directory) == (first.kernels, first.directory)
    assert [list(kernel.dispatcher.signatures) for kernel in KERNELS] == before


@compiled
def test_warm_kernels_are_not_missing_or_compiled_again():
    warm()
    told = []
    assert missing() == []
    warm(tell=lambda done, total: told.append((done, total)))
    assert told == []


@compiled
def test_every_kernel_is_warmed_constructors_of_structs_included():
    modules = load_plugins()[0]
    warm(*modules)
    kernels = kernels_of(*modules)
    names = {kernel.py_func.__name__ for kernel in kernels}
    assert {"add", "allocate_groups", "divide", "place_pods", "spans", "make_Columns", "make_Zones"} <= names
    assert all(signature(kernel.py_func) in kernel.dispatcher.signatures for kernel in kernels)


@compiled
def test_a_signature_is_what_the_parameters_are_annotated_with():
    prepare()
    zeros = {"limits": False, "fair_order": False, "elastic_key": 0, "mix": no_mix()}
    rules = Rules(**{name: zeros.get(name, 0.0) for name in Rules._fields})

    def of_everything(rules, count, flag, vector, table):
        """Do nothing."""

    kinds = {"rules": Rules, "count": int, "flag": bool, "vector": Float64s, "table": Float64Table, "return": int}
    of_everything.__annotations__ = kinds
    assert signature(of_everything) == tuple(map(numba.typeof, (rules, 1, True, np.zeros(1), np.zeros((1, 1)))))


@compiled
def test_struct_types_have_short_unique_names():
    warm()
    kinds = {kind for kernel in kernels_of() for kind in signature(kernel.py_func) if hasattr(kind, "field_dict")}
    assert len(kinds) > 5
    assert max(len(str(kind)) for kind in kinds) < 60
    assert len({str(kind) for kind in kinds}) == len(kinds) == len({type(kind) for kind in kinds})
