"""Where pods go by what stays usable, what is kept of nodes from pod to pod decides as if all were counted anew."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from kai.testing import snapshot
from tests.properties.strategies import contended, snapshots

WITH_ORDER, BY_AGE = (
    make_profile(read_configuration({"with": {"fragmentation": options}}, "test")) for options in ({}, {"order": False})
)
ASKED = ({"fraction": 0.3}, {"fraction": 0.5}, {"fraction": 0.7}, {"gpu": 1}, {"gpu": 2}, {"gpu": 4})


def decided(taken, profile, *, shortcuts):
    using = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, shortcuts=shortcuts))
    sink = Recorder()
    run_cycle(taken, using, sink)
    return sink.statements


@given(
    st.one_of(contended(nodes=(1, 4), groups=(3, 9)), snapshots(groups=(3, 9))), st.sampled_from((WITH_ORDER, BY_AGE))
)
def test_shortcuts_choose_the_same_nodes_and_devices(taken, profile):
    assert decided(taken, profile, shortcuts=True) == decided(taken, profile, shortcuts=False)


@given(
    st.lists(st.sampled_from((2, 4, 8)), min_size=2, max_size=5),
    st.lists(st.sampled_from(ASKED), min_size=8, max_size=24),
)
def test_successive_pods_are_placed_alike_with_shortcuts(nodes, asked):
    taken = snapshot(
        nodes={f"n{row}": {"gpu": gpus} for row, gpus in enumerate(nodes)},
        groups={f"g{row}": {"each": each} for row, each in enumerate(asked)},
    )
    assert decided(taken, BY_AGE, shortcuts=True) == decided(taken, BY_AGE, shortcuts=False)
