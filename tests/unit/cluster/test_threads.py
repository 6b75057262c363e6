"""What takes long runs beside the event loop, and may call back into it."""

import threading

import pytest

from kai.cluster.threads import Threads


@pytest.mark.anyio
async def test_a_computation_runs_in_a_thread_and_calls_the_loop():
    cpu, loop = Threads(), threading.get_ident()

    def compute(factor: int) -> tuple[int, int]:
        assert threading.get_ident() != loop
        return factor, cpu.call(threading.get_ident)

    assert await cpu.run(compute, 3) == (3, loop)
