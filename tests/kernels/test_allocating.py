import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels.score import is_orderly
from tests.kernels.naive import allocating as naive
from tests.kernels.stage import stages


@given(stages(), st.sampled_from([(0.0,), (0.0, 100.0), (50.0, 100.0 / 3, 25.0)]))
def test_shapes_are_orderly_where_their_twins_are(stage, steps):
    ratings = np.resize(np.array(steps), len(stage.world.nodes))
    for shape in stage.world.shapes:
        expected = naive.is_orderly(stage.world, shape, ratings)
        assert is_orderly(stage.ledger.facts, stage.vectors, shape.row, ratings) == expected
