import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from kai.facts.compiled import cache
from kai.facts.compiled.warm import warm

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="with the JIT off nothing is cached")

# Permission bits do not bind root, so the file system is read-only by refusal: every attempt to open a file for
# writing, to make a directory or to move a file fails as it does there.
READ_ONLY = """
import errno, os, sys

def refuse(event, arguments):
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event in {"os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink"}:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))

sys.addaudithook(refuse)
"""
GIVE = """
import numpy as np
from kai.facts.compiled.cache import directory
from kai.facts.kernels.fairshare import give_quota

three, shares = np.full(1, 3.0), np.zeros(1)
print(give_quota(4.0, three, three, shares))
print(shares.tolist(), dict(give_quota.dispatcher.stats.cache_hits) != {}, directory())
"""

TWICE = f"""
import numba
from llvmlite import binding

parsed = []
parse = binding.parse_bitcode
binding.parse_bitcode = lambda code: parsed.append(len(code)) or parse(code)
{GIVE}
before = max(parsed, default=0)

@numba.njit
def twice(amount, three, shares):
    return 2 * give_quota(amount, three, three, shares)

print(twice(4.0, three, np.zeros(1)), before < 2000 < max(parsed))
"""

NONE_LARGE = """
from kai.facts.compiled import linking

linking.LARGE = 1 << 20
"""
LOADED = f"""
import sys
{GIVE}
from numba.core.runtime import rtsys

print("numba.typed.typeddict" in sys.modules, rtsys._init)
"""

KERNEL = """
from kai.facts.compiled.jit import kernel
from kai.facts.kernels.fairshare import give_quota

@kernel
def twice(amount, three, shares):
    return 2 * give_quota(amount, three, three, shares)
"""
REPLACED = f"""
{GIVE}
for file in directory().glob("fairshare.give_quota*.nbc"):
    file.unlink()
"""
BEGIN = """
import numpy as np
from kai.facts.compiled.cache import directory

three = np.full(1, 3.0)
"""
CALLED = """
from kai.facts.kernels.twice import twice
print(twice(4.0, three, np.zeros(1)), len(list(directory().glob("twice.twice*.nbc"))))
"""


def run(program: str, folder: Path, **environment: str) -> list[str]:
    """Run a program in ``folder`` with nothing but ``environment`` and a home that is empty; return what it prints."""
    settings = {
        "HOME": str(folder / "home"),
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(folder),
        **environment,
    }
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def copy_kernels(folder: Path) -> None:
    """Copy the kernels and their compiler into ``folder``; they need nothing else of kai."""
    facts = folder / "kai" / "facts"
    for part in ("compiled", "kernels"):
        shutil.copytree(cache.PACKAGE.with_name(part), facts / part, ignore=shutil.ignore_patterns("__pycache__"))
    for package in (facts.parent, facts):
        (package / "__init__.py").touch()


