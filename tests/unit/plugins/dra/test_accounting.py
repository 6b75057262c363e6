"""Laws of the accounting, on random clusters and random sequences of placements and evictions."""

from collections import Counter

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.placement import ClaimPlacement
from kai.facts.model.pod import Status
from kai.framework.decisions import Cause
from kai.plugins.dra import Dra
from tests.doubles.audit import audit
from tests.unit.plugins.dra.manifests import CLASS, claim, claiming, device, exactly, matching, offer
from tests.unit.plugins.stage import Stage, node, snapshot_of

ROOT = "topology.example.com/root"


@st.composite
def clusters(draw):
    """Return manifests of two nodes with devices, and of claims that pods hold, share or wait for."""
    nodes = ("n1", "n2")
    sizes = {name: draw(st.integers(1, 4)) for name in nodes}
    slices = [
        offer(name, *(device(f"d{at}", attributes={ROOT: f"root{at % 2}"}) for at in range(size)))
        for name, size in sizes.items()
    ]
    free = [(name, f"d{at}") for name, size in sizes.items() for at in range(size)]
    claims, pods = [], []
    for at in range(draw(st.integers(1, 5))):
        users = [f"g{at}-{number}" for number in range(draw(st.integers(1, 3)))]
        count = draw(st.integers(1, 2))
        held = ()
        if draw(st.booleans()):
            name = draw(st.sampled_from(nodes))
            held = [each for each in free if each[0] == name][:count]
        if len(held) == count:
            free = [each for each in free if each not in held]
            running = draw(st.integers(1, len(users)))
            status = [f"default-{user}" for user in users[:running]]
            terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [held[0][0]]}]}]
            claims.append(claim(f"c{at}", exactly(count=count), held=held, users=status, terms=terms))
            fates = [draw(st.sampled_from(["stays", "stays", "leaves", "is gone"])) for _ in range(running)]
            there = [(user, fate) for user, fate in zip(users, fates, strict=False) if fate != "is gone"]
            pods += [claiming(user, f"c{at}", on=held[0][0], leaving=fate == "leaves") for user, fate in there]
            pods += [claiming(user, f"c{at}") for user in users[running:]]
        else:
            constraints = [matching(ROOT)] if draw(st.booleans()) else []
            claims.append(claim(f"c{at}", exactly(count=count), constraints=constraints))
            pods += [claiming(user, f"c{at}") for user in users]
    assume(pods)
    return [*(node(name) for name in nodes), CLASS, *slices, *claims, *pods]


moves = st.lists(st.tuples(st.sampled_from(["evict", "place", "promise", "back"]), st.integers(0, 20)), max_size=12)


class Game:
    """A session on which moves are tried, with the detail of every pod that has a place."""

    def __init__(self, manifests):
        self.stage = Stage.of(Dra(), snapshot_of(*manifests))
        self.session = self.stage.session
        self.statement = self.session.statement("test", Cause.RECLAIM)
        self.marks = []

    def play(self, verb, number):
        session = self.session
        pod = number % len(session.snapshot.pods)
        status = int(session.columns.status[pod])
        self.marks.append((self.statement.mark(), session.ledger.fingerprint()))
        if verb == "back":
            mark, before = self.marks[number % len(self.marks)]
            self.statement.roll_back(mark)
            del self.marks[number % len(self.marks) + 1 :]
            assert session.ledger.fingerprint() == before
        elif verb == "evict" and status == Status.RUNNING:
            self.statement.evict(np.array([pod], np.int64))
        elif verb in ("place", "promise") and (status == Status.PENDING or self.is_evicted(pod)):
            # After an eviction actions only promise: what was idle before is gone, the rest is not idle yet.
            promise = verb == "promise" or bool(session.columns.evicted_status.any())
            self.statement.place_pods(np.array([pod], np.int64), session.all_nodes, session.no_extra, promise=promise)

    def is_evicted(self, pod):
        """Say whether the pod was evicted here; one that was terminating before is not placed again."""
        columns = self.session.columns
        return columns.status[pod] == Status.RELEASING and columns.evicted_status[pod]

    def holders(self, *statuses):
        """Return the pods with one of ``statuses`` and what they hold."""
        out = {}
        for pod, status in enumerate(self.session.columns.status):
            if status in statuses:
                detail = self.session.details.of(pod).get("claims") or self.stage.answers.placement.recorded(pod)
                assert isinstance(detail, ClaimPlacement)
                out[pod] = detail
        return out


