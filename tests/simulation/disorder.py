"""Faults in the cluster: what nodes, users, kubelets, administrators and other programs do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kai.cluster.transport.calls import STRATEGIC_PATCH
from tests.doubles.rest_server.pods import BUDGET
from tests.simulation.episodes import Episode, Kinds, Undo, lasting, vain
from tests.simulation.world import (
    GPU,
    GROUP,
    HOME,
    NODE,
    POD,
    QUEUE,
    World,
    fraction_of,
    gpus_of,
    is_leaving,
    is_over,
    node_of,
    path_of,
)

if TYPE_CHECKING:
    from tests.simulation.users import Life

KINDS: Final = Kinds()
POOL: Final = "kai.scheduler/node-pool"
_TAINT: Final = {"key": "busy", "value": "yes", "effect": "NoSchedule"}


@KINDS.add(30)
def node_loss(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node is gone; another of the same name comes."""
    nodes = world.all(NODE)
    if len(nodes) < 2:
        return vain
    node = nodes[int(episode.strength * len(nodes))]
    name = node["metadata"]["name"]
    world.delete("admin", NODE, node)
    life.changed_at[name] = world.time

    def end() -> None:
        life.add_node(name)
        life.changed_at[name] = world.time

    return end


@KINDS.add(30)
def cordon(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node takes no more pods."""
    nodes = world.all(NODE)
    node = nodes[int(episode.strength * len(nodes))]
    name = node["metadata"]["name"]
    world.patch("admin", NODE, node, {"spec": {"unschedulable": True}})
    life.changed_at[name] = world.time

    def end() -> None:
        world.patch("admin", NODE, node, {"spec": {"unschedulable": None}})

    return end


@KINDS.add(30)
def shrink(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node loses GPUs."""
    nodes = [each for each in world.all(NODE) if int(each["status"]["allocatable"].get(GPU, 0)) > 1]
    if not nodes:
        return vain
    node = nodes[int(episode.strength * len(nodes))]
    before, name = node["status"]["allocatable"][GPU], node["metadata"]["name"]
    world.patch("admin", NODE, node, {"status": {"allocatable": {GPU: str(int(before) - 1)}}}, "status")
    life.changed_at[name] = world.time

    def end() -> None:
        world.patch("admin", NODE, node, {"status": {"allocatable": {GPU: before}}}, "status")
        life.changed_at[name] = world.time

    return end


@KINDS.add(4)
def quota(world: World, life: Life, episode: Episode) -> Undo | None:
    """An administrator changes quota and limit of a queue."""
    queues = [each for each in world.all(QUEUE) if each["spec"].get("parentQueue") not in {None, "top"}]
    queue = queues[int(episode.strength * len(queues))]
    amount = int(episode.strength * 1000) % 6
    world.patch("admin", QUEUE, queue, {"spec": {"resources": {"gpu": {"quota": amount, "limit": amount}}}})
    life.changed_at[queue["metadata"]["name"]] = world.time
    return None


@KINDS.add(12)
def namesakes(world: World, life: Life, episode: Episode) -> Undo | None:
    """Pods with names are deleted without grace, and made anew under their names at once."""
    for name in sorted(life.operator.wanted)[: 1 + int(episode.strength * 6)]:
        pod = world.server.storage.get(POD, (HOME, name))
        if pod is not None:
            world.delete("user", POD, pod, grace=0)
            world.create("operator", POD, life.operator.wanted[name])
    return None


@KINDS.add(29)
def storm(world: World, _: Life, __: Episode) -> Undo | None:
    """All pods that wait are deleted."""
    for pod in world.workers():
        if not node_of(pod) and not is_leaving(pod):
            world.delete("user", POD, pod)
    return None


@KINDS.add(32)
def refusals(_: World, life: Life, episode: Episode) -> Undo:
    """Kubelets refuse pods."""
    life.kubelets.refuses = 0.2 + 0.6 * episode.strength

    def end() -> None:
        life.kubelets.refuses = 0.0

    return end


@KINDS.add(32)
def mute(_: World, life: Life, __: Episode) -> Undo:
    """Reservation pods do not say which GPU they have."""
    life.kubelets.is_mute = True

    def end() -> None:
        life.kubelets.is_mute = False

    return end


@KINDS.add(34)
def sticking(_: World, life: Life, episode: Episode) -> Undo:
    """Pods that are to end take a minute."""
    life.kubelets.sticks = 0.3 + 0.7 * episode.strength

    def end() -> None:
        life.kubelets.sticks = 0.0

    return end


@KINDS.add(33)
def webhook(world: World, _: Life, episode: Episode) -> Undo:
    """A webhook of others refuses to have some pods bound."""
    waiting = [each["metadata"]["name"] for each in world.workers() if not node_of(each)]
    refused = set(waiting[: 1 + int(episode.strength * 3)])
    world.refused_binds |= refused

    def end() -> None:
        world.refused_binds -= refused

    return end


@KINDS.add(32)
def reservations(world: World, _: Life, __: Episode) -> Undo | None:
    """A user deletes the pods that hold shared GPUs."""
    for pod in world.all(POD, "kai-resource-reservation"):
        if not is_leaving(pod):
            world.delete("user", POD, pod)
    return None


@KINDS.add(31)
def conditions(world: World, _: Life, __: Episode) -> Undo | None:
    """Another controller writes a condition into every pod, so that all versions count up."""
    for pod in world.workers():
        path = path_of(POD, pod["metadata"]["namespace"], pod["metadata"]["name"], "status")
        condition = {"type": "Seen", "status": "True", "reason": f"At{int(world.time)}"}
        world.ask("stranger", "PATCH", path, {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)
    return None


@KINDS.add(41)
def budgets(world: World, _: Life, __: Episode) -> Undo | None:
    """A disruption budget allows no eviction at all."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"priorityClassName": "train"}}}
    if world.all(BUDGET, HOME):
        return None
    metadata = {"name": "none-may-go", "namespace": HOME}
    budget = world.create("admin", BUDGET, {"metadata": metadata, "spec": spec})
    if budget is None:
        return None
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
    world.patch("admin", BUDGET, budget, {"status": {"disruptionsAllowed": 0, **counts}}, "status")

    def end() -> None:
        world.delete("admin", BUDGET, budget)

    return end


@KINDS.add(30)
def flapping(world: World, life: Life, episode: Episode) -> Undo:
    """A node is cordoned and opened again, or tainted and cleaned, about once in a second."""
    until, name = world.time + episode.seconds, _one_node(world, episode)
    bad: dict[str, Any] = {"unschedulable": True} if episode.strength < 0.5 else {"taints": [_TAINT]}
    good: dict[str, Any] = dict.fromkeys(bad)

    def turn(spec: dict[str, Any], then: dict[str, Any]) -> None:
        node = world.server.storage.get(NODE, ("", name))
        if node is not None:
            world.patch("admin", NODE, node, {"spec": spec if world.time < until else good})
            life.changed_at[name] = world.time
        if world.time < until:
            world.loop.call_later(0.2 + 1.6 * world.nature.random(), turn, then, spec)

    def end() -> None:
        nonlocal until
        until = 0.0
        node = world.server.storage.get(NODE, ("", name))
        if node is not None:
            world.patch("admin", NODE, node, {"spec": good})

    turn(bad, good)
    return end


def _one_node(world: World, episode: Episode) -> str:
    nodes = world.all(NODE)
    return str(nodes[int(episode.strength * 7) % len(nodes)]["metadata"]["name"])


@KINDS.add(4)
def squatters(world: World, life: Life, episode: Episode) -> Undo:
    """Another scheduler puts its own pods on nodes, without looking at what others have there."""
    until, number = world.time + episode.seconds, 0

    def squat() -> None:
        nonlocal number
        if world.time >= until:
            return
        number += 1
        nodes = world.all(NODE)
        name = nodes[int(world.nature.random() * len(nodes))]["metadata"]["name"]
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "1"}}}
        spec = {"schedulerName": "other", "nodeName": name, "containers": [container]}
        metadata = {"name": f"squatter-{int(world.time * 1000)}-{number}", "namespace": "strangers"}
        life.changed_at[name] = world.time
        world.create("stranger", POD, {"metadata": metadata, "spec": spec})
        world.loop.call_later(1.0 + 4.0 * world.nature.random(), squat)

    def end() -> None:
        nonlocal until
        until = 0.0
        for pod in world.all(POD, "strangers"):
            world.delete("stranger", POD, pod, grace=0)

    squat()
    return end


@KINDS.add(12)
def impostors(world: World, life: Life, episode: Episode) -> Undo | None:
    """Pods with names are deleted and made anew at once, as pods that ask for something else."""
    found = False
    for name in sorted(life.operator.wanted)[: 1 + int(episode.strength * 6)]:
        pod = world.server.storage.get(POD, (HOME, name))
        if pod is None or node_of(pod):
            continue
        found = True
        wanted = life.operator.wanted[name]
        container = dict(wanted["spec"]["containers"][0])
        limits = {GPU: str(1 + (gpus_of(pod) + int(episode.strength * 10)) % 4)}
        container["resources"] = {"requests": {"cpu": "2"}, "limits": limits}
        life.operator.wanted[name] = {**wanted, "spec": {**wanted["spec"], "containers": [container]}}
        world.delete("user", POD, pod, grace=0)
        world.create("operator", POD, life.operator.wanted[name])
    return None if found else vain


@KINDS.add(31)
def grants(world: World, _: Life, __: Episode) -> Undo | None:
    """Users write into their pods on nodes that they share less than they were given."""
    found = False
    for pod in world.workers():
        if fraction_of(pod) and node_of(pod) and not is_over(pod):
            found = world.patch("user", POD, pod, {"metadata": {"annotations": {"gpu-fraction": "0.05"}}}) or found
    return None if found else vain


@KINDS.add(27)
def nonsense(world: World, _: Life, episode: Episode) -> Undo:
    """Objects come that no schema would let pass, or that no sense can be made of."""
    number = f"{int(world.time * 1000)}"
    labels = {"kai.scheduler/queue": "a1"}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "-3"}, "requests": {"cpu": "much"}}}
    spec: dict[str, Any] = {"schedulerName": "kai-scheduler", "containers": [container]}
    annotations = {"gpu-fraction": ("NaN", "-1", "1e999", "\u0663")[int(episode.strength * 4)]}
    sane = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    made: list[tuple[Any, dict[str, Any]]] = [
        (POD, {"metadata": {"name": f"odd-{number}", "namespace": "oddities", "labels": labels}, "spec": spec}),
        (
            POD,
            {
                "metadata": {
                    "name": f"share-{number}",
                    "namespace": "oddities",
                    "labels": labels,
                    "annotations": annotations,
                },
                "spec": {**spec, "containers": [sane]},
            },
        ),
        (GROUP, {"metadata": {"name": f"odd-{number}", "namespace": "oddities"}, "spec": {"minMember": -5}}),
        (QUEUE, {"metadata": {"name": f"odd-{number}"}, "spec": {"parentQueue": f"odd-{number}"}}),
        (QUEUE, {"metadata": {"name": f"strange-{number}"}, "spec": {"resources": {"gpu": {"quota": "lots"}}}}),
        (NODE, {"metadata": {"name": f"odd-{number}"}, "spec": {"unschedulable": True}, "status": {"allocatable": {}}}),
    ]
    for served, manifest in made:
        world.create("user", served, manifest)

    def end() -> None:
        for served in (POD, GROUP, QUEUE, NODE):
            for obj in world.all(served):
                if obj["metadata"]["name"].endswith(f"-{number}"):
                    world.delete("user", served, obj, **({"grace": 0} if served is POD else {}))

    return end


@KINDS.add(28)
def giants(world: World, _: Life, episode: Episode) -> Undo:
    """A pod with an annotation of 200 KiB comes, and a gang of forty that fits nowhere."""
    number = f"{int(world.time * 1000)}"
    labels = {"kai.scheduler/queue": "b2"}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": {GPU: "9"}}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    group = {"minMember": 40, "queue": "b2"}
    world.create("user", GROUP, {"metadata": {"name": f"giant-{number}", "namespace": "oddities"}, "spec": group})
    for index in range(10 + int(episode.strength * 30)):
        annotations = {"pod-group-name": f"giant-{number}", **({} if index else {"user/story": "x" * 200_000})}
        metadata = {"name": f"giant-{index}-{number}", "namespace": "oddities"}
        metadata |= {"labels": labels, "annotations": annotations}  # type: ignore[dict-item]  # a manifest
        world.create("user", POD, {"metadata": metadata, "spec": spec})

    def end() -> None:
        for served in (POD, GROUP):
            for obj in world.all(served, "oddities"):
                if obj["metadata"]["name"].endswith(f"-{number}"):
                    world.delete("user", served, obj, **({"grace": 0} if served is POD else {}))

    return end


@KINDS.add(39)
def shards(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node is given to another scheduler, and comes back."""
    name = _one_node(world, episode)

    def mark(pool: str | None) -> None:
        node = world.server.storage.get(NODE, ("", name))
        if node is not None:
            world.patch("admin", NODE, node, {"metadata": {"labels": {POOL: pool}}})
            life.changed_at[name] = world.time

    mark("theirs")
    return lambda: mark(None)


@KINDS.add(4)
def queue_loss(world: World, life: Life, episode: Episode) -> Undo | None:
    """A queue is deleted, and made again later; pods name it all the time."""
    queues = [each for each in world.all(QUEUE) if each["metadata"]["name"] in {"a1", "a2", "b1", "b2"}]
    if not queues:
        return vain
    queue = queues[int(episode.strength * len(queues))]
    name = queue["metadata"]["name"]
    world.delete("admin", QUEUE, queue)
    life.changed_at[name] = world.time

    def end() -> None:
        if world.server.storage.get(QUEUE, ("", name)) is None:
            world.create("admin", QUEUE, {"metadata": {"name": name}, "spec": queue["spec"]})
            life.changed_at[name] = world.time

    return lasting(world, end)


@KINDS.add(34)
def finalizers(world: World, _: Life, episode: Episode) -> Undo | None:
    """Finalizers of others keep pods that are deleted from going."""
    kept = [each for each in world.workers() if not is_leaving(each)][: 1 + int(episode.strength * 4)]
    if not kept:
        return vain
    for pod in kept:
        world.patch("stranger", POD, pod, {"metadata": {"finalizers": ["others/keep"]}})

    def end() -> None:
        for pod in kept:
            world.patch("stranger", POD, pod, {"metadata": {"finalizers": None}})

    return lasting(world, end)
