"""What must be true in the end: once faults and users are gone, everything settles, and nothing more is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tests.simulation.checks import bound_members, is_firm, members, queue_of, succeeded_members
from tests.simulation.disorder import POOL
from tests.simulation.world import (
    GPU,
    GROUP,
    HOMES,
    NODE,
    ORDER,
    POD,
    QUEUE,
    RESERVED,
    World,
    cpus_of,
    fraction_of,
    gpus_of,
    granted_to,
    is_leaving,
    is_over,
    key_of,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.rest_server.storage import Manifest

Rooms: TypeAlias = dict[str, tuple[int, int, int]]
_GROUP_LABEL = "runai-gpu-group"


def unsettled(world: World) -> list[tuple[int, str]]:
    """Return what is not yet as it must be, with the number of the invariant."""
    return [*_leaving(world), *_gangs(world), *_orders(world), *_reservations(world), *_waiting(world)]


def _leaving(world: World) -> Iterator[tuple[int, str]]:
    for pod in world.all(POD):
        if is_leaving(pod):
            yield 19, f"{key_of(pod)} is still leaving"
        elif node_of(pod) and pod["status"]["phase"] == "Pending":
            yield 19, f"{key_of(pod)} is bound and does not run yet"


def _gangs(world: World) -> Iterator[tuple[int, str]]:
    for group in _groups(world):
        least, bound = int(group["spec"].get("minMember") or 1), len(bound_members(world, group))
        if succeeded_members(world, group):
            continue  # it is not stale, and its other pods may go on alone
        if 0 < bound < least and len(members(world, group)) >= least:
            yield 6, f"gang {key_of(group)} has {bound} of {least} members on nodes"


def _groups(world: World) -> list[Manifest]:
    return [each for each in world.all(GROUP) if each["metadata"]["namespace"] in HOMES]


def _orders(world: World) -> Iterator[tuple[int, str]]:
    for order in world.all(ORDER):
        if (order.get("status") or {}).get("phase") == "Failed":
            yield 21, f"bind request {key_of(order)} failed, and is still there"
        if (order.get("status") or {}).get("phase") in {"Succeeded", None, "", "Pending"}:
            pod = world.server.storage.get(POD, (order["metadata"]["namespace"], order["spec"]["podName"]))
            owners = {each["uid"] for each in order["metadata"].get("ownerReferences") or ()}
            if pod is None or pod["metadata"]["uid"] not in owners:
                yield 21, f"bind request {key_of(order)} is for a pod that is gone"
            elif not node_of(pod):
                yield 21, f"bind request {key_of(order)} is not carried out"


def _reservations(world: World) -> Iterator[tuple[int, str]]:
    users = {
        _device(pod)
        for pod in world.workers()
        if not is_over(pod) and (node_of(pod) or not is_leaving(pod)) and _device(pod)
    }
    held = {_device(pod) for pod in world.all(POD, RESERVED) if not is_over(pod)}
    for device in sorted(held - users):
        yield 8, f"GPU {device} is held for no pod"
    for pod in world.workers():
        if fraction_of(pod) and pod["status"]["phase"] == "Running" and _device(pod) not in held:
            yield 8, f"{key_of(pod)} shares GPU {_device(pod)}, which no pod holds"


def _device(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_GROUP_LABEL, ""))


# --- Waiting pods --------------------------------------------------------------------------------------------------


def _waiting(world: World) -> Iterator[tuple[int, str]]:
    """Return the gangs that wait although idle nodes and quotas would take them."""
    free = free_rooms(world)
    for pod in world.workers():
        if node_of(pod) or is_over(pod) or is_leaving(pod) or pod["metadata"]["name"] in world.refused_binds:
            continue
        group_name = (pod["metadata"].get("annotations") or {}).get("pod-group-name")
        if not group_name:
            yield 18, f"{key_of(pod)} is in no group"
            continue
        group = world.server.storage.get(GROUP, (pod["metadata"]["namespace"], group_name))
        if group is None:
            continue
        waiting = [each for each in members(world, group) if not node_of(each)]
        least = max(1, int(group["spec"].get("minMember") or 1) - len(bound_members(world, group)))
        if len(waiting) >= least and has_room_for(world, waiting[:least], free):
            yield 18, f"{key_of(pod)} waits, and there is room for it"


def free_rooms(world: World) -> Rooms:
    """Return what nodes that take pods have left: GPUs, CPUs and places, by name."""
    pods = [each for each in world.all(POD) if node_of(each) and not is_over(each)]
    free = {}
    for node in world.all(NODE):
        if (node.get("spec") or {}).get("unschedulable") or (node.get("spec") or {}).get("taints"):
            continue
        if POOL in (node["metadata"].get("labels") or {}) or "cpu" not in node["status"]["allocatable"]:
            continue
        name, size = node["metadata"]["name"], node["status"]["allocatable"]
        on_it = [each for each in pods if node_of(each) == name]
        left = (int(size.get(GPU, 0)) - sum(map(gpus_of, on_it)), int(size["cpu"]) - sum(map(cpus_of, on_it)))
        free[name] = (*left, int(size["pods"]) - len(on_it))
    return free


def has_room_for(world: World, pods: list[Manifest], free: Rooms) -> bool:
    """Return whether nodes have room for pods of one queue, and quotas and limits allow them."""
    return _fits(pods, free, {each["metadata"]["name"]: each for each in world.all(QUEUE)}, world)


def _fits(pods: list[Manifest], free: Rooms, queues: dict[str, Manifest], world: World) -> bool:
    left = dict(free)
    for pod in pods:
        wanted = (gpus_of(pod) + bool(fraction_of(pod)), cpus_of(pod), 1 + bool(fraction_of(pod)))
        chosen = (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname")
        fitting = (name for name, has in left.items() if all(a >= b for a, b in zip(has, wanted, strict=True)))
        node = next((name for name in fitting if chosen in {None, name}), None)
        if node is None:
            return False
        gpu, cpu, places = left[node]
        left[node] = (gpu - wanted[0], cpu - wanted[1], places - wanted[2])
    return _may(pods, queues, world)


def _may(pods: list[Manifest], queues: dict[str, Manifest], world: World) -> bool:
    """Return whether limits allow pods, and quotas where they cannot be taken back."""
    wanted = sum(gpus_of(each) + fraction_of(each) for each in pods)
    name, firm = queue_of(pods[0]), is_firm(pods[0])
    while name in queues:
        resources = queues[name]["spec"]["resources"]["gpu"]
        below = [
            each
            for each in world.workers()
            if node_of(each) and not is_over(each) and _is_below(queues, queue_of(each), name)
        ]
        used = sum(gpus_of(each) + granted_to(each) for each in below)
        held = sum(gpus_of(each) + granted_to(each) for each in below if is_firm(each))
        if 0 <= resources["limit"] < used + wanted or (firm and 0 <= resources["quota"] < held + wanted):
            return False
        name = queues[name]["spec"].get("parentQueue", "")
    return True


def _is_below(queues: dict[str, Manifest], name: str, above: str) -> bool:
    while name in queues:
        if name == above:
            return True
        name = queues[name]["spec"].get("parentQueue", "")
    return False