@pytest.fixture
def copied(tmp_path):
    """Return a folder with a copy of the kernels that nothing was compiled of yet."""
    copy_kernels(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a folder with a copy of the kernels, one of them compiled, and what the program said that compiled it."""
    folder = tmp_path_factory.mktemp("compiled")
    copy_kernels(folder)
    return folder, run(GIVE, folder, NUMBA_CACHE_DIR=str(folder / "cache"))


@pytest.fixture
def filled(compiled, tmp_path):
    """Return a copy of that folder."""
    return shutil.copytree(compiled[0], tmp_path / "filled")


def test_a_filled_read_only_cache_is_used():
    warmth = warm()
    if warmth.directory is None:
        pytest.skip("there is no directory that kernels could have been kept in")
    program = READ_ONLY + "from kai.facts.compiled.warm import warm\nprint(*warm())"
    folder = cache.PACKAGE.parents[2]
    out = run(program, folder, NUMBA_CACHE_DIR=str(warmth.directory.parent))
    assert out == [f"{warmth.kernels} 0 {warmth.directory}"]


def test_without_a_writable_place_kernels_run_uncached(copied):
    out = run(READ_ONLY + GIVE, copied, NUMBA_CACHE_DIR=str(copied / "cache"))
    assert out == ["1.0", "[3.0] False None"]


def test_the_named_directory_is_filled_and_then_only_read(compiled, filled):
    folder, said = compiled
    name = f"kernels-{cache.fingerprint()}"
    assert said == ["1.0", f"[3.0] False {folder / 'cache' / name}"]
    kept = filled / "cache" / name
    assert list(kept.iterdir())
    assert run(READ_ONLY + GIVE, filled, NUMBA_CACHE_DIR=str(filled / "cache")) == ["1.0", f"[3.0] True {kept}"]
    # What is not there is compiled without a word, and not kept.
    for file in kept.glob("fairshare.give_quota*"):
        file.rename(file.with_name(f"another{file.suffix}"))
    assert run(READ_ONLY + GIVE, filled, NUMBA_CACHE_DIR=str(filled / "cache")) == ["1.0", f"[3.0] False {kept}"]


def test_what_was_compiled_for_another_processor_is_not_loaded(filled):
    """A home on a network, an image on older machines: what its kernels may execute is a part of their key."""
    settings = {"NUMBA_CACHE_DIR": str(filled / "cache")}
    kept = filled / "cache" / f"kernels-{cache.fingerprint()}"
    of_any = {"NUMBA_CPU_NAME": "generic"}  # without features, as in the image: good for each processor of its kind
    with_less = {"NUMBA_CPU_FEATURES": "-avx,-avx2,-fma"}
    for other in (of_any, with_less):
        assert run(READ_ONLY + GIVE, filled, **settings, **other) == ["1.0", f"[3.0] False {kept}"]
        assert run(GIVE, filled, **settings, **other) == ["1.0", f"[3.0] False {kept}"]
    # Each finds its own beside those of the others.
    for own in ({}, of_any, with_less):
        assert run(READ_ONLY + GIVE, filled, **settings, **own) == ["1.0", f"[3.0] True {kept}"]


def test_loading_parses_bitcode_only_for_compiling_another_kernel(copied):
    kept = copied / "cache" / f"kernels-{cache.fingerprint()}"
    # How many instructions a function has, and so whether it is large, depends on the processor.
    run(NONE_LARGE + GIVE, copied, NUMBA_CACHE_DIR=str(copied / "cache"))
    out = run(NONE_LARGE + TWICE, copied, NUMBA_CACHE_DIR=str(copied / "cache"))
    assert out == ["1.0", f"[3.0] True {kept}", "2.0 True"]


def test_loading_a_kernel_does_not_prepare_the_compiler(compiled, filled):
    out = run(LOADED, filled, NUMBA_CACHE_DIR=str(filled / "cache"))
    assert out == ["1.0", f"[3.0] True {filled / 'cache' / compiled[1][-1].rpartition('/')[-1]}", "False False"]


def test_a_kernel_without_bitcode_is_called_by_its_callers(filled):
    (filled / "kai" / "facts" / "kernels" / "twice.py").write_text(KERNEL, encoding="utf-8")
    settings = {"NUMBA_CACHE_DIR": str(filled / "cache")}
    run(GIVE, filled, **settings)
    assert run(REPLACED + CALLED, filled, **settings)[2:] == ["2.0 1"]
    # What was kept names the kernel that it calls, which is compiled again here and loaded after that.
    for _ in range(2):
        assert run(BEGIN + CALLED, filled, **settings) == ["2.0 1"]


LARGE = """
from kai.facts.compiled import linking

linking.LARGE = 1
"""
DOUBLES = """
import numpy as np
from kai.facts.compiled.linking import _defined
from racks.kernels import double
from watts.amounts import more

values = np.ones(2)
print(double(values), len(_defined), dict(double.dispatcher.stats.cache_hits) != {})
"""
DOUBLING = """
from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Float64s
from watts.amounts import more

@inner
def add_up(values: Float64s) -> float:
    return more(values[0]) + more(values[1])

@kernel
def double(values: Float64s) -> float:
    return 2.0 * add_up(values)
"""


@pytest.fixture
def doubling(tmp_path):
    """Return a folder with a kernel that calls functions of its own package and of another."""
    copy_kernels(tmp_path)
    for package, module, text in (("racks", "kernels", DOUBLING), ("watts", "amounts", AMOUNTS)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{module}.py").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_small_function_has_no_own_machine_code(doubling):
    settings = {"NUMBA_CACHE_DIR": str(doubling / "cache")}
    assert run(DOUBLES, doubling, **settings) == ["8.0 1 False"]
    assert run(DOUBLES, doubling, **settings) == ["8.0 1 True"]


def test_a_large_function_is_compiled_once_and_loaded_first(doubling):
    settings = {"NUMBA_CACHE_DIR": str(doubling / "cache")}
    assert run(LARGE + DOUBLES, doubling, **settings) == ["8.0 3 False"]
    # A process that thinks otherwise of what is large loads what was kept.
    assert run(DOUBLES, doubling, **settings) == ["8.0 3 True"]


def test_a_kernel_recompiles_when_its_callee_becomes_small(doubling):
    settings = {"NUMBA_CACHE_DIR": str(doubling / "cache")}
    run(LARGE + DOUBLES, doubling, **settings)
    for file in (doubling / "cache").glob("watts-*/*"):
        file.unlink()
    assert run(DOUBLES, doubling, **settings)[0].startswith("8.0")
    assert run(DOUBLES, doubling, **settings)[0].startswith("8.0")


def test_a_callee_missing_from_the_cache_is_recompiled(doubling):
    settings = {"NUMBA_CACHE_DIR": str(doubling / "cache")}
    run(LARGE + DOUBLES, doubling, **settings)
    for file in (doubling / "cache").glob("watts-*/*.nbc"):
        file.unlink()
    assert run(LARGE + DOUBLES, doubling, **settings) == ["8.0 3 True"]


def test_two_processes_give_a_function_one_name(doubling):
    program = DOUBLES + "print(*sorted(_defined))"
    first, second = (run(LARGE + program, doubling, NUMBA_CACHE_DIR=str(doubling / each)) for each in ("a", "b"))
    assert first == second
    change(doubling / "watts" / "amounts.py", "+ 1.0", "+ 3.0")
    names = run(LARGE + program, doubling, NUMBA_CACHE_DIR=str(doubling / "c"))[1].split()
    assert not set(names) & set(first[1].split())


def test_another_kernel_source_is_another_directory(copied):
    source = copied / "kai" / "facts" / "kernels" / "fairshare.py"
    program = "from kai.facts.compiled.cache import fingerprint\nprint(fingerprint())"
    before = run(program, copied)
    (copied / "kai" / "facts" / "compiled" / "warm.py").write_text(
        (copied / "kai" / "facts" / "compiled" / "warm.py").read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8"
    )
    assert run(program, copied) == before
    source.write_text(source.read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8")
    assert run(program, copied) != before


STRANGER = """
from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Float64s, Struct
from watts.amounts import EACH, more

class Racks(Struct):
    drawn: Float64s

@kernel
def draw(racks: Racks, watts: float) -> float:
    racks.drawn[0] += more(watts) * EACH
    return racks.drawn[0]
"""
AMOUNTS = """
from kai.facts.compiled.jit import inner

EACH = 2.0

@inner
def more(watts: float) -> float:
    return watts + 1.0
"""
DRAW = """
import numpy as np
from racks.kernels import Racks, draw
from kai.facts.compiled import cache

print(draw(Racks(drawn=np.zeros(1)), 1.0))
hits = [kernel.dispatcher.stats.cache_hits for kernel in (draw, Racks.constructor)]
print(*(bool(found) for found in hits), cache.directory("racks").name)
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Return a folder with two packages of strangers beside kai, both compiled, and what the program said.

    One of them takes a kernel and a number of the other.
    """
    folder = tmp_path_factory.mktemp("drawn")
    copy_kernels(folder)
    for package, module, text in (("racks", "kernels", STRANGER), ("watts", "amounts", AMOUNTS)):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        (folder / package / f"{module}.py").write_text(text, encoding="utf-8")
    return folder, draw(folder)


@pytest.fixture
def strange(drawn, tmp_path):
    """Return a copy of that folder."""
    return shutil.copytree(drawn[0], tmp_path / "strange")


def draw(folder: Path) -> list[str]:
    return run(DRAW, folder, NUMBA_CACHE_DIR=str(folder / "cache"))


def change(file: Path, before: str, after: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def test_a_foreign_packages_kernels_have_their_own_directory(drawn, strange):
    kept = drawn[1][1].split()[-1]
    assert drawn[1] == ["4.0", f"False False {kept}"]
    assert draw(strange) == ["4.0", f"True True {kept}"]
    folders = {each.name.rpartition("-")[0] for each in (strange / "cache").iterdir()}
    assert folders == {"kernels", "racks", "watts"}
    assert list((strange / "cache" / kept).glob("*.nbi"))


def test_editing_a_foreign_kernel_recompiles_only_its_package(strange):
    ours = {each: each.stat().st_mtime_ns for each in (strange / "cache").glob("kernels-*/*")}
    change(strange / "racks" / "kernels.py", "+=", "-=")
    kept = draw(strange)[1].split()[-1]
    assert draw(strange) == ["-4.0", f"True True {kept}"]
    assert {each: each.stat().st_mtime_ns for each in (strange / "cache").glob("kernels-*/*")} == ours


@pytest.mark.parametrize(
    ("before", "after", "value"), [("+ 1.0", "+ 3.0", "8.0"), ("EACH = 2.0", "EACH = 5.0", "10.0")]
)
def test_editing_what_a_foreign_kernel_imports_recompiles_it(strange, before, after, value):
    change(strange / "watts" / "amounts.py", before, after)
    assert draw(strange)[0] == value


def test_a_struct_of_a_stranger_may_get_another_field(strange):
    change(strange / "racks" / "kernels.py", "drawn: Float64s", "spare: Float64s\n    drawn: Float64s")
    program = DRAW.replace("(drawn=", "(spare=np.ones(3), drawn=")
    assert run(program, strange, NUMBA_CACHE_DIR=str(strange / "cache"))[0] == "4.0"


def test_a_kernel_without_types_is_named_when_warmed(strange):
    change(strange / "racks" / "kernels.py", "watts: float)", "watts)")
    program = """
import racks.kernels
from kai.facts.compiled.warm import kernels_of, signature

print(*(each.py_func.__name__ for each in kernels_of("racks.plugin") if each.py_func.__module__ == "racks.kernels"))
print(racks.kernels.draw in kernels_of("watts.plugin"))
try:
    signature(racks.kernels.draw.py_func)
except TypeError as error:
    print(error)
"""
    out = run(program, strange, NUMBA_CACHE_DIR=str(strange / "cache"))
    assert out[:2] == ["draw", "False"]
    assert out[2].startswith(
        "kernel racks.kernels.draw: parameter watts: found no type, expected int, float, bool, an array type"
    )
