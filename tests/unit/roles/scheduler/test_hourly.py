"""The line of each hour, in virtual time."""

import anyio
from structlog.testing import capture_logs

from kai.roles.scheduler.effects import (
    BindOrdered,
    BindRefused,
    Evicted,
    EvictionRefused,
    StatementRejected,
    VictimGone,
)
from kai.roles.scheduler.reporting.cycle_recorder import HOUR, Hourly
from tests.doubles import virtual_time

BOUND = BindOrdered(pod="a/p", node="n", seconds=0.1, waited=1.0)


def evicted(cause):
    return Evicted(pod="a/p", cause=cause, seconds=0.1, group=None)


def test_each_hour_is_one_line_of_its_decisions():
    async def play():
        hourly = Hourly(virtual_time.VirtualClock())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hourly.run)
            await anyio.sleep(10.0)
            for signal in (
                BOUND,
                BOUND,
                evicted("reclaim"),
                evicted("reclaim"),
                evicted("preempt"),
                BindRefused(pod="a/p", why="full"),
                EvictionRefused(pod="a/p", why="a budget", cause="preempt"),
                StatementRejected(why="gone", decisions=4),
                VictimGone(pod="a/p", cause="reclaim"),
            ):
                hourly.take(signal)
            hourly.cycle({"OverLimit": 9})
            hourly.cycle(None)
            hourly.cycle({"OverLimit": 3, "NoRoom": 1})
            await anyio.sleep(HOUR)
            hourly.take(BOUND)
            await anyio.sleep(HOUR)
            tasks.cancel_scope.cancel()

    with capture_logs() as lines:
        virtual_time.run(play)
    first, second = lines
    assert first == {
        "event": "last hour",
        "log_level": "info",
        "cycles": 2,
        "failed": 1,
        "binds": 2,
        "evictions": {"preempt": 1, "reclaim": 2},
        "refused": {"binds": 1, "decisions": 4, "evictions": 1},
        "waiting": {"NoRoom": 1, "OverLimit": 3},
    }
    assert (second["binds"], second["evictions"], second["cycles"]) == (1, {}, 0)
    assert second["waiting"] == first["waiting"], "what waits is what the last cycle left"
