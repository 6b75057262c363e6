import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from kai.kernels import cache, warm

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
print(shares.tolist(), dict(divide.stats.cache_hits) != {}, directory())
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
    program = READ_ONLY + "from kai.kernels import warm\nprint(*warm())"
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
