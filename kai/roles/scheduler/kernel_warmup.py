"""Moves the kernels of the service from plain Python to compiled code.

A small cluster, or one that just begins, is decided in plain Python at once, without loading anything. When this has
cost as much as loading kernels would (`kai.facts.compiled.pace`), a thread imports the compiler in the background, and
another process compiles the uncached kernels. Later cycles run them compiled, and each is loaded at its first call: a
cluster in which all pods find room never calls most of them. Where no pod waits yet, all are loaded at once, in time
that would pass unused, and the first pods find them ready. A cycle too large for plain Python waits for cached
kernels. If they have to be compiled first, which takes minutes, it serves groups in their order for a second, and
leaves the others to the next cycle. Its decisions are those with which the whole cycle would have begun. It searches
for no victims then, because that takes long in plain Python.

`compile_apart` compiles in a separate process. Numba keeps its intermediate data as long as its process lives: 230 MB
for all kernels, while loading them takes 17 MB. It also holds the interpreter lock while it works, and would block the
event loop.
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
from kai.deciding.engine.cycle import Profile
from kai.facts.compiled.cache import directory
from kai.facts.compiled.pace import WORTH_LOADING, work_of
from kai.facts.kernels import is_plain, run_compiled, run_plainly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.api.cluster_objects import ClusterObjects
    from kai.facts.compiled.warm import Tell

_CHILD = """
import importlib, sys
from kai.facts.compiled.warm import warm

modules = sys.argv[1:]
for module in modules:
    importlib.import_module(module)
warm(*modules, tell=lambda done, _: print(done, flush=True))
"""


def compile_apart(modules: Sequence[str], wanted: int, tell: Tell) -> None:
    """Compile in another process what `warm` would compile for ``modules``, ``wanted`` kernels in all, and cache them.

    Do nothing without a cache folder. Kernels that the other process fails to compile stay missing, and `warm` compiles
    them here. An exception from ``tell`` ends the other process.
    """
    if directory() is None or not sys.executable:
        return
    # -P and PYTHONPATH: the child finds the same modules, and none in its working directory.
    command = (sys.executable, "-P", "-c", _CHILD, *modules)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # stderr is dropped: nothing reads it, and a pipe that is full would stop the child.
    child = subprocess.Popen(  # noqa: S603 - a fixed program, and names of modules that are imported here
        command, env=environment, text=True, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    )
    with child:
        try:
            for line in child.stdout or ():
                if line.strip().isdecimal():  # plugins may print as well
                    tell(int(line), wanted)
        finally:
            # Also after an exception from `tell`: nothing would wait for what it compiles.
            child.kill()


MOST_PLAIN: Final = 100_000
"""Amount of work that a cycle decides to the end in plain Python while kernels are compiled: a few seconds."""
LASTING: Final = 500
"""Size of a cluster from which kernels are loaded before a pod has to wait for them.

Units: nodes and pods, including pods that nodes have room for.
"""
_ROOM: Final = 8
"""Count of pods that a node has room for: as many as GPUs, for which most of them ask."""
PART_SECONDS: Final = 1.0
"""How long a larger cycle serves groups; on a single processor the compiler gets the rest of the time."""


@attrs.define(eq=False)
class Warming:
    """The state of the kernels of one process, from plain to compiled."""

    profile: Profile
    work: int = 0
    """Amount of work that was decided in plain Python so far."""
    compiled: int = 0
    missing: int | None = None
    """Count of kernels that have to be compiled; None before the cache was read."""
    part_seconds: float | None = None
    """How long the next cycle serves groups; None: until all are served."""
    _loads_all: bool = False
    """Whether all cached kernels are loaded at once, and not each at its first call."""
    _is_given_back: bool = False
    """Whether the pages were given back that the first compiled cycle read to load its kernels."""
    _is_ending: bool = False
    _wanted: anyio.Event = attrs.field(factory=anyio.Event)
    _assessed: anyio.Event = attrs.field(factory=anyio.Event)
    _loaded: anyio.Event = attrs.field(factory=anyio.Event)
    _is_awaited: bool = False
    _is_told: bool = False
    """Whether it was logged that cycles decide a part."""

    async def run(self) -> None:
        """Load or compile the kernels once they are wanted."""
        if is_plain() is False:
            self._loaded.set()
            return
        run_plainly()
        give_back(COMPILER)  # its import reads half of it
        await self._wanted.wait()
        await to_thread.run_sync(self._load)
        if self.compiled and not self._is_ending:
            structlog.get_logger().info("kernels compiled", kernels=self.compiled)
        self._loaded.set()

    async def settle(self, objects: ClusterObjects) -> None:
        """Choose how kernels run in the cycle on ``objects``, and how much of it is decided.

        Waits for cached kernels, and for the check whether they are cached.
        """
        self.part_seconds = None
        if is_plain() is False:
            if not self._is_given_back:
                self._is_given_back = True
                give_back(COMPILER)
            return
        if not self._loaded.is_set():
            waiting = sum(not pod.spec.node_name for pod in objects.pods)
            work = work_of(len(objects.nodes), len(objects.pods), waiting)
            self.work += work
            if self.work <= WORTH_LOADING and _size_of(objects) < LASTING:
                return
            if not self._wanted.is_set():
                # A larger cycle waits for the loading, and each kernel more would delay it.
                self._loads_all = not waiting and work <= WORTH_LOADING
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
        """Return what a cycle waits for, as text; "" if none waits."""
        return "loading kernels" if self._is_awaited else ""

    def note(self) -> str:
        """Return the progress of the compilation and its effect on cycles, as text; "" if nothing is compiled."""
        if not self.missing or self._loaded.is_set():
            return ""
        counts = f"compiling kernels, {self.compiled} of {self.missing}"
        return (
            counts if self.part_seconds is None else f"{counts}; cycles decide a part and evict for no job until then"
        )

    def end(self) -> None:
        """Stop compiling, because the process ends."""
        self._is_ending = True

    def _load(self) -> None:
        # Imported here: a process that decides in plain Python needs no compiler.
        from kai.facts.compiled.warm import missing, warm

        modules = tuple(type(use.plugin).__module__ for use in self.profile.plugins)
        # In the thread of the event loop: events of anyio may be set nowhere else.
        from_thread.run_sync(self._assess, len(missing(*modules)))
        give_back(COMPILER)  # before most of its own pages are needed: they would add up
        try:
            if self.missing:
                compile_apart(modules, self.missing, self._tell)
            if self.missing or self._loads_all:
                warm(*modules, tell=self._tell)  # also what the other process failed to compile
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


def _size_of(objects: ClusterObjects) -> int:
    nodes = len(objects.nodes)
    return nodes + max(len(objects.pods), _ROOM * nodes)


class _Ended(Exception):  # noqa: N818 - not an error: the process ends while it compiles
    """Ends the compilation."""
