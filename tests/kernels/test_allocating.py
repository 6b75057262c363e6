from hypothesis import given

from kai.facts.kernels.score import is_orderly
from tests.kernels.naive import allocating as naive
from tests.kernels.stage import stages


@given(stages())
def test_shapes_are_orderly_where_their_twins_are(stage):
    for shape in stage.world.shapes:
        assert is_orderly(stage.ledger.facts, stage.vectors, shape.row) == naive.is_orderly(stage.world, shape)
