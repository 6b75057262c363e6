import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from kai.kernels import cache
from kai.kernels.warm import warm

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
DIVIDE = """
import numpy as np
from kai.kernels.cache import directory
from kai.kernels.fairshare import divide

one, shares = np.ones(1), np.zeros(1)
print(divide(4.0, np.zeros(1, np.int64), np.zeros(1, np.int64), one, -one, one, 0 * one, 3 * one, 1.0, shares))
print(shares.tolist(), dict(divide.dispatcher.stats.cache_hits) != {}, directory())
"""

TWICE = f"""
import numba
from llvmlite import binding
from kai.kernels import fairshare

parsed = []
parse = binding.parse_bitcode
binding.parse_bitcode = lambda code: parsed.append(len(code)) or parse(code)
{DIVIDE}
before = max(parsed)

@numba.njit
def twice(amount, zeros, one, shares):
    return 2 * divide(amount, zeros, zeros, one, -one, one, 0 * one, 3 * one, 1.0, shares)

print(twice(4.0, np.zeros(1, np.int64), one, np.zeros(1)), before < 2000 < max(parsed))
"""

KERNEL = """
from kai.kernels._jit import kernel
from kai.kernels.fairshare import divide

@kernel
def twice(amount, zeros, one, shares):
    return 2 * divide(amount, zeros, zeros, one, -one, one, 0 * one, 3 * one, 1.0, shares)
"""
REPLACED = f"""
{DIVIDE}
for file in directory().glob("fairshare.divide*.nbc"):
    file.unlink()
"""
CALLED = """
from kai.kernels.twice import twice
print(twice(4.0, np.zeros(1, np.int64), one, np.zeros(1)), len(list(directory().glob("twice.twice*.nbc"))))
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


@pytest.fixture
def copied(tmp_path):
    """Return a folder with a copy of the kernels that nothing was compiled of yet; they need nothing else of kai."""
    shutil.copytree(cache.PACKAGE, tmp_path / "kai" / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "kai" / "__init__.py").touch()
    return tmp_path


def test_a_filled_directory_that_cannot_be_written_to_is_read():
    warmth = warm()
    if warmth.directory is None:
        pytest.skip("there is no directory that kernels could have been kept in")
    program = READ_ONLY + "from kai.kernels.warm import warm\nprint(*warm())"
    folder = cache.PACKAGE.parents[1]
    out = run(program, folder, NUMBA_CACHE_DIR=str(warmth.directory.parent))
    assert out == [f"{warmth.kernels} 0 {warmth.directory}"]


def test_without_any_place_to_write_kernels_run_and_nothing_is_kept(copied):
    out = run(READ_ONLY + DIVIDE, copied, NUMBA_CACHE_DIR=str(copied / "cache"))
    assert out == ["1.0", "[3.0] False None"]


def test_the_directory_that_was_named_is_filled_and_then_only_read(copied):
    kept = copied / "cache" / f"kernels-{cache.fingerprint()}"
    assert run(DIVIDE, copied, NUMBA_CACHE_DIR=str(copied / "cache")) == ["1.0", f"[3.0] False {kept}"]
    files = sorted(kept.iterdir())
    assert files
    assert run(READ_ONLY + DIVIDE, copied, NUMBA_CACHE_DIR=str(copied / "cache")) == ["1.0", f"[3.0] True {kept}"]
    # What is not there is compiled without a word, and not kept.
    shutil.copytree(kept, copied / "partly" / kept.name, ignore=lambda _, names: [n for n in names if "divide" in n])
    kept = copied / "partly" / kept.name
    assert run(READ_ONLY + DIVIDE, copied, NUMBA_CACHE_DIR=str(copied / "partly")) == ["1.0", f"[3.0] False {kept}"]


def test_bitcode_is_parsed_only_when_a_loaded_kernel_is_compiled_into_another(copied):
    kept = copied / "cache" / f"kernels-{cache.fingerprint()}"
    run(DIVIDE, copied, NUMBA_CACHE_DIR=str(copied / "cache"))
    out = run(TWICE, copied, NUMBA_CACHE_DIR=str(copied / "cache"))
    assert out == ["1.0", f"[3.0] True {kept}", "2.0 True"]


def test_what_is_compiled_with_a_kernel_whose_bitcode_is_gone_serves_this_process_and_is_not_kept(copied):
    (copied / "kai" / "kernels" / "twice.py").write_text(KERNEL, encoding="utf-8")
    settings = {"NUMBA_CACHE_DIR": str(copied / "cache")}
    run(DIVIDE, copied, **settings)
    assert run(REPLACED + CALLED, copied, **settings)[2:] == ["2.0 0"]
    for _ in range(2):
        assert run(DIVIDE + CALLED, copied, **settings)[2:] == ["2.0 1"]


def test_another_kernel_source_is_another_directory(copied):
    source = copied / "kai" / "kernels" / "fairshare.py"
    program = "from kai.kernels.cache import fingerprint\nprint(fingerprint())"
    before = run(program, copied)
    (copied / "kai" / "kernels" / "warm.py").write_text(
        (copied / "kai" / "kernels" / "warm.py").read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8"
    )
    assert run(program, copied) == before
    source.write_text(source.read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8")
    assert run(program, copied) != before


STRANGER = """
from kai.kernels._jit import inner, kernel
from kai.kernels.struct import Float64s, Struct
from watts.amounts import EACH, more

