"""A cluster twice: as columns under the kernels and as a world under their twins, kept in step."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st

from kai.facts.kernels import booking, place
from kai.facts.kernels.columns import Facts
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.kernels.fragments import Mix, no_mix
from kai.facts.model.axis import GPU, GPU_UNIT, Float64s
from kai.facts.model.pod import ACTIVE_ALLOCATED, GpuKind, Status
from kai.facts.state.base import make_base
from kai.facts.state.ledger import MOVES, Ledger, Tracked
from kai.facts.state.snapshot import Snapshot
from tests.doubles.audit import audit
from tests.kernels.naive import booking as naive_booking
from tests.kernels.naive import place as naive_place
from tests.kernels.naive.fit import refusal
from tests.kernels.naive.world import Pod, World, differences, world_of
from tests.properties.strategies import one_of_each, snapshots


def _rules(
    *, binpack: float, spread: float, sharing: float, slots: tuple[float, float], limits: bool, weight: float = 0.0
) -> Rules:
    return Rules(
        binpack_cpu=binpack,
        binpack_gpu=0.0 if spread == 0.5 else binpack,
        spread_cpu=spread,
        spread_gpu=spread,
        cpu_only=10.0 * (spread < 1),
        availability=1000.0,
        sharing=sharing,
        pack_slots=slots[0],
        spread_slots=slots[1],
        limits=limits,
        fair_order=limits,
        elastic_key=1 if limits else -1,
        mix=no_mix().replace(weight=weight),
    )


RULES = (
    _rules(binpack=1.0, spread=0.0, sharing=10000.0, slots=(1.0, 0.0), limits=True),
    _rules(binpack=0.0, spread=1.0, sharing=0.0, slots=(0.0, 1.0), limits=True),
    _rules(binpack=1.0, spread=0.5, sharing=0.0, slots=(0.5, 0.5), limits=False),
    _rules(binpack=0.0, spread=0.0, sharing=10000.0, slots=(0.0, 0.0), limits=True),
    _rules(binpack=0.0, spread=0.0, sharing=0.0, slots=(0.0, 0.0), limits=True, weight=10.0),
)

OPERATIONS = (
    "put",
    "put",
    "put",
    "evict",
    "evict",
    "return",
    "place",
    "promise",
    "bind",
    "unallocate",
    "unevict",
    "seal",
)
operations = one_of_each(
    OPERATIONS,
    range(21),  # which pod
    range(4),  # which node
    (False, True),  # promise only
)


def _mix(facts: Facts, mix: Mix, random: np.random.Generator) -> Mix:
    """Draw how frequent the shapes that ask for GPUs are, where they may run, and what follows for nodes."""
    nodes, kinds = len(facts.nodes.ready), (GpuKind.WHOLE, GpuKind.FRACTION, GpuKind.MEMORY)
    shapes = np.flatnonzero(np.isin(facts.shapes.kind, kinds) & (facts.shapes.claimed == 0)).astype(np.int64)
    return mix.replace(
        shapes=shapes,
        shares=random.integers(1, 5, len(shapes)) / 7,
        allowed=random.random((len(shapes), nodes)) < 0.8,
        gpu_by_cpu=random.choice((1 / 4000, 1 / 12000, 1e12), nodes),
        gpu_by_memory=random.choice((1e-10, 1e-9, 1e12), nodes),
        pressure=random.choice((0.0, 0.25, 1.0, 3.0), nodes),
    )


INSTANTS = 3
"""At how many instants to come the quota of some queue falls."""


def _falls(quota: Float64s, random: np.random.Generator) -> dict[str, Any]:
    """Draw at which of the instants to come the quota of each queue falls, and by how much."""
    falls = random.random((len(quota), INSTANTS)) < 0.3
    queues, at = np.nonzero(falls)
    parts = [0.5 ** np.cumsum(row)[row] for row in falls]
    return {
        "fall_start": np.cumsum([0, *falls.sum(axis=1)], dtype=np.int64),
        "falls": at.astype(np.int64),
        "fallen": quota[queues] * np.concatenate([*parts, np.zeros(0)])[:, np.newaxis],
    }


@attrs.define(eq=False)
class Stage:
    """The two, with what both are asked by."""

    snapshot: Snapshot
    ledger: Ledger
    world: World
    rules: Rules
    vectors: Vectors

    @classmethod
    def of(cls, snapshot: Snapshot, seed: int = 0, rules: Rules = RULES[0], tracked: Sequence[Tracked] = ()) -> "Stage":
        """Open the books of a snapshot on both sides; ``seed`` draws what plugins would say about queues and nodes.

        ``tracked`` are columns of plugins.
        """
        random = np.random.default_rng(seed)
        base = make_base(snapshot)
        nodes, shapes, queues = len(snapshot.nodes), len(snapshot.shapes), len(snapshot.queues)
        models = base.facts.queues.model_quota.shape[1] if seed % 2 else 0
        masks = np.vstack([np.ones((1, nodes), np.bool_), random.random((1, nodes)) < 0.8])
        scores = np.vstack([np.zeros((1, nodes)), random.integers(-2, 3, (1, nodes)) * (0.7 if seed % 2 else 20.0)])
        amounts = np.array([1000.0, 1e9, 1000.0])
        facts = base.facts.replace(
            nodes=base.facts.nodes.replace(
                credits=np.sort(random.integers(0, 2, (2, nodes)) * GPU_UNIT, axis=0),
                claimable=np.arange(len(snapshot.axis)) == random.choice((-1, -1, GPU)),
                books_as_peer=bool(seed % 3 == 2),
            ),
            shapes=base.facts.shapes.replace(
                mask=random.integers(0, 2, shapes).astype(np.int64),
                score=random.integers(0, 2, shapes).astype(np.int64),
                credit=random.random(shapes) < 0.2,
            ),
            queues=base.facts.queues.replace(
                fair_share=random.integers(0, 4, (queues, 3)) * amounts,
                rank=base.facts.queues.priority * int(random.integers(0, 2)),
                past_use=random.integers(0, 3, queues) / 3,
                allocatable=random.integers(-1, 4, (queues, 3)) * amounts,
                total=random.integers(1, 5, 3) * amounts,
                deserved=random.integers(0, 3, (queues, models)) * GPU_UNIT,
                **_falls(base.facts.queues.quota, random),
            ),
            groups=base.facts.groups.replace(
                ahead=random.integers(0, INSTANTS + 1, len(snapshot.groups)),
                bound=random.integers(-1, models, len(snapshot.groups)),
            ),
        )
        opening = base.open(snapshot)
        ledger = Ledger(base.layout, facts, opening.arena, opening.room, tracked)
        world = world_of(facts, ledger.columns, masks.tolist(), scores.tolist())
        naive_booking.open_accounts(world)
        if rules.mix.weight:
            rules = rules.replace(mix=_mix(facts, rules.mix, random))
        return cls(snapshot, ledger, world, rules, Vectors(masks=masks, scores=scores))

    def agree(self) -> None:
        """Fail where the two differ."""
        wrong = differences(self.world, self.ledger.columns)
        assert not wrong, "\n".join(wrong)
        audit(self.ledger)

    # -------------------------------------------------------------------- operations

    def do(self, operation: tuple[str, int, int, bool]) -> None:
        """Do one operation on both sides, on whichever pod it may be done to; nothing if there is none."""
        verb, which, where, promise = operation
        pods = [pod for pod in self.world.pods if self._allows(verb, pod)]
        if verb == "seal":
            self.seal()
        elif verb == "place":
            self.place(pods[which % (len(pods) + 1) :][:3], where, promise=promise)
        elif pods:
            self._do(verb, pods[which % len(pods)], where % len(self.world.nodes), promise=promise)

    def _allows(self, verb: str, pod: Pod) -> bool:
        waits = pod.status == Status.PENDING or (pod.status == Status.RELEASING and pod.evicted is not None)
        match verb:
            case "put" | "place":
                return waits
            case "promise":
                return waits and not pod.shape.shared
            case "evict":
                return pod.is_in(ACTIVE_ALLOCATED) and pod.evicted is None and len(pod.left) < MOVES
            case "return" | "unevict":
                return pod.status == Status.RELEASING and pod.evicted is not None
            case "bind" | "unallocate":
                return pod.status == Status.ALLOCATED
            case _:
                return False

    def _do(self, verb: str, pod: Pod, node: int, *, promise: bool) -> None:
        ledger, row = self.ledger, pod.row
        match verb:
            case "put":
                self.put(pod, node, promise=promise)
            case "return":
                if pod.node >= 0:
                    self.put(pod, pod.node, promise=True)
            case "promise":
                ledger.pipeline(row, node, 0, keep=promise)
                naive_booking.pipeline(self.world, pod, node, 0, keep=promise)
            case "evict":
                ledger.evict(row)
                naive_booking.evict(self.world, pod)
            case "unevict":
                ledger.reserve(1)
                booking.unevict(ledger.facts, ledger.columns, ledger.offsets, row)
                naive_booking.unevict(self.world, pod)
            case "bind":
                ledger.reserve(1)
                booking.set_status(ledger.facts, ledger.columns, ledger.offsets, row, int(Status.BINDING))
                naive_booking.set_status(self.world, pod, Status.BINDING)
            case _:
                ledger.unallocate(row)
                naive_booking.unallocate(self.world, pod)

    def put(self, pod: Pod, node: int, *, promise: bool) -> None:
        """Put a pod on a node if that accepts it; where something about its place changed it is promised anew."""
        if refusal(self.world, self.rules, pod.shape, pod.group, self.world.nodes[node]):
            return
        # A victim is only ever promised a place: until it is gone it holds its old one.
        promise = promise or pod.status == Status.RELEASING
        ledger = self.ledger
        ledger.reserve(2)
        if promise and pod.row % 3 == 0:
            found = place.put_anew(ledger.facts, ledger.columns, ledger.offsets, self.rules, pod.row, node)
            wanted = naive_place.put_anew(self.world, self.rules, pod, node)
        else:
            found = place.put(ledger.facts, ledger.columns, ledger.offsets, self.rules, pod.row, node, promise)
            wanted = naive_place.put(self.world, self.rules, pod, node, promise=promise)
        assert bool(found) == wanted

    def place(self, pods: Sequence[Pod], where: int, *, promise: bool) -> None:
        """Place pods in one call, on all nodes or on all but one."""
        nodes = [row for row in range(len(self.world.nodes)) if row != where]
        extra = np.array([0.0, np.nan, 5.0, 5.0, 0.0, 1.0])[: len(self.world.nodes)]
        promise = promise or any(pod.status == Status.RELEASING for pod in pods)
        ledger = self.ledger
        ledger.reserve(2 * len(pods))
        found = place.place_pods(
            ledger.facts,
            ledger.columns,
            ledger.offsets,
            self.rules,
            self.vectors,
            np.array([pod.row for pod in pods], np.int64),
            np.array(nodes, np.int64),
            extra,
            promise,
        )
        assert found == naive_place.place_pods(self.world, self.rules, pods, nodes, extra.tolist(), promise=promise)

    def seal(self) -> None:
        """Make everything final on both sides."""
        self.ledger.seal()
        self.world.seal()

    def requested(self) -> Float64s:
        """Return float64[K, 3]: what pods of each shape are taken to want."""
        out = self.snapshot.requests[:, :3].astype(np.float64)
        out[:, 2] += 7.5
        return out


@st.composite
def stages(draw: Any, **limits: Any) -> Stage:
    """Draw a stage on which something has happened already."""
    models, owed = draw(st.sampled_from(((False, False), (True, False), (True, True))))
    snapshot = draw(snapshots(models=models, owed=owed, **limits))
    stage = Stage.of(snapshot, draw(st.integers(0, 9)), draw(st.sampled_from(RULES)))
    for operation in draw(st.lists(operations, max_size=6)):
        stage.do(operation)
    return stage
