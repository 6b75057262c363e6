import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels import domains as room
from kai.facts.kernels import fit, place, score, victims
from kai.facts.model.axis import Int64s
from kai.facts.model.pod import Status
from kai.plugins.topology.tree import pods_per_node
from tests.kernels.naive import fit as naive_fit
from tests.kernels.naive import place as naive_place
from tests.kernels.naive import score as naive_score
from tests.kernels.naive import searching as naive_searching
from tests.kernels.stage import stages
from tests.properties.strategies import one_of_each

extras = one_of_each(*[(0.0, 0.0, 1.5, -3.0, 1e6, float("nan"))] * 4)


def rows(stage, left_out: int) -> Int64s:
    return np.array([row for row in range(len(stage.world.nodes)) if row != left_out], np.int64)


def groups_of(world, shape):
    """List the groups that have a pod of a shape, or none if nobody owns one."""
    return list(dict.fromkeys(pod.group for pod in world.pods if pod.shape is shape)) or [None]


@given(stages())
def test_nodes_refuse_like_the_twins_for_the_same_reasons(stage):
    ledger, world = stage.ledger, stage.world
    nodes = np.arange(len(world.nodes))
    codes, counts = np.empty(len(nodes), np.int64), np.empty(fit.CODES + len(stage.snapshot.axis) + 1, np.int64)
    asked = ledger.facts, ledger.columns, stage.rules, stage.vectors
    for shape in world.shapes:
        for group in groups_of(world, shape):
            row = -1 if group is None else group.row
            place.refusals(*asked, shape.row, row, nodes, codes, counts)
            expected = naive_place.refusals(world, stage.rules, shape, group, nodes.tolist())
            assert (codes.tolist(), counts.tolist()) == expected


@given(stages(), extras, st.integers(-1, 2))
def test_scores_are_those_of_the_twin_bit_for_bit(stage, extra, left_out):
    ledger, world = stage.ledger, stage.world
    nodes = rows(stage, left_out)
    scores = np.empty(len(nodes), np.float64)
    for shape in world.shapes:
        score.score_nodes(
            ledger.facts,
            ledger.columns,
            stage.rules,
            stage.vectors,
            shape.row,
            nodes,
            np.array(extra[: len(world.nodes)]),
            scores,
        )
        expected = naive_score.score_nodes(world, stage.rules, shape, nodes.tolist(), extra)
        assert all(map(naive_score.same, scores.tolist(), expected)), (scores, expected)


@given(stages(), extras, st.integers(-1, 2))
def test_the_best_node_is_the_twins_first_accepting_one(stage, extra, left_out):
    ledger, world = stage.ledger, stage.world
    nodes = rows(stage, left_out)
    scores = [extra[row] for row in nodes]
    for shape in world.shapes:
        for group in groups_of(world, shape):
            found = place.best_node(
                ledger.facts,
                ledger.columns,
                stage.rules,
                stage.vectors,
                shape.row,
                -1 if group is None else group.row,
                nodes,
                np.array(scores, np.float64),
            )
            assert found == naive_place.best_node(world, stage.rules, shape, group, nodes.tolist(), scores)


@given(
    stages(),
    one_of_each(*[(0.0, 500.0, 1000.0, 2500.0)] * 2, (0.0, 300.0, 1000.0, 3000.0)),
    st.booleans(),
)
def test_queues_refuse_what_the_twins_refuse(stage, wanted, fixed_only):
    ledger, world = stage.ledger, stage.world
    for group in world.groups:
        found = fit.over_capacity(ledger.facts, ledger.columns, group.row, *wanted, fixed_only)
        assert found == naive_fit.over_capacity(world, group, wanted, fixed_only=fixed_only)


@given(stages())
def test_quotas_until_a_groups_end_equal_the_twins(stage):
    world = stage.world
    pairs = [(group, queue) for group in range(len(world.groups)) for queue in range(-1, len(world.queues))]
    groups, queues = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    found = fit.lasting_quotas(stage.ledger.facts, groups, queues)
    assert found.tolist() == naive_fit.lasting_quotas(world, groups.tolist(), queues.tolist())


@given(stages())
def test_free_gpus_are_those_of_the_twin(stage):
    ledger = stage.ledger
    idle, releasing = np.empty(len(stage.world.nodes), np.int64), np.empty(len(stage.world.nodes), np.int64)
    victims.free_gpus(ledger.facts, ledger.columns, idle, releasing)
    assert list(zip(idle.tolist(), releasing.tolist(), strict=True)) == naive_searching.free_gpus(stage.world)


@given(
    stages(),
    one_of_each(
        (0, 500, 1000),  # CPU
        (0, 10**9),  # memory
        (0, 0, 250, 500, 600, 1000, 2000),  # GPUs
        (0, 1, 1, 1, 3),  # places
        (0, 0, 1),  # slices
    ),
)
def test_nodes_hold_as_many_pods_as_the_twin_says(stage, request):
    ledger, world = stage.ledger, stage.world
    nodes = np.arange(len(world.nodes))
    out = np.empty(len(nodes), np.int64)
    pods_per_node(ledger.facts, ledger.columns, np.array(request, np.int64), 7, nodes, out)
    assert out.tolist() == naive_searching.pods_per_node(world, request, 7, nodes.tolist())


@given(stages(), one_of_each(*[(-1, 0, 700, 10**9, 3000)] * 5), st.integers(0, 9))
def test_domains_hold_what_the_twin_says_they_hold(stage, wanted, seed):
    ledger, world = stage.ledger, stage.world
    nodes = np.arange(len(world.nodes))
    fitting = np.random.default_rng(seed).integers(0, 5, len(nodes))
    parents = np.array([-1, 0, 0, 1, 1, 2])
    below = [[0, 1, 2, 3, 4, 5], [1, 3, 4], [2, 5], [3], [4], [5]]
    domains = np.random.default_rng(seed).integers(3, 6, len(nodes))
    wanted = np.array(wanted, np.int64)[: ledger.columns.idle.shape[1]]
    tightness, held = np.empty(len(parents), np.float64), np.empty(len(parents), np.int64)
    room.domain_room(ledger.columns, nodes, domains, parents, wanted, fitting, tightness, held)
    sets = [[node for node in nodes.tolist() if domains[node] in each] for each in below]
    expected = naive_searching.domain_room(world, sets, wanted.tolist(), fitting.tolist())
    assert list(zip(tightness.tolist(), held.tolist(), strict=True)) == expected


@given(stages(), st.lists(st.tuples(st.integers(0, 20), st.booleans(), extras), max_size=6))
def test_pods_go_where_terms_and_answers_are_best_together(stage, steps):
    ledger, world = stage.ledger, stage.world
    nodes = np.arange(len(world.nodes))
    terms = np.empty((len(world.shapes), len(nodes)), np.float64)
    known = np.full((len(world.shapes), 3), -1, np.int64)
    for which, promise, answers in steps:
        waiting = [pod for pod in world.pods if pod.status == Status.PENDING]
        if not waiting:
            break
        pod = waiting[which % len(waiting)]
        ledger.reserve(2)
        found = place.place_rated(
            ledger.facts,
            ledger.columns,
            ledger.offsets,
            stage.rules,
            stage.vectors,
            pod.row,
            nodes,
            np.zeros(len(nodes)),
            np.array(answers[: len(nodes)]),
            promise,
            terms[pod.shape.row],
            known[pod.shape.row],
        )
        assert bool(found) == naive_place.place_rated(world, stage.rules, pod, nodes.tolist(), answers, promise=promise)
    stage.agree()
