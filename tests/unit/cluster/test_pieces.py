"""Long batches and long plans let other tasks have their turn."""

import anyio
from anyio.lowlevel import checkpoint

from kai.api.plans import Now
from kai.cluster.threads import AT_ONCE, pieces, pieces_of
from kai.cluster.work import KeyRing, carry_out
from tests.unit.cluster.assembled import in_virtual_time


async def turns_of_another(work):
    """Return how many turns another task has while work is done."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await work()
        found = turns
        tasks.cancel_scope.cancel()
    return found


@in_virtual_time
async def test_pieces_are_the_batch_in_its_order():
    batch = tuple(range(2 * AT_ONCE + 1))
    found = [piece async for piece in pieces(batch)]
    assert [len(piece) for piece in found] == [AT_ONCE, AT_ONCE, 1]
    assert tuple(each for piece in found for each in piece) == batch
    assert [piece async for piece in pieces(())] == []


@in_virtual_time
async def test_pieces_of_batches_follow_one_another():
    async def batches():
        yield tuple(range(AT_ONCE + 1))
        yield ()
        yield ("last",)

    found = [piece async for piece in pieces_of(batches())]
    assert found == [tuple(range(AT_ONCE)), (AT_ONCE,), ("last",)]


@in_virtual_time
async def test_other_tasks_have_their_turn_between_pieces():
    async def work():
        async for _ in pieces(range(5 * AT_ONCE)):
            pass

    assert await turns_of_another(work) >= 3


class Ready:
    """Answers at once, as the store does."""

    async def perform(self, request):
        return request


@in_virtual_time
async def test_a_plan_of_store_reads_lets_other_tasks_run():
    def plan():
        for _ in range(4 * AT_ONCE):
            yield Now()
        return "done"

    async def work():
        assert await carry_out(plan(), Ready(), KeyRing()) == "done"

    assert await turns_of_another(work) >= 3
