import os
import shutil
import subprocess
import sys

import numba
import pytest

from kai.facts.compiled import cache
from kai.facts.compiled.warm import warm
from kai.roles.scheduler import kernel_warmup
from kai.roles.scheduler.kernel_warmup import compile_apart

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="with the JIT off nothing is compiled")

PROGRAM = """
from kai.facts.compiled.warm import missing, warm
from kai.roles.scheduler.kernel_warmup import compile_apart

wanted, told = len(missing()), []
compile_apart((), wanted, lambda *counts: told.append(counts))
print(wanted, told, warm().compiled)
"""


class EndedError(Exception):
    pass


def test_missing_kernels_are_compiled_elsewhere_and_loaded_here(tmp_path):
    kept = warm().directory
    if kept is None:
        pytest.skip("there is no directory that kernels could have been kept in")
    copied = shutil.copytree(kept, tmp_path / kept.name)
    for file in copied.glob("fairshare.give_quota*.nbc"):
        file.unlink()
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command, folder = (sys.executable, "-c", PROGRAM), cache.PACKAGE.parents[1]
    ran = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["1 [(0, 1), (1, 1)] 0"]


def test_a_failed_compiling_process_reports_no_progress(monkeypatch):
    told = []
    monkeypatch.setattr(kernel_warmup, "_CHILD", "raise SystemExit(3)")
    compile_apart((), 3, lambda *counts: told.append(counts))
    monkeypatch.setattr(kernel_warmup, "directory", lambda: None)
    monkeypatch.setattr(kernel_warmup, "_CHILD", "print(1)")
    compile_apart((), 3, lambda *counts: told.append(counts))
    assert told == []


def test_who_listens_may_end_the_other_process(monkeypatch):
    def end(*_):
        raise EndedError

    monkeypatch.setattr(
        kernel_warmup, "_CHILD", "import time\nprint('loaded', 1, sep='\\n', flush=True)\ntime.sleep(600)"
    )
    with pytest.raises(EndedError):
        compile_apart(("no module of anybody",), 3, end)
