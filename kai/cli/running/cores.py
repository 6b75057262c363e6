"""Core files: what the kernel writes when a service crashes holds nothing of its memory, so no token and no key."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Final

_FILTER: Final = Path("/proc/self/coredump_filter")
_NOTHING: Final = "0"


def withhold_memory() -> None:
    """Have no core file written of this process, and none of its memory where one is written all the same.

    What is left are registers of its threads: at most some hundred letters of what each of them last copied.
    A limit of zero does not hold where cores are piped to a program of the node; what is left out of them does. Both
    pass on to programs that this one starts. An administrator can take both back from outside (``prlimit``, and
    ``coredump_filter`` below ``/proc``). Other systems than Linux have the limit alone.

    Source: core(5).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    with contextlib.suppress(OSError):
        _FILTER.write_text(_NOTHING)