def devices_by_claim(placements):
    """Return the devices of each claim, checking that all pods of a claim agree on them."""
    held = {}
    for placement in placements:
        for each in placement.claims:
            devices = tuple(device.key for device in each.devices)
            assert held.setdefault(each.claim, devices) == devices
    return held


@settings(max_examples=60, deadline=None)
@given(clusters(), moves)
def test_no_device_serves_two_claims_and_undo_is_exact(manifests, played):
    game = Game(manifests)
    before = game.session.ledger.fingerprint()
    claims = game.session.snapshot.catalog.claims.claims
    allocated = {key: tuple(each.key for each in one.allocation) for key, one in claims.items() if one.allocation}
    for verb, number in played:
        game.play(verb, number)
        settled = devices_by_claim(game.holders(Status.RUNNING, Status.ALLOCATED).values())
        settled = allocated | settled
        counts = Counter(device for devices in settled.values() for device in devices)
        assert max(counts.values(), default=0) <= 1
        devices_by_claim(game.holders(Status.RUNNING, Status.ALLOCATED, Status.PIPELINED).values())
        audit(game.session.ledger)
    game.statement.discard()
    assert game.session.ledger.fingerprint() == before


def test_a_promise_on_a_shared_claim_takes_nothing_extra():
    held = [("n1", "d0")]
    game = Game(
        [
            node("n1"),
            CLASS,
            offer("n1", device("d0", attributes={ROOT: "root0"})),
            claim("c1", exactly(count=1), held=held, users=["default-g1-0"]),
            claiming("g1-0", "c1", on="n1"),
            claiming("g1-1", "c1"),
        ]
    )
    columns = game.session.columns
    seen = []
    for verb, number in (("evict", 0), ("place", 1), ("place", 0)):
        game.play(verb, number)
        seen.append((int(columns.idle[0, GPU]), int(columns.releasing[0, GPU])))
    assert seen == [(0, GPU_UNIT), (0, 0), (0, 0)]


@settings(max_examples=60, deadline=None)
@given(clusters(), moves)
def test_a_node_counts_every_device_in_use_once(manifests, played):
    game = Game(manifests)
    for verb, number in played:
        game.play(verb, number)
    snapshot, columns = game.session.snapshot, game.session.columns
    active = devices_by_claim(game.holders(Status.RUNNING, Status.ALLOCATED).values())
    for row, facts in enumerate(snapshot.nodes):
        used = sum(1 for devices in active.values() for _, pool, _ in devices if pool == facts.name)
        idle = facts.allocatable["gpu"] // GPU_UNIT - used
        # What a victim held may count as taken until it is gone, but nothing that is in use counts as idle.
        assert columns.idle[row, GPU] // GPU_UNIT <= idle
        assert columns.idle[row, GPU] + columns.releasing[row, GPU] >= 0


@settings(max_examples=30, deadline=None)
@given(clusters())
def test_decisions_do_not_depend_on_the_order_of_objects(manifests):
    def outcome(ordered):
        game = Game(ordered)
        for pod in range(len(game.session.snapshot.pods)):
            game.play("place", pod)
        placements = game.holders(Status.ALLOCATED)
        return [(pod, [each.key for each in placement.devices()]) for pod, placement in sorted(placements.items())]

    assert outcome(manifests) == outcome(manifests[::-1])
