import subprocess
import sys
from pathlib import Path

import pytest

from kai.api.memory import Mapping, give_back, unchanged

SMAPS = """\
7f0000000000-7f0000200000 r--p 00000000 00:1 7 /usr/lib/libmany.so
Rss:                2048 kB
Anonymous:             0 kB
7f0000200000-7f0000600000 r-xp 00200000 00:1 7 /usr/lib/libmany.so
Rss:                4096 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000600000-7f0000700000 r--p 00600000 00:1 7 /usr/lib/libmany.so
Rss:                1024 kB
Anonymous:           512 kB
7f0000700000-7f0000800000 rw-p 00700000 00:1 7 /usr/lib/libmany.so
Anonymous:             0 kB
7f0000800000-7f0000900000 r-xp 00000000 00:1 8 /usr/lib/libother.so
Anonymous:             0 kB
7f0000900000-7f0000a00000 r--p 00000000 00:0 0
Anonymous:             0 kB
"""

PROGRAM = """
from llvmlite import binding
from kai.api.memory import COMPILER, give_back

def resident():
    lines = open("/proc/self/status", encoding="ascii").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))

binding.initialize_native_target()
binding.initialize_native_asmprinter()
triple = binding.get_process_triple()
before = resident()
given = give_back(COMPILER)
after = resident()
module = binding.parse_assembly("define i64 @f(i64 %x) { ret i64 %x }")
machine = binding.Target.from_triple(triple).create_target_machine()
print(given > 10_000_000, before - after > 10_000, len(machine.emit_object(module)) > 100)
"""


def test_only_unchanged_read_only_pages_are_given_back():
    found = list(unchanged("libmany.so", SMAPS.splitlines()))
    assert found == [Mapping(0x7F0000000000, 0x200000), Mapping(0x7F0000200000, 0x400000)]


def test_an_unloaded_library_gives_nothing_back():
    assert give_back("libnowhere.so") == 0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what is mapped")
def test_a_library_works_after_giving_its_pages_back():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["True", "True", "True"], ran.stderr
