"""Laws of GPUs and their partitions, on random nodes and random sequences of placements and evictions."""

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from tests.doubles.audit import audit
from tests.unit.plugins.dra.manifests import claim, claiming, device, device_class, exactly, offer
from tests.unit.plugins.dra.test_accounting import Game, moves
from tests.unit.plugins.stage import Stage, node

PLACES = 4
SIZES = {"whole": (4, 1), "half": (2, 2), "quarter": (1, 4)}
"""How many places a device of each size takes, and how many of it there are."""
TERMS = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
CLASSES = [device_class("mig.example.com", "device.driver == 'gpu.example.com'")]


def drawing(name, size, gpu, places):
    counters = {f"place-{at}": {"value": "1"} for at in places} | {"memory": {"value": f"{2 * len(places)}Gi"}}
    drawn = [{"counterSet": f"card-{gpu}", "counters": counters}]
    return device(name, attributes={"gpu.example.com/size": size}, consumesCounters=drawn)


def card(gpu):
    """Return a GPU, its halves and its quarters."""
    return [
        drawing(f"{size}-{gpu}-{at}", size, gpu, range(at * width, (at + 1) * width))
        for size, (width, count) in SIZES.items()
        for at in range(count)
    ]


def slices_of(gpus):
    everything = {f"place-{at}": {"value": "1"} for at in range(PLACES)} | {"memory": {"value": "8Gi"}}
    sets = [{"name": f"card-{gpu}", "counters": everything} for gpu in range(gpus)]
    return offer("n1", *(each for gpu in range(gpus) for each in card(gpu)), sharedCounters=sets)


def wanting(size):
    return exactly(of="mig.example.com", selectors=[f"device.attributes['gpu.example.com'].size == '{size}'"])


@st.composite
def clusters(draw):
    """Return manifests of a node with GPUs, and of claims of parts of them that pods hold, share or wait for."""
    gpus = draw(st.integers(1, 2))
    free = {(gpu, at) for gpu in range(gpus) for at in range(PLACES)}
    claims, pods = [], []
    for at in range(draw(st.integers(2, 6))):
        size = draw(st.sampled_from([*SIZES]))
        users = [f"g{at}-{number}" for number in range(draw(st.integers(1, 2)))]
        width, count = SIZES[size]
        gpu, first = draw(st.integers(0, gpus - 1)), draw(st.integers(0, count - 1))
        taken = {(gpu, first * width + place) for place in range(width)}
        if draw(st.booleans()) and taken <= free:
            free -= taken
            held = [("n1", f"{size}-{gpu}-{first}")]
            uids = [f"default-{user}" for user in users]
            claims.append(claim(f"c{at}", wanting(size), held=held, users=uids, terms=TERMS))
            pods += [claiming(user, f"c{at}", on="n1", leaving=draw(st.integers(0, 3)) == 0) for user in users]
        else:
            claims.append(claim(f"c{at}", wanting(size)))
            pods += [claiming(user, f"c{at}") for user in users]
    assume(pods)
    return [node("n1"), *CLASSES, slices_of(gpus), *claims, *pods]


def parts(placements):
    """Return the places of each GPU that pods with these placements sit on, and what each claim has."""
    on, of = Counter(), {}
    for each in (each for placement in placements for each in placement.claims):
        size, gpu, _ = each.devices[0].device.split("-")
        of[each.claim] = SIZES[size][0] * GPU_UNIT // PLACES
        on[each.devices[0].device] = (gpu, SIZES[size][0])
    totals = Counter()
    for gpu, width in on.values():
        totals[gpu] += width * GPU_UNIT // PLACES
    return totals, of


@settings(max_examples=60, deadline=None)
@given(clusters(), moves)
def test_gpu_parts_are_counted_per_node_and_undone_exactly(manifests, played):
    game = Game(manifests)
    columns, before = game.session.columns, game.session.ledger.fingerprint()
    total = game.session.snapshot.nodes[0].allocatable["gpu"]
    for verb, number in [("back", 0), *played]:
        game.play(verb, number)
        audit(game.session.ledger)
        here = game.holders(Status.RUNNING, Status.ALLOCATED, Status.PIPELINED)
        leaving = map(game.stage.answers.placement.recorded, range(len(game.session.snapshot.pods)))
        sitting, _ = parts([*game.holders(Status.RUNNING, Status.ALLOCATED).values(), *leaving])
        assert columns.idle[0, GPU] == total - sum(min(GPU_UNIT, each) for each in sitting.values())
        later, charged = parts(here.values())
        assert max(later.values(), default=0) <= GPU_UNIT
        assert columns.idle[0, GPU] + columns.releasing[0, GPU] == total - sum(later.values())
        assert columns.queue_used[0, GPU] == sum(charged.values())
    game.statement.discard()
    assert game.session.ledger.fingerprint() == before


@pytest.mark.parametrize(("size", "cost"), [("whole", 1000), ("half", 500), ("quarter", 250)])
def test_a_claim_costs_the_part_that_its_selectors_leave(size, cost):
    game = Game([node("n1"), *CLASSES, slices_of(2), claim("c", wanting(size)), claiming("a-0", "c")])
    shape = game.session.facts.pods.shape[Stage.row(game.stage, "a-0")]
    assert game.session.requested[shape, GPU] == cost
