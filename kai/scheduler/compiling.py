"""Compile kernels in a process of its own, which keeps them for this one.

What numba makes of its input on the way to machine code it holds for as long as its process lives: 230 MB for all
kernels, where loading them takes 17. It also holds the interpreter while it works, which the event loop waits for.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from subprocess import DEVNULL, PIPE

from kai.kernels.cache import directory
from kai.kernels.warm import Tell

_CHILD = """
import importlib, sys
from kai.kernels.warm import warm

modules = sys.argv[1:]
for module in modules:
    importlib.import_module(module)
warm(*modules, tell=lambda done, _: print(done, flush=True))
"""


def compile_apart(modules: Sequence[str], wanted: int, tell: Tell) -> None:
    """Compile what `warm` would compile for ``modules``, which are ``wanted`` kernels, and keep it.

    Nothing is done where nothing can be kept. What the other process fails at stays missing, and `warm` compiles it
    here; what `tell` raises ends the other process.
    """
    if directory() is None or not sys.executable:
        return
    # The same modules are found there, and none in the folder that a process happens to stand in.
    command = (sys.executable, "-P", "-c", _CHILD, *modules)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(  # noqa: S603 - a fixed program, and names of modules that are imported here
        command, env=environment, text=True, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    )
    with child:
        try:
            for line in child.stdout or ():
                if line.strip().isdecimal():  # plugins may print as well
                    tell(int(line), wanted)
        finally:
            child.kill()
