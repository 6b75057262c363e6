"""What a node counts for GPUs that several pods have.

What queues are charged for devices of claims that pods share, or that claims have in part.
"""

import numpy as np
import pytest

from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from kai.plugins.dra import Dra
from tests.unit.plugins.dra.manifests import CLASS, NODE, claim, claiming, device, exactly, offer
from tests.unit.plugins.dra.test_accounting import Game
from tests.unit.plugins.stage import Stage, node, snapshot_of

TERMS = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]


def on_one_node(devices, *manifests):
    return Game([node("n1"), CLASS, offer("n1", *devices), *manifests])


def share(name, amount="1", on="", users=()):
    """Return a claim of a share of a device, allocated ``on`` one."""
    wanted = exactly(capacity={"requests": {"memory": amount}})
    if not on:
        return claim(name, wanted)
    made = claim(name, wanted, held=[("n1", on)], users=[f"default-{user}" for user in users], terms=TERMS)
    result = made["status"]["allocation"]["devices"]["results"][0]
    result |= {"shareID": name, "consumedCapacity": {"memory": amount}}
    return made


def shared(name, capacity="8"):
    return device(name, capacity={"memory": capacity}, allowMultipleAllocations=True)


def whole(name, on="", users=()):
    held = [("n1", on)] if on else []
    return claim(name, held=held, users=[f"default-{user}" for user in users], **({"terms": TERMS} if on else {}))


def counts(game):
    """Return the GPUs that are idle, being released and used."""
    columns = game.session.columns
    return tuple(int(each[0, GPU]) / GPU_UNIT for each in (columns.idle, columns.releasing, columns.used))


def played(game, *moves):
    """Return what the node counts after each of ``moves``."""
    seen = []
    for verb, name in moves:
        game.play(verb, Stage.row(game.stage, name))
        seen.append(counts(game))
    return seen


def test_a_device_counts_once_among_staying_and_leaving_pods():
    pods = [claiming("a-0", "c", on="n1", leaving=True), claiming("b-0", "c", on="n1"), claiming("c-0", "c", on="n1")]
    assert counts(on_one_node(["d0"], whole("c", "d0", ["a-0", "b-0", "c-0"]), *pods)) == (0, 0, 1)


def corrected(game):
    """Return in how many cells the books are corrected when the session opens."""
    placements = (each.placement for each in game.session.policy.plugins if each.placement is not None)
    return sum(len(each.corrections) for each in placements)


def test_nothing_is_corrected_where_each_device_has_one_pod():
    names = [f"d{number}" for number in range(8)]
    pods = [claiming(f"{name}-p", name, on="n1") for name in names]
    game = on_one_node(names, *(whole(name, name, [f"{name}-p"]) for name in names), *pods)
    assert (counts(game), corrected(game)) == ((0, 0, 8), 0)
    both = on_one_node(
        ["d0"], whole("c", "d0", ["a-0", "b-0"]), claiming("a-0", "c", on="n1"), claiming("b-0", "c", on="n1")
    )
    # The node has back what was booked twice, and so have the two queues above the pods.
    assert (counts(both), corrected(both)) == ((0, 0, 1), 4)


def test_a_device_that_all_pods_leave_is_released_once():
    pods = [claiming("a-0", "c", on="n1", leaving=True), claiming("b-0", "c", on="n1", leaving=True)]
    assert counts(on_one_node(["d0"], whole("c", "d0", ["a-0", "b-0"]), *pods)) == (0, 1, 1)


def test_an_eviction_releases_nothing_that_another_pod_uses():
    pods = [claiming("a-0", "c", on="n1"), claiming("b-0", "c", on="n1")]
    game = on_one_node(["d0"], whole("c", "d0", ["a-0", "b-0"]), *pods)
    assert played(game, ("evict", "a-0"), ("evict", "b-0")) == [(0, 0, 1), (0, 1, 1)]


def test_returning_beside_a_promised_share_takes_no_device_twice():
    game = on_one_node(
        [shared("d0")], share("c0", "3", "d0", ["a-0"]), share("c1", "3"), claiming("a-0", "c0", on="n1"),
        claiming("b-0", "c1"),
    )  # fmt: skip
    moves = [("evict", "a-0"), ("promise", "b-0"), ("promise", "a-0")]
    assert played(game, *moves) == [(0, 1, 1), (0, 0, 1), (0, 0, 1)]


def test_an_administrator_takes_nothing_of_a_node():
    looking = claim("c0", exactly(adminAccess=True))
    game = on_one_node(["d0"], looking, whole("c1"), claiming("a-0", "c0"), claiming("b-0", "c1"))
    assert played(game, ("place", "a-0"), ("place", "b-0")) == [(1, 0, 0), (0, 0, 1)]


def test_two_claims_of_a_pod_share_one_device_once():
    game = on_one_node([shared("d0")], share("c0", "3"), share("c1", "3"), claiming("a-0", "c0", "c1"))
    assert played(game, ("place", "a-0")) == [(0, 0, 1)]


