"""The loop that a seed drives: virtual time, drawn order, frozen processes."""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from tests.simulation.loop import PROCESS, SeededLoop, StuckError, numbered_scopes

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def seeded(seed: int = 1, shuffle: float = 0.0) -> Iterator[SeededLoop]:
    """Yield a loop, and close it whatever happens."""
    loop = SeededLoop(random.Random(seed), shuffle)
    try:
        yield loop
    finally:
        loop.close()


def played(seed: int, shuffle: float) -> list[str]:
    """Return in which order a few tasks did what they do."""
    order: list[str] = []

    async def worker(name: str) -> None:
        for step in range(3):
            order.append(f"{name}{step}")
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(worker, name)

    with seeded(seed, shuffle) as loop, numbered_scopes():
        loop.run_until_complete(main())
    return order


def test_without_shuffling_the_order_is_that_of_asyncio() -> None:
    assert played(1, 0.0) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_a_seed_draws_an_order_and_always_the_same() -> None:
    assert played(1, 1.0) == played(1, 1.0)
    assert len({tuple(played(seed, 1.0)) for seed in range(20)}) > 5


def test_scopes_hash_alike_in_each_run_of_a_process() -> None:
    async def hashes() -> list[int]:
        return [hash(anyio.CancelScope()) for _ in range(3)]

    def one_run() -> list[int]:
        with seeded() as loop, numbered_scopes():
            return loop.run_until_complete(hashes())

    assert one_run() == one_run()


def test_virtual_hours_pass_at_once_by_waiting_only() -> None:
    async def main() -> float:
        await asyncio.sleep(36_000.0)
        return asyncio.get_running_loop().time()

    with seeded() as loop:
        assert loop.run_until_complete(main()) == pytest.approx(37_000.0)


def test_what_is_frozen_does_nothing_until_it_is_thawed() -> None:
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)
            seen.append(round(asyncio.get_running_loop().time() - 1000.0, 3))

    async def main(loop: SeededLoop) -> None:
        token = PROCESS.set("one")
        task = asyncio.ensure_future(tick())
        PROCESS.reset(token)
        await asyncio.sleep(1.5)
        loop.freeze("one")
        await asyncio.sleep(5.0)
        loop.thaw("one")
        await asyncio.sleep(1.2)
        task.cancel()

    with seeded() as loop:
        loop.run_until_complete(main(loop))
    assert seen == [1.0, 6.5, 7.5]


def test_a_loop_that_turns_for_ever_is_found_out() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - what is to be found out
            await asyncio.sleep(0)

    with seeded() as loop, pytest.raises(StuckError, match="callbacks at"):
        loop.run_until_complete(main())


def test_a_wait_for_nothing_is_found_out() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with seeded() as loop, pytest.raises(StuckError, match="never happen"):
        loop.run_until_complete(main())
