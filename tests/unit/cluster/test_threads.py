"""What takes long runs beside the event loop, and may have the loop do something meanwhile."""

import threading
from contextvars import ContextVar

import pytest

from kai.cluster.threads import Threads


@pytest.mark.anyio
async def test_a_computation_runs_in_a_thread_and_the_loop_does_what_it_posts():
    cpu, loop, told = Threads(), threading.get_ident(), []
    ours = ContextVar("ours", default="nothing")
    ours.set("of the task")
    gate = threading.Event()

    def tell(what: str) -> None:
        told.append((what, threading.get_ident(), ours.get()))
        gate.set()

    def compute(factor: int) -> int:
        assert threading.get_ident() != loop
        cpu.post(tell, "meanwhile")
        assert gate.wait(60.0)  # the loop goes on while the thread computes
        return factor

    assert await cpu.run(compute, 3) == 3
    assert told == [("meanwhile", loop, "of the task")]