def test_a_promise_that_is_taken_back_takes_nothing_twice():
    game = on_one_node(
        [shared("d0")],
        *(share(name, "3") for name in ("c0", "c1")),
        *(claiming(f"{name}-0", claimed) for name, claimed in (("a", "c0"), ("b", "c1"))),
    )
    seen = played(game, ("promise", "a-0"), ("promise", "b-0"))
    for name in ("b-0", "a-0"):
        game.statement.evict(np.array([Stage.row(game.stage, name)]))
        seen.append(counts(game))
    assert [idle + releasing for idle, releasing, _ in seen] == [0, 0, 0, 1]


def test_a_promise_that_loses_its_device_holds_another():
    game = on_one_node(
        [shared("d0"), shared("d1")],
        share("c0", "5", "d0", ["a-0"]),
        share("c1", "5", "d1", ["b-0"]),
        share("c2", "5"),
        claiming("a-0", "c0", on="n1"),
        claiming("b-0", "c1", on="n1"),
        claiming("c-0", "c2"),
    )
    moves = [("evict", "a-0"), ("evict", "b-0"), ("promise", "c-0"), ("promise", "a-0"), ("promise", "b-0")]
    assert played(game, *moves)[2:] == [(0, 1, 2), (0, 0, 2), (0, 0, 2)]
    status = game.session.columns.status
    assert [status[Stage.row(game.stage, name)] for name in ("a-0", "b-0", "c-0")] == [
        Status.RUNNING,
        Status.RELEASING,
        Status.PIPELINED,
    ]


def test_a_returning_pod_leaves_the_device_a_promise_needs():
    """The claim of ``b-0`` does with no other device, that of ``a-0`` does with any."""
    models = [device(f"d{at}", attributes={"model": model}) for at, model in enumerate("ab")]
    picky = claim("c1", exactly(selectors=["device.attributes['gpu.example.com'].model == 'a'"]))
    game = on_one_node(models, whole("c0", "d0", ["a-0"]), picky, claiming("a-0", "c0", on="n1"), claiming("b-0", "c1"))
    moves = [("evict", "a-0"), ("promise", "b-0"), ("promise", "a-0")]
    assert played(game, *moves) == [(1, 1, 1), (1, 0, 1), (1, -1, 2)]
    held = {name: game.session.details.of(Stage.row(game.stage, name))["claims"].devices() for name in ("a-0", "b-0")}
    assert {name: [each.device for each in devices] for name, devices in held.items()} == {"a-0": ["d1"], "b-0": ["d0"]}


def stage_of(*manifests):
    return Stage.of(Dra(), snapshot_of(NODE, CLASS, *manifests))


def used(stage):
    """Return thousandths of GPUs that the queue of all pods, and the one above it, are charged for."""
    found = {tuple(stage.session.columns.queue_used[row, [GPU]]) for row in range(2)}
    assert len(found) == 1
    return int(found.pop()[0])


def shared_by(*users):
    return claim("c", held=[("n1", "d0")], users=users)


def test_pods_that_share_a_claim_are_charged_once_together():
    pods = [claiming(f"{name}-0", "c", on="n1") for name in "abc"]
    stage = stage_of(offer("n1", "d0", "d1"), shared_by("default-a-0", "default-b-0", "default-c-0"), *pods)
    assert used(stage) == 1000


def test_a_pod_that_joins_costs_nothing():
    joining = claiming("b-0", "c")
    stage = stage_of(offer("n1", "d0"), shared_by("default-a-0"), claiming("a-0", "c", on="n1"), joining)
    assert stage.session.requested[stage.session.facts.pods.shape[stage.row("b-0")], GPU] == 0


def test_a_pod_pays_for_a_claim_without_queue():
    stage = stage_of(offer("n1", "d0"), shared_by("a-stranger"), claiming("b-0", "c"))
    assert stage.session.requested[stage.session.facts.pods.shape[stage.row("b-0")], GPU] == 1000


def part(name, amount):
    made = claim(
        name, exactly(capacity={"requests": {"memory": amount}}), held=[("n1", "d0")], users=[f"default-{name}-0"]
    )
    made["status"]["allocation"]["devices"]["results"][0] |= {"shareID": name, "consumedCapacity": {"memory": amount}}
    return made


def test_parts_of_a_device_are_charged_as_parts():
    many = device("d0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True)
    wanting = claim("x", exactly(capacity={"requests": {"memory": "10Gi"}}))
    pods = [claiming("a-0", "a", on="n1"), claiming("b-0", "b", on="n1"), claiming("x-0", "x")]
    stage = stage_of(offer("n1", many), part("a", "10Gi"), part("b", "20Gi"), wanting, *pods)
    assert used(stage) == 750
    assert stage.session.requested[stage.session.facts.pods.shape[stage.row("x-0")], GPU] == 250


@pytest.mark.parametrize("held", ["whole", "half-0"])
def test_a_partition_is_charged_by_its_drawn_counters(held):
    def drawing(name, amount):
        return device(name, consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": amount}}}])

    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    devices = (drawing("whole", "80Gi"), drawing("half-0", "40Gi"), drawing("half-1", "40Gi"))
    slices = (
        offer("n1", *devices, pool="n1", name="devices"),
        offer("n1", pool="n1", name="counters", sharedCounters=counters),
    )
    for each in slices:
        each["spec"]["pool"]["resourceSliceCount"] = 2
    mine = claim("c", held=[("n1", held)], users=["default-a-0"])
    stage = stage_of(*slices, mine, claiming("a-0", "c", on="n1"))
    assert used(stage) == (1000 if held == "whole" else 500)
