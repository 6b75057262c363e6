"""Where pods go by what stays usable, what is kept of nodes from pod to pod decides as if all were counted anew."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from kai.configuration.profiles import make_profile
from kai.configuration.reading import read_configuration
from kai.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from tests.properties.strategies import contended, snapshots

WITH_ORDER, BY_AGE = (
    make_profile(read_configuration({"with": {"fragmentation": options}}, "test")) for options in ({}, {"order": False})
)


def decided(snapshot, profile, *, shortcuts):
    using = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, shortcuts=shortcuts))
    sink = Recorder()
    run_cycle(snapshot, using, sink)
    return sink.statements


@given(
    st.one_of(contended(nodes=(1, 4), groups=(3, 9)), snapshots(groups=(3, 9))), st.sampled_from((WITH_ORDER, BY_AGE))
)
def test_shortcuts_choose_the_same_nodes_and_devices(snapshot, profile):
    assert decided(snapshot, profile, shortcuts=True) == decided(snapshot, profile, shortcuts=False)