class Racks(Struct):
    drawn: Float64s

@kernel
def draw(racks: Racks, watts: float) -> float:
    racks.drawn[0] += more(watts) * EACH
    return racks.drawn[0]
"""
AMOUNTS = """
from kai.kernels._jit import inner

EACH = 2.0

@inner
def more(watts: float) -> float:
    return watts + 1.0
"""
DRAW = """
import numpy as np
from racks.kernels import Racks, draw
from kai.kernels import cache

print(draw(Racks(drawn=np.zeros(1)), 1.0))
hits = [kernel.dispatcher.stats.cache_hits for kernel in (draw, Racks.constructor)]
print(*(bool(found) for found in hits), cache.directory("racks").name)
"""


@pytest.fixture
def strange(copied):
    """Return the folder with two packages of strangers beside kai; one takes a kernel and a number of the other."""
    for package, module, text in (("racks", "kernels", STRANGER), ("watts", "amounts", AMOUNTS)):
        (copied / package).mkdir()
        (copied / package / "__init__.py").touch()
        (copied / package / f"{module}.py").write_text(text, encoding="utf-8")
    return copied


def draw(folder: Path) -> list[str]:
    return run(DRAW, folder, NUMBA_CACHE_DIR=str(folder / "cache"))


def change(file: Path, before: str, after: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def test_kernels_of_strangers_are_kept_in_a_directory_of_their_package(strange):
    kept = draw(strange)[1].split()[-1]
    assert draw(strange) == ["4.0", f"True True {kept}"]
    folders = {each.name.rpartition("-")[0] for each in (strange / "cache").iterdir()}
    assert folders == {"kernels", "racks", "watts"}
    assert list((strange / "cache" / kept).glob("*.nbi"))


def test_an_edit_of_a_strangers_kernel_compiles_its_package_again_and_no_other(strange):
    draw(strange)
    ours = {each: each.stat().st_mtime_ns for each in (strange / "cache").glob("kernels-*/*")}
    change(strange / "racks" / "kernels.py", "+=", "-=")
    kept = draw(strange)[1].split()[-1]
    assert draw(strange) == ["-4.0", f"True True {kept}"]
    assert {each: each.stat().st_mtime_ns for each in (strange / "cache").glob("kernels-*/*")} == ours


@pytest.mark.parametrize(
    ("before", "after", "value"), [("+ 1.0", "+ 3.0", "8.0"), ("EACH = 2.0", "EACH = 5.0", "10.0")]
)
def test_an_edit_of_what_a_stranger_takes_of_another_is_seen(strange, before, after, value):
    draw(strange)
    change(strange / "watts" / "amounts.py", before, after)
    assert draw(strange)[0] == value


def test_a_struct_of_a_stranger_may_get_another_field(strange):
    draw(strange)
    change(strange / "racks" / "kernels.py", "drawn: Float64s", "spare: Float64s\n    drawn: Float64s")
    program = DRAW.replace("(drawn=", "(spare=np.ones(3), drawn=")
    assert run(program, strange, NUMBA_CACHE_DIR=str(strange / "cache"))[0] == "4.0"


def test_a_kernel_without_types_is_named_when_it_is_warmed(strange):
    change(strange / "racks" / "kernels.py", "watts: float)", "watts)")
    program = """
import racks.kernels
from kai.kernels.warm import kernels_of, signature

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
