"""Waiting for kai where its terms may be short.

A lease asks a machine for some processor within seconds. Where others take nearly all of it, terms end before what
began in them, and the next one begins it anew. That is no fault of kai, and to wait longer for everything would hide
those that are: so each term has as long as anything may take, and what holds up a leader that stays is found as soon.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from tests.integration.client import PATIENCE, until

MOST: Final = 5.0
"""So many times as long as anything may take, terms that end may be waited for altogether."""


def until_in_a_term(
    condition: Callable[[], Any],
    epoch: Callable[[], object],
    what: str,
    *,
    seconds: float = PATIENCE,
    every: float = 0.05,
) -> Any:
    """Return the first true value of a condition, for which each term has ``seconds``; ``epoch`` tells terms apart.

    Raises: TimeoutError when it came true neither within one term nor within `MOST` times as long.
    """
    end, terms = time.monotonic() + MOST * seconds, 1
    while True:
        present = epoch()
        value: list[Any] = []

        def is_over(present: object = present, value: list[Any] = value) -> bool:
            value[:] = [condition()]
            return bool(value[0]) or epoch() != present

        until(is_over, f"{what} in epoch {present}", seconds=seconds, every=every)
        if value[0]:
            return value[0]
        terms += 1
        if time.monotonic() > end:
            raise TimeoutError(f"waited {MOST * seconds:g} s for {what}, while {terms} terms passed")
