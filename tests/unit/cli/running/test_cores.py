"""What a service that crashes leaves of itself."""

import os
import resource
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

_LOAD = 1
"""The type of a segment that has memory (elf(5))."""
WORD = "a-token-of-somebody"
# The word is put together, so that it is in memory and not in the text of the program.
CRASHES = """
import os, resource
from kai.cli.running.run import withhold_memory
word = "-".join(["a", "token", "of", "somebody"]) * 1000
if {withholds}:
    withhold_memory()
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # as if the kernel took no notice of it
os.abort()
"""


def core_of_crash(folder: Path, *, withholds: bool) -> bytes:
    """Return the core file that the kernel leaves in the folder of a program that crashes; empty if it leaves none."""
    folder.mkdir()
    program = [sys.executable, "-c", CRASHES.format(withholds=withholds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(program, cwd=folder, env=environment, check=False)
    assert ended.returncode == -signal.SIGABRT
    return b"".join(path.read_bytes() for path in folder.glob("core*"))


@pytest.mark.skipif(not Path("/proc/self/coredump_filter").exists(), reason="only Linux can leave memory out of cores")
def test_a_process_excludes_its_memory_and_limits_its_core():
    script = """
import resource
from kai.cli.running.run import withhold_memory
withhold_memory()
print(int(open("/proc/self/coredump_filter").read(), 16), resource.getrlimit(resource.RLIMIT_CORE)[0])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert said.stdout.split() == ["0", "0"]


def test_a_core_dump_lacks_the_memory_of_the_process(tmp_path):
    plain = core_of_crash(tmp_path / "plain", withholds=False)
    if WORD.encode() not in plain:
        pytest.skip("the kernel leaves cores elsewhere, or none: " + str(resource.getrlimit(resource.RLIMIT_CORE)))
    withheld = core_of_crash(tmp_path / "withheld", withholds=True)
    assert withheld, "a core is written, so that there is something to search"
    assert WORD.encode() in memory_in(plain)
    assert WORD.encode() not in memory_in(withheld)
    assert len(withheld) < len(plain) / 4


def memory_in(core: bytes) -> bytes:
    """Return the memory that a core file has, without its notes: these have what registers held.

    A register of a processor with wide ones may hold some letters of a word that was just copied.
    """
    start, size, count = (*struct.unpack_from("<Q", core, 32), *struct.unpack_from("<HH", core, 54))
    segments = (struct.unpack_from("<IIQQQQ", core, start + number * size) for number in range(count))
    return b"".join(core[at : at + length] for kind, _, at, _, _, length in segments if kind == _LOAD)
