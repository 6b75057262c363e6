"""A process that is told to end gives its lease back, whatever it computes."""

import os
import signal
import threading

import anyio
import pytest
import structlog

from kai.cli.running import lifetime
from kai.cli.running.lifetime import end_on_signal
from kai.cluster.threads import Threads


@pytest.fixture
def process(monkeypatch):
    """Return how to run a process with a role and a way to send it signals; it returns what became of it, in order."""
    became, gate = [], threading.Event()

    def leave_at_once(code):
        became.append(code)
        gate.set()

    def computes_for_long():
        assert gate.wait(60.0)

    async def give_back():
        became.append("given back")

    async def run(role, *signals):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as roles:
                tasks.start_soon(end_on_signal, roles.cancel_scope, give_back)
                roles.start_soon(role, computes_for_long)
                for number in signals:
                    await anyio.wait_all_tasks_blocked()
                    os.kill(os.getpid(), number)
            tasks.cancel_scope.cancel()
        return became

    monkeypatch.setattr(os, "_exit", leave_at_once)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may be run so that they outlive their terminal
    yield run
    signal.signal(signal.SIGHUP, before)


async def computing(what):
    await Threads().run(what)


async def resting(_):
    await anyio.sleep_forever()


@pytest.mark.anyio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_roles_that_end_are_waited_for(process, number):
    assert await process(resting, number) == []


@pytest.mark.anyio
async def test_an_unending_task_is_abandoned_and_logged_with_place(process, monkeypatch):
    monkeypatch.setattr(lifetime, "_PATIENCE", 0.01)
    with structlog.testing.capture_logs() as logs:
        assert await process(computing, signal.SIGTERM) == ["given back", 143]
    first, last = logs
    assert first == {"event": "ending", "signal": "SIGTERM", "log_level": "info"}
    assert last["event"] == "ending without what is under way"
    assert last["why"] == "it lasts for 0.01 s"
    (at,) = [places for name, places in last["at"].items() if name.startswith("cycles")]
    assert any(place.startswith(f"{__name__}.computes_for_long:") for place in at)


@pytest.mark.anyio
async def test_a_second_signal_waits_for_nothing(process, monkeypatch):
    monkeypatch.setattr(lifetime, "_PATIENCE", 1e6)
    with structlog.testing.capture_logs() as logs:
        assert await process(computing, signal.SIGTERM, signal.SIGINT) == ["given back", 143]
    assert logs[-1]["why"] == "a second signal: SIGINT"


@pytest.mark.anyio
async def test_a_process_that_is_to_outlive_its_terminal_does(process):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with structlog.testing.capture_logs() as logs:
            assert await process(resting, signal.SIGHUP, signal.SIGTERM) == []
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [each["signal"] for each in logs] == ["SIGTERM"]
