"""Laws of shares of GPUs, on random clusters and random sequences of placements and evictions."""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import Status
from tests.doubles.audit import audit
from tests.unit.plugins.dra.manifests import CLASS, claim, claiming, device, exactly, offer
from tests.unit.plugins.dra.test_accounting import Game, moves
from tests.unit.plugins.stage import node

WHOLE = 8
CARD = [{"name": "card", "counters": {"slots": {"value": "2"}}}]
DRAWS = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
TERMS = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]


def shared(name):
    """Return a device in shares that draws one of two slots of its card."""
    return device(name, capacity={"memory": f"{WHOLE}m"}, allowMultipleAllocations=True, consumesCounters=DRAWS)


@st.composite
def clusters(draw):
    """Return manifests of a node with devices in shares, and of claims that pods hold, share or wait for."""
    left = {f"d{at}": WHOLE for at in range(draw(st.integers(1, 3)))}
    used, claims, pods = [], [], []
    slices = offer("n1", *map(shared, left), sharedCounters=CARD)
    for at in range(draw(st.integers(2, 6))):
        users = [f"g{at}-{number}" for number in range(draw(st.integers(1, 2)))]
        asked = draw(st.integers(1, 5))
        wanted = exactly(capacity={"requests": {"memory": f"{asked}m"}})
        on = draw(st.sampled_from([*left, None]))
        if on is None or left[on] < asked or len({*used, on}) > 2:
            claims.append(claim(f"c{at}", wanted))
            pods += [claiming(user, f"c{at}") for user in users]
            continue
        left[on] -= asked
        used.append(on)
        made = claim(f"c{at}", wanted, held=[("n1", on)], users=[f"default-{user}" for user in users], terms=TERMS)
        result = made["status"]["allocation"]["devices"]["results"][0]
        result |= {"shareID": f"s{at}", "consumedCapacity": {"memory": f"{asked}m"}}
        claims.append(made)
        pods += [claiming(user, f"c{at}", on="n1", leaving=draw(st.integers(0, 3)) == 0) for user in users]
    assume(pods)
    return [node("n1"), CLASS, slices, *claims, *pods]


def in_use(game):
    """Return how much of each device claims have that pods hold by now."""
    held = {}
    for placement in game.holders(Status.RUNNING, Status.ALLOCATED).values():
        for each in placement.claims:
            held[each.claim] = each.devices
    taken = Counter()
    for devices in held.values():
        for each in devices:
            taken[each.device] += dict(each.consumed)["memory"]
    return taken


def sat_on(game):
    """Return the devices on which pods sit, those included that are leaving."""
    recorded = map(game.stage.answers.placement.recorded, range(len(game.session.snapshot.pods)))
    leaving = {each.device for held in recorded for each in held.devices()}
    return leaving | in_use(game).keys()


def fits_all(devices, used, asked):
    """Say whether shares of so much each find room on ``devices``, of which two may be in use, beside what is used."""
    if not asked:
        return True
    for name in devices:
        taken = used.get(name, 0) + asked[0]
        if taken <= WHOLE and len({*used, name}) <= 2 and fits_all(devices, {**used, name: taken}, asked[1:]):
            return True
    return False


def promised(game):
    """Return how much claims were promised that no pod has by now."""
    holders = game.holders(Status.RUNNING, Status.ALLOCATED).values()
    used = {each.claim for placement in holders for each in placement.claims}
    found = {}
    for placement in game.holders(Status.PIPELINED).values():
        for each in placement.claims:
            if each.claim not in used:
                found[each.claim] = sum(dict(device.consumed)["memory"] for device in each.devices)
    return sorted(found.values(), reverse=True)


@settings(max_examples=200, deadline=None)
@given(clusters(), moves)
def test_shares_never_exceed_capacity_and_undo_is_exact(manifests, played):
    game = Game(manifests)
    before = game.session.ledger.fingerprint()
    columns = game.session.columns
    assert game.session.snapshot.nodes[0].allocatable["gpu"] == GPU_UNIT  # the card, of which each device is a half
    for verb, number in played:
        game.play(verb, number)
        taken = in_use(game)
        assert max(taken.values(), default=0) <= WHOLE
        assert len(taken) <= 2
        audit(game.session.ledger)
        assert columns.idle[0, GPU] == max(0, GPU_UNIT - len(sat_on(game)) * GPU_UNIT // 2)
        assert columns.idle[0, GPU] + columns.releasing[0, GPU] >= 0
    game.statement.discard()
    assert game.session.ledger.fingerprint() == before
