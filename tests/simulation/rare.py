"""What few schedules have: another version of kai that leads beside, and a last write that fails where all is quiet.

Both are drawn apart from everything else, so that the other schedules are what they were without.
"""

from __future__ import annotations

import contextvars
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.simulation.aimed import DONE, set_trap
from tests.simulation.episodes import Episode, Kinds, Undo
from tests.simulation.world import (
    ORDER,
    World,
    fraction_of,
    granted_to,
    is_leaving,
    is_over,
    key_of,
    node_of,
)

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Manifest
    from tests.simulation.users import Life

RARE: Final = Kinds()
_ELDER: Final = "elder"
_MOST_ORDERS: Final = 3
_BROKEN: Final = 25.0
"""For so many seconds the last order cannot be written: longer than the cycles last that a new pod brings."""


@RARE.add(40)
def elder(world: World, _: Life, __: Episode) -> Undo:
    """A scheduler of an earlier version leads beside, and orders shares of GPUs that have too little left."""
    left = _MOST_ORDERS

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        nonlocal left
        if process.startswith("kai") and when == DONE and method == "POST" and path.endswith("/binding"):
            left -= _order(world)
        return left <= 0

    return set_trap(world, is_met)


def _order(world: World) -> bool:
    """Order the first pod that waits for a share onto the first GPU that is too full for it; say if there are both."""
    portions: defaultdict[tuple[str, str], float] = defaultdict(float)
    ordered = {key_of(each) for each in world.all(ORDER)}
    waiting = []
    for pod in world.workers():
        if not fraction_of(pod) or is_over(pod) or is_leaving(pod):
            continue
        if node_of(pod):
            for group in _grant(pod).get("gpus", ()):
                portions[node_of(pod), group] += granted_to(pod)
        elif key_of(pod) not in ordered:
            waiting.append(pod)
    for pod in waiting:
        for (node, group), portion in portions.items():
            if portion + fraction_of(pod) > 1.0:
                world.say(f"an earlier version orders {key_of(pod)} onto {group} of {node}, which is too full")
                return world.create(_ELDER, ORDER, _manifest(pod, node, group)) is not None
    return False


def _grant(pod: Manifest) -> dict[str, Any]:
    """Return what a pod was granted; nothing if its owner wrote over that."""
    text = (pod["metadata"].get("annotations") or {}).get("kai.scheduler/granted") or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _manifest(pod: Manifest, node: str, group: str) -> Manifest:
    """Return the order for a pod, as versions wrote it that knew no terms."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {"selected-node": node},
            "ownerReferences": [owner],
        },
        "spec": {
            "podName": metadata["name"],
            "selectedNode": node,
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": f"{fraction_of(pod):.2f}"},
            "selectedGPUGroups": [group],
        },
    }


def order_once_more(world: World, life: Life) -> None:
    """Let a last pod come, whose order cannot be written for a while; nothing else happens that would remind kai."""

    def is_met(process: str, method: str, path: str, _: int) -> bool:
        is_order = process.startswith("kai") and method == "POST" and path.endswith("/bindrequests")
        if is_order:
            world.wire.failing = "/bindrequests"
            world.loop.call_later(_BROKEN, setattr, world.wire, "failing", "", context=contextvars.Context())
        return is_order

    set_trap(world, is_met)
    life.submit_last()


__all__ = ["RARE", "order_once_more"]
