"""How the kernels of the service run: as plain Python while there is little to decide, compiled from then on.

A cluster that is small, or just begins, is decided at once: nothing is loaded for it. Once that has cost as much as
loading kernels would (`kai.kernels.pace`), they are loaded in a thread beside the work, after another process has
compiled what is not cached, and cycles run them from the next one on. A cycle that is too large for plain Python waits
for kernels that are cached. While they are compiled, which takes minutes, it serves groups in their order for a second
and leaves the others to the next cycle; what it decides is what the whole cycle would have begun with. It searches for
no victims then: that is what takes long in plain Python.

Compile kernels in a process of its own, which keeps them for this one.

What numba makes of its input on the way to machine code it holds for as long as its process lives: 230 MB for all
kernels, where loading them takes 17. It also holds the interpreter while it works, which the event loop waits for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import structlog
from anyio import from_thread, to_thread

from kai.api.memory import COMPILER, give_back
from kai.engine.cycle import Profile
from kai.kernels import is_plain, run_compiled, run_plainly
from kai.kernels.cache import directory
from kai.kernels.pace import WORTH_LOADING, work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.api.kinds import ClusterObjects
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


MOST_PLAIN: Final = 100_000
"""Work that a cycle decides plainly to the end while kernels are compiled: a few seconds of it."""
LASTING: Final = 500
"""Nodes and pods of a cluster that will want compiled kernels soon: they are loaded before a pod waits for them."""
PART_SECONDS: Final = 1.0
"""How long a larger cycle serves groups; the compiler gets the rest of the time, where there is one processor."""


@attrs.define(eq=False)
class Warming:
    """The kernels of one process, from plain to compiled."""

    profile: Profile
    work: int = 0
    """What was decided plainly so far."""
    compiled: int = 0
    missing: int | None = None
    """So many kernels are to be compiled; None until the cache was looked at."""
    part_seconds: float | None = None
    """How long the cycle that was settled last serves groups; None: until all are served."""
    _is_ending: bool = False
    _wanted: anyio.Event = attrs.field(factory=anyio.Event)
    _assessed: anyio.Event = attrs.field(factory=anyio.Event)
    _loaded: anyio.Event = attrs.field(factory=anyio.Event)
    _is_awaited: bool = False
    _is_told: bool = False
    """Whether the log says that cycles decide a part."""

    async def run(self) -> None:
        """Load the kernels, or compile them, once they are wanted."""
        if is_plain() is False:
            self._loaded.set()
            return
        run_plainly()
        await self._wanted.wait()
        await to_thread.run_sync(self._load)
        if self.compiled and not self._is_ending:
            structlog.get_logger().info("kernels compiled", kernels=self.compiled)
        self._loaded.set()

    async def settle(self, objects: ClusterObjects) -> None:
        """Settle how kernels run in the cycle that begins with ``objects``, and how much of it is decided.

        It waits for kernels that are cached, and until it is known whether they are.
        """
        self.part_seconds = None
        if is_plain() is False:
            return
        if not self._loaded.is_set():
            waiting = sum(not pod.spec.node_name for pod in objects.pods)
            work = work_of(len(objects.nodes), len(objects.pods), waiting)
            self.work += work
            if self.work <= WORTH_LOADING and len(objects.nodes) + len(objects.pods) < LASTING:
                return
            self._wanted.set()
            if work <= WORTH_LOADING:
                return
            await self._wait()
            if work > MOST_PLAIN and not self._loaded.is_set():
                self._decide_a_part()
        if self._loaded.is_set():
            run_compiled()

    async def _wait(self) -> None:
        self._is_awaited = True
        try:
            await self._assessed.wait()
            if not self.missing:
                await self._loaded.wait()
        finally:
            self._is_awaited = False

    def _decide_a_part(self) -> None:
        self.part_seconds = PART_SECONDS
        if not self._is_told:
            self._is_told = True
            structlog.get_logger().info("cycles decide a part until kernels are compiled", seconds=PART_SECONDS)

    def problem(self) -> str:
        """Return in words for what a cycle waits; "" if none does."""
        return "loading kernels" if self._is_awaited else ""

    def note(self) -> str:
        """Return in words how far compiling is, and what that means for cycles; "" if nothing is compiled."""
        if not self.missing or self._loaded.is_set():
            return ""
        counts = f"compiling kernels, {self.compiled} of {self.missing}"
        return (
            counts if self.part_seconds is None else f"{counts}; cycles decide a part and evict for no job until then"
        )

    def end(self) -> None:
        """Compile no further: the process ends."""
        self._is_ending = True

    def _load(self) -> None:
        # Imported here: a process that decides plainly has no need of a compiler.
        from kai.kernels.warm import missing, warm

        modules = tuple(type(use.plugin).__module__ for use in self.profile.plugins)
        from_thread.run_sync(self._assess, len(missing(*modules)))
        try:
            if self.missing:
                compile_apart(modules, self.missing, self._tell)
            warm(*modules, tell=self._tell)
        except _Ended:
            return
        give_back(COMPILER)

    def _assess(self, missing: int) -> None:
        self.missing = missing
        self._assessed.set()
        if missing:
            structlog.get_logger().info("compiling kernels", kernels=missing)

    def _tell(self, done: int, _total: int) -> None:
        self.compiled = done
        if self._is_ending:
            raise _Ended


class _Ended(Exception):  # noqa: N818 - no error: the process ends while it compiles
    """Ends compiling."""
