"""What a subscription begins with is taken in parts, and joined with what changes meanwhile."""

import anyio
import anyio.lowlevel
import attrs
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.cluster.caching.shown import Present, Subscription
from kai.cluster.port import Change
from kai.cluster.threads import AT_ONCE
from tests.unit.intake import making

pytestmark = pytest.mark.anyio


def pod(number, version="1"):
    manifest = making.pod(f"p{number}")
    manifest["metadata"]["resourceVersion"] = version
    return structure_as(Pod, manifest)


def add(subscription, before, after):
    present = after or before
    key = (present.metadata.namespace, present.metadata.name)
    subscription.add(Pod, key, Change(before, after))


async def test_other_tasks_run_while_a_subscription_begins():
    pods = [pod(number) for number in range(10 * AT_ONCE + 1)]
    subscription = Subscription()
    subscription.begin(Present(Pod, pods))
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        batch = await anext(subscription)
        tasks.cancel_scope.cancel()
    assert [change.after for change in batch] == pods
    assert turns >= 10


async def test_subscriptions_that_begin_together_get_the_same_changes():
    present, batches = Present(Pod, [pod(0), pod(1)]), []
    for _ in range(2):
        subscription = Subscription()
        subscription.begin(present)
        batches.append(await anext(subscription))
    assert all(one is other for one, other in zip(*batches, strict=True))


async def test_untaken_changes_collapse_into_the_last():
    pods = [pod(number) for number in range(4)]
    changed, new = attrs.evolve(pods[1], spec=attrs.evolve(pods[1].spec, node_name="n")), pod(9)
    subscription = Subscription()
    subscription.begin(Present(Pod, pods))
    add(subscription, pods[0], None)
    add(subscription, pods[1], changed)
    add(subscription, pods[2], changed)  # assumed, and forgotten again
    add(subscription, changed, pods[2])
    add(subscription, None, new)
    batch = await anext(subscription)
    assert {change.before for change in batch} == {None}
    found = sorted((change.after for change in batch), key=lambda each: each.metadata.name)
    assert [*map(id, found)] == [*map(id, (changed, pods[2], pods[3], new))]
    add(subscription, changed, None)
    assert await anext(subscription) == (Change(changed, None),)
