"""An event loop that does not turn is told by a thread beside it."""

import threading

import anyio
import pytest
import structlog

from kai.cli.running import lifetime
from kai.cli.running.lifetime import log_standstill


@pytest.mark.anyio
async def test_a_blocked_event_loop_is_logged_with_its_place(monkeypatch):
    monkeypatch.setattr(lifetime, "_LOOKS_APART", 0.001)
    with structlog.testing.capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log_standstill)
            await anyio.wait_all_tasks_blocked()
            while len(logs) < 2:
                pass
            tasks.cancel_scope.cancel()
    assert {entry["event"] for entry in logs} == {"event loop stands still"}
    places = [place for entry in logs for place in entry["at"]]
    assert any(place.startswith(f"{__name__}.test_a_blocked_event_loop") for place in places)


@pytest.mark.anyio
async def test_looks_end_with_the_process():
    before = set(threading.enumerate())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log_standstill)
        await anyio.wait_all_tasks_blocked()
        (looking,) = set(threading.enumerate()) - before
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(looking.join, 60.0)
    assert not looking.is_alive()
