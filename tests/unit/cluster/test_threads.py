"""What takes long runs beside the event loop, and may have the loop do something meanwhile."""

import threading
import time
from contextvars import ContextVar

import anyio
import pytest
import structlog

from kai.cluster.threads import Threads


@pytest.mark.anyio
async def test_a_computation_runs_in_a_thread_and_may_post():
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


@pytest.mark.anyio
async def test_computations_that_follow_one_another_run_in_one_thread():
    cpu = Threads()
    first = await cpu.run(threading.get_ident)
    with pytest.raises(ZeroDivisionError):
        await cpu.run(divmod, 1, 0)
    assert {await cpu.run(threading.get_ident) for _ in range(20)} == {first}


@pytest.mark.anyio
async def test_a_concurrent_computation_gets_another_thread():
    cpu, gate, seen = Threads(), threading.Event(), []

    async def compute() -> None:
        assert await cpu.run(gate.wait, 60.0)

    async with anyio.create_task_group() as tasks:
        first = await cpu.run(threading.get_ident)
        tasks.start_soon(compute)
        await anyio.wait_all_tasks_blocked()
        seen.append(await cpu.run(threading.get_ident))
        gate.set()
    assert first not in seen
    assert await cpu.run(threading.get_ident) == first


@pytest.mark.anyio
async def test_a_cancelled_caller_waits_for_its_computation():
    cpu, gate, done = Threads(), threading.Event(), []

    def compute() -> None:
        assert gate.wait(60.0)
        done.append("computed")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cpu.run, compute)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        gate.set()
    assert done == ["computed"]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await cpu.run(done.append, "never")
    assert done == ["computed"]


@pytest.mark.anyio
async def test_a_computation_that_raises_stop_iteration_ends():
    cpu = Threads()
    with pytest.raises(RuntimeError, match="StopIteration"):
        await cpu.run(next, iter(()))
    assert await cpu.run(len, "abc") == 3


@pytest.mark.anyio
async def test_an_endless_computation_is_logged_with_its_place(monkeypatch):
    monkeypatch.setattr("kai.cluster.threads._LONG", 0.01)
    cpu = Threads()

    def hangs() -> None:
        while len(logs) < 2:
            time.sleep(0.001)

    with structlog.testing.capture_logs() as logs:
        await cpu.run(hangs)
        count = len(logs)
        await cpu.run(len, "abc")
    assert {each["event"] for each in logs} == {"computing for long"}
    assert any(place.startswith(f"{__name__}.hangs:") for place in logs[0]["at"])
    assert len(logs) == count
