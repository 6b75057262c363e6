import subprocess
import sys

import pytest

from kai.api.memory import keep_freed, trim

_ROUNDS = """
import resource, threading
import numpy as np
from kai.api.memory import keep_freed

def a_cycle():
    columns = []
    for at in range(60):
        columns.append(np.ones(140_000, np.int64))
        if at % 2:
            columns.pop(0)

def cycles():
    for _ in range(3):
        a_cycle()
    keep_freed()
    for _ in range(3):
        a_cycle()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        a_cycle()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=cycles)
thread.start()
thread.join()
"""

_FREED = """
import re, threading
from pathlib import Path
import numpy as np
from kai.api.memory import keep_freed, trim

def held():
    return int(re.search(r"RssAnon:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])

def cycle():
    keep_freed()
    kept = [np.ones(140_000, np.int64) for _ in range(60)][::20]
    before = held()
    trim()
    print(before - held())

thread = threading.Thread(target=cycle)
thread.start()
thread.join()
"""


def test_a_thread_reuses_the_memory_of_dropped_columns() -> None:
    if not keep_freed():
        pytest.skip("another C library than glibc, which cannot be told what to keep")
    done = subprocess.run([sys.executable, "-c", _ROUNDS], capture_output=True, text=True, check=True)
    pages_of_one_cycle = 30 * 140_000 * 8 // 4096
    assert int(done.stdout) < pages_of_one_cycle // 10


def test_memory_freed_by_a_thread_returns_to_the_system() -> None:
    if not keep_freed():
        pytest.skip("another C library than glibc, which keeps its memory in other ways")
    done = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True)
    column = 140_000 * 8 // 1024
    assert int(done.stdout) > 50 * column


def test_nothing_is_given_back_where_the_c_library_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai.api.memory.ctypes.CDLL", lambda _name: object())
    trim()
