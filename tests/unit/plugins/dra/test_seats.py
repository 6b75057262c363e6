"""What a node counts for GPUs that several pods have."""

import numpy as np

from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from tests.unit.plugins.dra.manifests import CLASS, claim, claiming, device, exactly, offer
from tests.unit.plugins.dra.test_accounting import Game
from tests.unit.plugins.stage import Stage, node

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
