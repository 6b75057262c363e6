import subprocess
import sys
from pathlib import Path
from threading import Thread

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from kai.facts.compiled import compiling, jit
from kai.facts.compiled.struct import Float64s, Struct

ROOT = Path(__file__).parents[4]
compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="with the JIT off there is nothing to compile")


class Amounts(Struct):
    """For the kernels of these tests."""

    values: Float64s
    factor: float


def run(program: str | Path) -> list[str]:
    """Return the lines that a program prints. Kernels of its own are kept beside it, so that it must be a file."""
    what = [program] if isinstance(program, Path) else ["-c", program]
    ran = subprocess.run([sys.executable, *what], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


BEGIN = """
import sys
import numpy as np
from kai.facts.kernels import is_plain, run_compiled, run_plainly
from kai.facts.kernels.fairshare import divide

def ask():
    one, none = np.ones(1), np.zeros(1, np.int64)
    return divide(4.0, none, none, one, -one, one, 0 * one, 3 * one, 1.0, np.zeros(1))

"""


@compiled
def test_only_compiled_kernels_import_the_compiler():
    program = """
run_plainly()
print(ask(), is_plain(), "numba" in sys.modules)
run_compiled()
print(ask(), is_plain(), "numba" in sys.modules, divide.func is divide.dispatcher)
run_plainly()
print(ask(), is_plain(), divide.func is divide.py_func)
"""
    assert run(BEGIN + program) == ["1.0 True False", "1.0 False True True", "1.0 True True"]


@compiled
def test_an_undecided_process_compiles_at_the_first_call():
    assert run(BEGIN + "print(is_plain(), ask(), is_plain(), divide.func is divide.dispatcher)") == [
        "None 1.0 False True"
    ]


def test_a_disabled_compiler_always_runs_kernels_plainly():
    program = "import os\nos.environ['NUMBA_DISABLE_JIT'] = '1'\n" + BEGIN + "run_compiled()\nprint(ask(), is_plain())"
    assert run(program) == ["1.0 True"]


@pytest.fixture
def plain(monkeypatch):
    """Run kernels plainly, and as before when the test is over."""
    before = jit.is_plain()
    jit.run_plainly()
    yield
    if before is not True:
        jit.run_compiled()


@compiled
def test_compiled_kernels_read_a_plain_struct_in_place(plain):
    @jit.inner
    def scaled(amounts, at):
        return amounts.values[at] * amounts.factor

    @jit.kernel
    def scale(amounts: Amounts) -> None:
        for at in range(amounts.values.shape[0]):
            amounts.values[at] = scaled(amounts, at)

    scale.py_func.__globals__["scaled"] = scaled
    amounts = Amounts(values=np.array([1.0, 2.0]), factor=3.0)
    scale(amounts)
    assert "_meminfo" not in vars(amounts)
    jit.run_compiled()
    scale(amounts)
    assert "_meminfo" in vars(amounts)
    assert (amounts.values.tolist(), amounts.factor) == ([9.0, 18.0], 3.0)
    jit.run_plainly()
    scale(amounts)
    assert amounts.values.tolist() == [27.0, 54.0]


@compiled
def test_references_that_kernels_make_are_given_back(tmp_path):
    """In a process of its own: what else is freed in this one would count, too."""
    program = tmp_path / "references.py"
    program.write_text("""
import sys
import numpy as np
from numba.core.runtime import nrt, rtsys
from kai.facts.compiled import jit
from kai.facts.compiled.struct import Float64s, Struct

class Amounts(Struct):
    values: Float64s
    factor: float

@jit.inner
def first(amounts):
    return amounts.values[:1]

@jit.inner
def doubled(amounts):
    return amounts.values * 2.0

@jit.inner
def only_reads(amounts):
    rest = amounts.values[1:]
    return rest[0] if rest.shape[0] > 0 else 0.0

@jit.kernel
def total(amounts: Amounts) -> float:
    part = first(amounts)
    return part[0] + doubled(amounts)[0] + only_reads(amounts)

@jit.kernel
def values_of(amounts: Amounts) -> Float64s:
    return amounts.values

def made_and_freed():
    stats = rtsys.get_allocation_stats()
    return np.array([stats.alloc, stats.free])

jit.run_compiled()
amounts = Amounts(values=np.array([1.0, 2.0]), factor=3.0)
total(amounts)
nrt._nrt.memsys_enable_stats()
before, references = made_and_freed(), sys.getrefcount(amounts.values)
print([total(amounts) for _ in range(3)], values_of(amounts).tolist())
print(*(made_and_freed() - before), sys.getrefcount(amounts.values) - references)
""")
    told, counted = run(program)
    assert told == "[5.0, 5.0, 5.0] [1.0, 2.0]"
    made, freed, more_references = map(int, counted.split())
    assert made == freed >= 3
    assert more_references == 0


def test_a_kernel_can_be_looked_at_like_its_function():
    @jit.kernel
    def half(amount: float) -> float:
        """Return half of it."""
        return amount / 2

    assert half.__doc__ == "Return half of it."
    assert half.py_func.__name__ == "half"
    assert half.__wrapped__ is half.py_func


def test_an_unusable_field_is_refused_by_name():
    with pytest.raises(
        TypeError, match=r"Amounts.values: found int64\[2\], expected a writable, contiguous array\(float64, 1d, C\)"
    ):
        Amounts(values=np.zeros(2, np.int64), factor=1.0)
    with pytest.raises(TypeError, match="fields missing or unknown: factor"):
        Amounts(values=np.zeros(2))


@pytest.mark.parametrize("hint", [str, NDArray[np.float64], list[int]])
def test_a_struct_with_unsupported_types_is_refused_when_defined(hint):
    with pytest.raises(TypeError, match=r"Odd\.racks: found .*, expected int, float, bool, an array type of kai"):
        type("Odd", (Struct,), {"__annotations__": {"racks": hint}})


def test_replacing_fields_validates_them_like_a_new_struct():
    amounts = Amounts(values=np.zeros(2), factor=1.0)
    assert vars(amounts.replace(factor=2.0)) == {"values": amounts.values, "factor": 2.0}
    assert amounts.factor == 1.0
    with pytest.raises(TypeError, match="Amounts: fields unknown: size"):
        amounts.replace(size=1)
    with pytest.raises(TypeError, match=r"Amounts.values: found float64\[1, 2\], expected"):
        amounts.replace(values=np.zeros((1, 2)))


@compiled
def test_a_locked_struct_shares_memory_with_the_first(plain):
    @jit.kernel
    def double(amounts: Amounts) -> None:
        for at in range(amounts.values.shape[0]):
            amounts.values[at] *= 2.0

    jit.run_compiled()
    amounts = Amounts(values=np.array([1.0, 2.0]), factor=3.0)
    locked = amounts.locked()
    with pytest.raises(ValueError, match="read-only"):
        locked.values[0] = 5.0
    double(locked)
    assert locked._meminfo is amounts._meminfo
    other = locked.replace(values=np.array([7.0]))
    double(other)
    assert (amounts.values.tolist(), other.values.tolist()) == ([2.0, 4.0], [14.0])


@compiled
def test_threads_preparing_together_compile_each_kernel_once(monkeypatch):
    def half(amount: float) -> float:
        return amount / 2

    def double(amount: float) -> float:
        return amount * 2

    failures, known = [], []

    def want():
        try:
            jit.prepare()
        except IndexError as error:
            failures.append(error)

    other = Thread(target=want)

    def compile_slowly(function, **_options):
        known.append(function)
        if len(known) == 1:
            other.start()
            other.join(timeout=0.2)  # long enough for it to overtake, were it not made to wait
        return function

    monkeypatch.setattr(jit, "STRUCTS", [])
    monkeypatch.setattr(jit, "_pending", [half, double])
    monkeypatch.setattr(compiling, "compiled", compile_slowly)
    monkeypatch.setattr(compiling, "type_of", lambda _function: None)
    want()
    other.join()
    assert (failures, known) == ([], [half, double])
